"""What is put off until the store was tried is not refused for good by a reply that comes later."""

from __future__ import annotations

import threading

from tests.support.s3_recorder import Recorded, S3Recorder

from sexton.schemas.events import DeleteObjects
from sexton.storage import BatchDeleter
from sexton.streaming_jobs.budget import NoBudget
from sexton.streaming_jobs.reaper.actions.delete_objects.execution import ObjectsExecution
from sexton.streaming_jobs.reaper.execute.executor import Executor


def test_a_refusal_from_before_the_probe_is_put_off_whenever_it_comes(
    recorder: S3Recorder, deleter: BatchDeleter
) -> None:
    """Two requests with an odd key each, of which one is answered after the probe: both keys go."""
    one = ["odd//1", *(f"a{i:04d}" for i in range(999))]
    two = ["odd//2", *(f"b{i:04d}" for i in range(999))]
    recorder.create_bucket("bucket", dict.fromkeys(one + two, b"x"))
    sent_again = threading.Event()

    def late(request: Recorded) -> None:
        if "odd//1" in request.keys:
            sent_again.set()
        if "b0001" in request.keys:
            assert sent_again.wait(20)

    recorder.script(late)
    executor = Executor(deleter, NoBudget())
    executions = [ObjectsExecution(DeleteObjects("bucket", (tuple(names),))) for names in (one, two)]
    for each in executions:
        executor.add(each)

    executor.finish()

    assert [dict(executor.result(each).counts) for each in executions] == [{"deleted": 1000}] * 2
    assert recorder.objects("bucket") == {}
    assert all(len(executor.result(each).request_ids) == 2 for each in executions)  # the odd key's own, too
