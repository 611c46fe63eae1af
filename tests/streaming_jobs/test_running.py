"""The reaper as its users run it: a command that is started, stopped, killed and held."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.chain import Chain
from tests.support.commands import Command
from tests.support.families import family, jvm_of, send_all
from tests.support.intents import promised
from tests.support.replies import on_deletes
from tests.support.running import running
from tests.support.s3_recorder import Recorded, Reply, S3Recorder
from tests.support.waits import until

from sexton.deploy.local import Installation
from sexton.schemas import records
from sexton.schemas.errors import SextonError
from sexton.storage import ObjectStore
from sexton.streaming_jobs.reaper.faults import QueryFailed
from sexton.streaming_jobs.reaper.preflight import TopicsUnsafe

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.faults]


@pytest.fixture
def s3(s3: S3Recorder) -> S3Recorder:
    """The recorder with a bucket of two objects."""
    s3.create_bucket("bucket", {"a": b"", "b": b""})
    return s3


def slowly(s3: S3Recorder) -> tuple[threading.Event, threading.Event]:
    """Let deletes take a while: they set the first event, and wait for the second one."""
    reached, reported = threading.Event(), threading.Event()

    def wait(request: Recorded) -> None:
        reached.set()
        reported.wait(20)
        time.sleep(1)  # it has time to end too early

    s3.script(on_deletes(wait))
    return reached, reported


def quiet(command: Command) -> bool:
    """Whether it has printed no trace, neither Java's nor Python's."""
    return not [line for line in command.lines if "\tat " in line or "Traceback" in line or "error" in line]


def test_command_works_off_what_is_there(
    chain: Chain, store: ObjectStore, start: Callable[..., Command]
) -> None:
    """`sexton reaper run --once` exits with 0 and says what it did; one core has one task for all of it."""
    store.put(chain.bucket, "a", b"x")
    store.put(chain.bucket, "b", b"x")
    with chain.issuer() as issuer:
        generation = issuer.attach("n", "t").generation
    asked = chain.emit(chain.intent("t", generation, ["a"]), partition=0)
    asked += chain.emit(chain.intent("t", generation, ["b"]), partition=1)

    command = start("--once", SEXTON_REAPER_CORES="1")

    assert command.wait() == 0, command.printed
    (line,) = command.events("micro_batch")
    assert (line["records"], line["keys"], line["intents"], line["backlog"]) == (2, 2, {"deleted": 2}, 0)
    assert (line["subjects"], line["issuer_calls"]) == (2, 1)
    assert chain.words() == dict.fromkeys(asked, "deleted")
    assert not list(store.list_keys(chain.bucket, ""))


def test_x_14_sigterm_ends_it_between_micro_batches(
    chain: Chain, s3: S3Recorder, start: Callable[..., Command]
) -> None:
    """X-14: a stop while the store answers slowly lets the micro-batch settle; exit code 0."""
    reached, reported = slowly(s3)
    (asked,) = chain.emit(promised(chain, "a"))
    command = start(SEXTON_S3_ENDPOINT_URL=s3.url)
    command.until(reached.is_set)

    command.process.send_signal(signal.SIGTERM)
    reported.set()

    assert command.wait(20) == 0, command.printed
    assert chain.words() == {asked: "deleted"}
    assert chain.reap(s3_endpoint_url=s3.url).records == 0
    assert len(s3.deletes()) == 1


def test_x_14_the_grace_limit_abandons_the_running_micro_batch(
    chain: Chain, s3: S3Recorder, start: Callable[..., Command]
) -> None:
    """X-14: at the grace limit it is out, nothing of the micro-batch is committed, a restart converges."""
    s3.script(lambda request: Reply(delay_s=20) if request.is_delete_objects else None)
    (asked,) = chain.emit(promised(chain, "a"))
    command = start(SEXTON_S3_ENDPOINT_URL=s3.url, SEXTON_REAPER_GRACE_S="1")
    command.until(s3.deletes)

    stopped = time.monotonic()
    command.process.send_signal(signal.SIGTERM)

    assert command.wait(30) == 75
    assert time.monotonic() - stopped < 18
    assert chain.outcomes() == []
    s3.script(None)
    chain.reap(s3_endpoint_url=s3.url)
    assert chain.words() == {asked: "deleted"}


def to_the_group(command: Command, number: signal.Signals) -> None:
    """Signal a process group, as a terminal and `timeout` do."""
    os.killpg(command.process.pid, number)


def to_the_jvm(command: Command, number: signal.Signals) -> None:
    """Signal the JVM alone."""
    os.kill(jvm_of(command), number)


@pytest.mark.parametrize(
    ("send", "number"),
    [(to_the_group, signal.SIGINT), (send_all, signal.SIGTERM), (to_the_jvm, signal.SIGTERM)],
    ids=["Ctrl-C", "control group", "JVM"],
)
def test_a_stop_that_is_told_to_others_too_lets_the_micro_batch_settle(
    chain: Chain,
    s3: S3Recorder,
    start: Callable[..., Command],
    send: Callable[[Command, signal.Signals], None],
    number: signal.Signals,
) -> None:
    """X-14: only the driver acts on it: the micro-batch is finished, code 0, no trace, nothing left.

    The JVM hands on what it is told.
    """
    reached, reported = slowly(s3)
    (asked,) = chain.emit(promised(chain, "a"))
    command = start(SEXTON_S3_ENDPOINT_URL=s3.url)
    command.until(reached.is_set)
    seen = family(command.process.pid)

    send(command, number)
    reported.set()

    assert command.wait(20) == 0, command.printed
    assert quiet(command)
    assert len(seen) >= 4, seen  # driver, JVM, parent of the workers, worker
    until(lambda: not [pid for pid in seen if Path(f"/proc/{pid}").exists()], 20)
    assert chain.words() == {asked: "deleted"}
    assert chain.reap(s3_endpoint_url=s3.url).records == 0


def test_sigterm_to_the_process_group_while_idle(
    chain: Chain, s3: S3Recorder, start: Callable[..., Command]
) -> None:
    """X-14: with workers that wait for the next micro-batch it ends soon: code 0, no trace, nothing left."""
    chain.emit(promised(chain, "a"))
    command = start(SEXTON_S3_ENDPOINT_URL=s3.url)
    command.until(lambda: command.events("micro_batch"))
    time.sleep(1)  # until it is idle
    seen = family(command.process.pid)

    to_the_group(command, signal.SIGTERM)

    assert command.wait(20) == 0, command.printed
    assert quiet(command)
    until(lambda: not [pid for pid in seen if Path(f"/proc/{pid}").exists()], 20)


def test_x_14_nothing_is_left_of_a_driver_that_was_killed(
    chain: Chain, s3: S3Recorder, start: Callable[..., Command]
) -> None:
    """X-14: JVM and workers, which take no notice of SIGTERM, end with the driver, whatever ends it."""
    chain.emit(promised(chain, "a"))
    command = start(SEXTON_S3_ENDPOINT_URL=s3.url)
    command.until(lambda: command.events("micro_batch"))
    seen = family(command.process.pid)

    command.process.kill()

    until(
        lambda: not [pid for pid in seen if pid != command.process.pid and Path(f"/proc/{pid}").exists()], 20
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_spark_starts_is_a_stop(start: Callable[..., Command], number: signal.Signals) -> None:
    """Told to the whole process group, as a terminal and `timeout` do: code 0, no trace, no JVM is left."""
    command = start()
    seen: dict[int, str] = {}

    def jvm_is_there() -> bool:
        seen.update(family(command.process.pid))
        return any("org.apache.spark.deploy.SparkSubmit" in line for line in seen.values())

    command.until(jvm_is_there)
    os.killpg(command.process.pid, number)

    assert command.wait(60) == 0, command.printed
    assert quiet(command)
    until(lambda: not [pid for pid in seen if Path(f"/proc/{pid}").exists()], 20)


def test_j_3_without_issuer_the_micro_batch_is_held(
    chain: Chain, installation: Installation, store: ObjectStore, start: Callable[..., Command]
) -> None:
    """J-3: nothing is deleted or dead-lettered while the issuer is away; it drains when it is back.

    Metrics are served as long as it runs, and when there is nothing more to do SIGTERM ends it soon.
    """
    store.put(chain.bucket, "a", b"x")
    with chain.issuer() as issuer:
        generation = issuer.attach("n", "t").generation
    installation.kill_issuer()
    (asked,) = chain.emit(chain.intent("t", generation, ["a"]))
    command = start("--metrics-port", "0")
    command.until(lambda: command.events("held"))

    assert list(store.list_keys(chain.bucket, "")) == ["a"]
    assert (chain.outcomes(), chain.dead_letters(), chain.deferred()) == ([], [], [])

    installation.start_issuer()
    command.until(lambda: command.events("micro_batch"))
    assert chain.words() == {asked: "deleted"}
    port = command.events("ready")[0]["metrics_port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
        names = set(re.findall(r"^(sexton_\w+)", reply.read().decode(), re.MULTILINE))
    assert {"sexton_decode_records_total", "sexton_execute_keys_total"} <= names
    command.process.send_signal(signal.SIGTERM)
    assert command.wait(10) == 0, command.printed


def test_j_3_a_stop_does_not_wait_for_the_issuer(chain: Chain, installation: Installation) -> None:
    """J-3: while a micro-batch is held, a stop is prompt and commits nothing."""
    installation.kill_issuer()
    chain.emit(chain.intent("t", 1, ["a"]))
    with running(chain) as reaper:
        reaper.until(lambda: reaper.events("held"))
        assert reaper.events("held")[0]["topic"] == records.INTENTS
        assert reaper.end() < 15

    installation.start_issuer()
    assert chain.reap().records == 1


def test_x_15_receipts_that_cannot_be_written_stop_the_job(chain: Chain, s3: S3Recorder) -> None:
    """X-15: outcomes are refused: it ends with 1, offsets stay, and the replay completes them."""
    (asked,) = chain.emit(promised(chain, "a"))

    def shrink(request: Recorded) -> None:
        if request.is_delete_objects:
            chain.configure(records.OUTCOMES, "max.message.bytes", "10")

    s3.script(shrink)
    with pytest.raises(QueryFailed, match=r"the query ended: .*RecordTooLarge") as ended:
        chain.reap(s3_endpoint_url=s3.url)

    assert ended.value.exit_code == 1
    assert (list(s3.objects("bucket")), chain.outcomes()) == (["b"], [])
    commits = Path(str(chain.settings.checkpoint)) / "commits"
    assert [each.name for each in commits.iterdir() if each.name.isdigit()] == []
    with pytest.raises(TopicsUnsafe, match=r"max\.message\.bytes is 10"):
        chain.reap(s3_endpoint_url=s3.url)
    s3.script(None)
    chain.configure(records.OUTCOMES, "max.message.bytes", str(8 * 1024 * 1024))
    assert chain.reap(s3_endpoint_url=s3.url).records == 1
    assert chain.words() == {asked: "deleted"}  # as this store says of what is gone
    assert (chain.dead_letters(), chain.deferred()) == ([], [])


def test_a_micro_batch_that_the_issuer_has_not_seen_is_held(chain: Chain, s3: S3Recorder) -> None:
    """I4: a record at or above the barrier's end offset is never judged."""
    from sexton.streaming_jobs.reaper.batch import MicroBatches

    chain.emit(promised(chain, "a"))
    real = MicroBatches._barrier

    def short(self: MicroBatches) -> Any:
        answer = real(self)
        return type(answer)(answer.log_offset, answer.topic_id, tuple(0 for _ in answer.ends))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MicroBatches, "_barrier", short)
        patch.setattr("sexton.streaming_jobs.reaper.batch._ONCE_HOLD_S", 0.0)
        with pytest.raises(SextonError, match="does not lie below its barrier"):
            chain.reap(s3_endpoint_url=s3.url)

    assert s3.deletes() == []
