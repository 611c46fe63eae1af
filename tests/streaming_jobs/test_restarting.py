"""Reapers that are killed between two steps, tasks that Spark runs again, and the delay queue in a crash."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest
from tests.support.chain import Chain
from tests.support.commands import Command
from tests.support.crashes import end_before_receipts, markers
from tests.support.families import family, kill_all
from tests.support.intents import GONE, PROMISE, folded, promised, unchanged
from tests.support.replies import SLOW_DOWN, on_deletes, partly
from tests.support.s3_recorder import Recorded, Reply, S3Recorder
from tests.support.s3_state import etag_of
from tests.support.topics import cut, recreate

from sexton.schemas import events, records
from sexton.schemas.errors import SextonError
from sexton.streaming_jobs.reaper.recovery.binding import CheckpointRefused
from sexton.streaming_jobs.reaper.recovery.checkpoint import Checkpoint

pytestmark = [pytest.mark.real, pytest.mark.spark]

NAMES = ["p1", "p2", "p3", "p4", "guarded", "plain", "owned"]


@pytest.fixture
def s3(s3: S3Recorder) -> S3Recorder:
    """The recorder with a versioned bucket."""
    s3.create_bucket("bucket", dict.fromkeys([*NAMES, "late", "stays"], b"x"), versioning="Enabled")
    return s3


def phased(chain: Chain) -> events.DeletionIntent:
    """An intent whose keys go in four requests, one after the other."""
    action = events.DeleteObjects("bucket", tuple((name,) for name in NAMES[:4]))
    return chain.intent("t", None, (), guards=PROMISE, action=action)


def owned(chain: Chain, *keys: str, generation: int) -> events.DeletionIntent:
    """An intent that its generation guards."""
    return chain.intent("owner", generation, (), action=events.DeleteObjects("bucket", (keys,)))


def attached(chain: Chain, node: str) -> int:
    """The generation of a tenant that a node has taken now."""
    with chain.issuer() as issuer:
        return issuer.attach(node, "owner").generation


BOUNDARIES: dict[str, Callable[[Recorded, int], bool]] = {
    "after the barrier": lambda request, deletes: True,
    "after two of four requests": lambda request, deletes: deletes == 2,
    "after the last delete": lambda request, deletes: deletes == 4,
}


@pytest.mark.faults
@pytest.mark.parametrize("boundary", list(BOUNDARIES))
def test_kill_9_at_every_boundary_converges(
    chain: Chain, s3: S3Recorder, start: Callable[..., Command], boundary: str
) -> None:
    """Q-3, J-9: killed anywhere and superseded while it is down: what was accepted is gone, never `stale`.

    The same outcomes and objects whatever had been done, and one marker on each key.
    """
    generation = attached(chain, "first")
    intents = [phased(chain), unchanged(chain, "guarded", etag_of(b"x")), promised(chain, "plain")]
    intents.append(owned(chain, "owned", generation=generation))
    chain.emit(*intents)
    killed = threading.Event()
    here = BOUNDARIES[boundary]

    def script(request: Recorded) -> Reply | None:
        deletes = sum(any(n in NAMES[:4] for n in r.keys) for r in s3.deletes())
        last = boundary == "after the last delete"
        count = deletes + (last and request.is_delete_objects and "p4" in request.keys)
        if killed.is_set() or not here(request, count):
            return None
        killed.set()
        return Reply(drop=True, delay_s=5, act_first=last)

    s3.script(script)
    command = start(SEXTON_S3_ENDPOINT_URL=s3.url)
    command.until(killed.is_set)
    if boundary == "after the last delete":
        command.until(lambda: not set(NAMES) & s3.objects("bucket").keys())

    kill_all(command)
    command.wait()

    assert chain.outcomes() == []
    s3.script(None)
    attached(chain, "second")
    late = owned(chain, "late", generation=generation)
    chain.emit(late)
    chain.reap(s3_endpoint_url=s3.url)
    assert folded(chain, *intents, late) == [GONE] * 4 + ["stale"]
    assert [o.intent_id for o in chain.outcomes() if o.outcome is events.OutcomeKind.STALE] == [
        late.intent_id
    ]
    assert markers(s3, "bucket", NAMES) == dict.fromkeys(NAMES, 1)
    assert sorted(s3.objects("bucket")) == ["late", "stays"]
    assert (chain.dead_letters(), chain.deferred()) == ([], [])


@pytest.mark.faults
def test_kill_9_between_sink_and_commit_converges(
    chain: Chain, s3: S3Recorder, start: Callable[..., Command]
) -> None:
    """J-9: killed when the receipts of one task are written and the other still deletes, then superseded."""
    s3.create_bucket("slow", {"a": b"x"}, versioning="Enabled")
    first, second = (
        owned(chain, "owned", generation=attached(chain, "first")),
        promised(chain, "a", bucket="slow"),
    )
    chain.emit(first, partition=0)
    chain.emit(second, partition=1)
    late = Reply(drop=True, delay_s=30, act_first=True)
    s3.script(on_deletes(lambda r: late if r.bucket == "slow" else None))
    command = start(SEXTON_S3_ENDPOINT_URL=s3.url)
    command.until(chain.outcomes)

    kill_all(command)
    command.wait()

    assert folded(chain, first, second) == [GONE, "pending"]
    s3.script(None)
    attached(chain, "second")
    chain.reap(s3_endpoint_url=s3.url)
    assert folded(chain, first, second) == [GONE, GONE]
    reported = [o for o in chain.outcomes() if o.intent_id == first.intent_id]
    assert [o.verdict.reason for o in reported] == ["pass"]
    assert markers(s3, "bucket", ["owned"]) == {"owned": 1}
    assert markers(s3, "slow", ["a"]) == {"a": 1}
    assert chain.dead_letters() == []


@pytest.mark.slow
def test_a_task_that_fails_in_the_middle_is_run_again(
    chain: Chain, s3: S3Recorder, start: Callable[..., Command]
) -> None:
    """A worker dies after its delete, Spark tries again: one marker, one outcome; what came since stays."""
    s3.create_bucket("flat", {"again": b"first"})
    intents = [promised(chain, "plain"), unchanged(chain, "again", etag_of(b"first"), bucket="flat")]
    chain.emit(*intents)
    late = Reply(drop=True, delay_s=8, act_first=True)
    s3.script(on_deletes(lambda r: late))
    command = start("--once", SEXTON_S3_ENDPOINT_URL=s3.url, SEXTON_REAPER_CORES="2,3")
    command.until(lambda: "plain" not in s3.objects("bucket") and not s3.objects("flat"))
    s3.script(None)
    s3.buckets.fill("flat", {"again": b"second"})

    workers = [
        pid
        for pid, line in family(command.process.pid).items()
        if "-m sexton.streaming_jobs.worker_daemon" in line
    ]
    assert len(workers) > 1  # the daemon, and what it has forked
    for pid in workers:
        os.kill(pid, signal.SIGKILL)

    assert command.wait() == 0, command.printed
    assert folded(chain, *intents) == [GONE, GONE]
    assert len(chain.outcomes()) == 2
    assert markers(s3, "bucket", ["plain"]) == {"plain": 1}
    assert s3.objects("flat") == {"again": b"second"}


def held(chain: Chain, s3: S3Recorder, *intents: events.DeletionIntent) -> None:
    """Put intents into the delay queue: their bucket is busy."""
    s3.script(lambda request: SLOW_DOWN)
    chain.emit(*intents)
    chain.reap(s3_endpoint_url=s3.url, reaper_patience_s=0.2, reaper_defer_delays_s=(3600.0,))
    s3.script(None)
    assert (len(chain.deferred()), chain.outcomes()) == (len(intents), [])


@pytest.mark.slow
def test_the_waiting_room_ended_between_sink_and_commit(
    chain: Chain, s3: S3Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came back and was not committed is verified before it is sent again: one marker on each key."""
    intents = [promised(chain, "p1", "p2"), promised(chain, "plain")]
    held(chain, s3, *intents)
    with monkeypatch.context() as patch:

        def crash(self: Checkpoint, text: str) -> None:
            raise SextonError("crash")

        patch.setattr(Checkpoint, "commit_waiting", crash)
        with pytest.raises(SextonError, match="crash"):
            chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=(0.001,))
    assert folded(chain, *intents) == [GONE, GONE]

    chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=(0.001,))

    assert folded(chain, *intents) == [GONE, GONE]
    assert markers(s3, "bucket", ["p1", "p2", "plain"]) == {"p1": 1, "p2": 1, "plain": 1}
    assert chain.dead_letters() == []


