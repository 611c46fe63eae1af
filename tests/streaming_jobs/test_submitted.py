"""The reaper under spark-submit, whose JVM is the parent: stopped by whichever process is told, and quiet."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.chain import Chain
from tests.support.commands import Command
from tests.support.families import family
from tests.support.intents import promised
from tests.support.replies import on_deletes
from tests.support.s3_recorder import Recorded, S3Recorder
from tests.support.spark_cluster import SHORT_LIVED, submit
from tests.support.waits import until

from sexton.deploy.local import Installation

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.faults]


def to_the_jvm(command: Command, number: signal.Signals) -> None:
    """Signal the process that was started, as systemd's KillMode=mixed and Kubernetes do."""
    command.process.send_signal(number)


def to_the_group(command: Command, number: signal.Signals) -> None:
    """Signal a process group, as a terminal and `timeout` do."""
    os.killpg(command.process.pid, number)


@pytest.fixture
def start(chain: Chain, installation: Installation, tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Start reapers by spark-submit that do not outlive the test."""
    started: list[Command] = []

    class Submitted(Command):
        """The same, started by spark-submit."""

    def run(master: str, *options: str, **env: str) -> Command:
        Submitted.program = submit(master, chain.settings, *options)
        started.append(Submitted(installation, PYSPARK_PYTHON=sys.executable, **SHORT_LIVED, **env))
        return started[-1]

    yield run
    for command in started:
        command.end()


@pytest.mark.parametrize(
    ("send", "number"),
    [
        (to_the_jvm, signal.SIGTERM),
        (to_the_group, signal.SIGTERM),
    ],
    ids=["JVM", "group"],
)
def test_x_14_a_stop_under_spark_submit_lets_the_micro_batch_settle(
    chain: Chain,
    s3: S3Recorder,
    start: Callable[..., Command],
    send: Callable[[Command, signal.Signals], None],
    number: signal.Signals,
) -> None:
    """X-14: told to the JVM or to all: the micro-batch is finished, exit code 0, nothing left, no noise."""
    s3.create_bucket("bucket", {"a": b""})
    reached, reported = threading.Event(), threading.Event()

    def wait(request: Recorded) -> None:
        reached.set()
        reported.wait(20)
        time.sleep(1)  # it has time to end too early

    s3.script(on_deletes(wait))
    (asked,) = chain.emit(promised(chain, "a"))
    command = start("local[2]", SEXTON_S3_ENDPOINT_URL=s3.url)
    command.until(reached.is_set)
    seen = family(command.process.pid)

    send(command, number)
    reported.set()

    assert command.wait() == 0, command.printed
    assert command.events("stopped")
    assert not [line for line in command.lines if " INFO " in line or "Traceback" in line or "\tat " in line]
    until(lambda: not [pid for pid in seen if Path(f"/proc/{pid}").exists()], 20)
    assert chain.words() == {asked: "deleted"}
    assert chain.reap(s3_endpoint_url=s3.url).records == 0
    assert len(s3.deletes()) == 1