@pytest.mark.slow
def test_the_waiting_room_ended_before_its_receipts(chain: Chain, s3: S3Recorder) -> None:
    """J-5: deleted when it came back, ended before a receipt, written again: it stays, the fold is true."""
    intent = unchanged(chain, "guarded", etag_of(b"x"))
    held(chain, s3, intent)
    end_before_receipts(chain, s3_endpoint_url=s3.url, reaper_defer_delays_s=(0.001,))
    s3.buckets.fill("bucket", {"guarded": b"second"})

    chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=(0.001,))

    assert s3.objects("bucket")["guarded"] == b"second"
    assert folded(chain, intent) == [GONE]


def test_a_waiting_room_that_was_created_again_is_refused(chain: Chain, s3: S3Recorder) -> None:
    """F-8: what waited in the old topic is lost: the reaper says so, though nothing of it was ever due."""
    held(chain, s3, promised(chain, "plain"))
    recreate(chain.settings, records.DEFERRED)

    with pytest.raises(CheckpointRefused, match="re-created"):
        chain.reap(s3_endpoint_url=s3.url)


def test_a_waiting_room_that_retention_has_cut_is_refused(chain: Chain, s3: S3Recorder) -> None:
    """F-9: what was removed while it waited is named, though nothing of it was ever due."""
    held(chain, s3, promised(chain, "p1"), promised(chain, "p2"))
    cut(chain, records.DEFERRED, 1)

    with pytest.raises(CheckpointRefused, match=r"deferred.*partition 0, offsets 0 to 0"):
        chain.reap(s3_endpoint_url=s3.url)


@pytest.mark.slow
def test_x_13_a_bucket_that_is_bad_for_one_of_two_tasks(chain: Chain, s3: S3Recorder) -> None:
    """X-13: what one task could not do waits and is done later; what the other one did is reported at
    once.
    """
    first, second = promised(chain, "p1"), promised(chain, "p2")
    chain.emit(first, partition=0)
    chain.emit(second, partition=1)
    s3.script(lambda r: SLOW_DOWN if r.is_delete_objects and "p1" in r.keys else None)
    chain.reap(s3_endpoint_url=s3.url, reaper_patience_s=0.5, reaper_defer_delays_s=(3600.0,))
    assert folded(chain, first, second) == ["pending", GONE]
    s3.script(None)

    chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=(0.001,))

    assert folded(chain, first, second) == [GONE, GONE]
    assert markers(s3, "bucket", ["p1", "p2"]) == {"p1": 1, "p2": 1}


def test_what_is_gone_in_part_comes_back_without_a_second_marker(chain: Chain, s3: S3Recorder) -> None:
    """X-11: an intent that waits for its second phase repeats its first one only after verification."""
    s3.script(lambda r: SLOW_DOWN if r.is_delete_objects and "p3" in r.keys else None)
    intent = phased(chain)
    chain.emit(intent)
    chain.reap(s3_endpoint_url=s3.url, reaper_patience_s=0.3, reaper_defer_delays_s=(3600.0,))
    assert [d.effect_unknown for d in chain.deferred()] == [True]
    s3.script(None)

    chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=(0.001,))

    assert folded(chain, intent) == [GONE]
    assert markers(s3, "bucket", NAMES[:4]) == dict.fromkeys(NAMES[:4], 1)


def test_rows_above_a_megabyte_are_written(chain: Chain, s3: S3Recorder) -> None:
    """I2: an intent as large as the topic takes, half of it denied, is one outcome and one dead letter."""
    names = [f"{'k' * 900}{i:05d}" for i in range(1000)]
    s3.create_bucket("large", dict.fromkeys(names, b""))
    denied = dict.fromkeys(names[::2], "AccessDenied")
    s3.script(lambda r: partly(s3, r, denied) if r.is_delete_objects and r.bucket == "large" else None)
    intent = promised(chain, *names, bucket="large")
    chain.emit(intent, promised(chain, "plain"))

    chain.reap(s3_endpoint_url=s3.url)

    (dead,) = chain.dead_letters()
    assert sorted(dead.keys) == names[::2]
    assert len(dead.raw_value or b"") + sum(map(len, dead.keys)) > 1_048_576
    assert folded(chain, intent) == ["dead-lettered"]
    assert sorted(s3.objects("large")) == names[::2]
