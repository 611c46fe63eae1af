"""The reaper under spark-submit, whose JVM is the parent: stopped by whichever process is told, and quiet."""

from __future__ import annotations

import os
import signal
import subprocess
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
from tests.support.spark_cluster import BIN, SHORT_LIVED, submit
from tests.support.waits import until

from sexton.deploy.local import Installation
from sexton.streaming_jobs.reaper.stop import StopFlag

# A driver without a session: prints by every way, and ends once it was told by so many.
DRIVER = """
import os, sys, time
from sexton.streaming_jobs.reaper.stop import StopFlag
from sexton.streaming_jobs.submitted import close_stderr, gateway, quiet_log, take_signals, take_stderr

take_stderr(gateway())
stop = StopFlag(200, close_stderr)
stop.install()
take_signals(gateway(), stop.told_by_jvm)
print("data")
os.write(2, b"written past Python\\n")
print("quiet", quiet_log(gateway()), file=sys.stderr)
gateway().jvm.org.slf4j.LoggerFactory.getLogger("x").warn("noise")
gateway().jvm.org.slf4j.LoggerFactory.getLogger("x").error("a fault")
print("ready", file=sys.stderr, flush=True)
while len(stop._told) < int(sys.argv[1]):
    time.sleep(0.1)
print("stopped", file=sys.stderr)
if sys.argv[2:]:
    raise ValueError("nobody catches this")
"""


def to_the_jvm(process: subprocess.Popen[str]) -> None:
    """Signal the process that was started, as systemd's KillMode=mixed and Kubernetes do."""
    process.send_signal(signal.SIGTERM)


def to_the_group(process: subprocess.Popen[str]) -> None:
    """Signal a process group, as `timeout` does, and systemd a control group."""
    os.killpg(process.pid, signal.SIGTERM)


@pytest.mark.parametrize(
    ("send", "arguments", "code"),
    [(to_the_jvm, ["1"], 0), (to_the_group, ["2", "fail"], 1)],
    ids=["JVM", "group"],
)
@pytest.mark.slow
def test_streams_and_signals_of_a_driver_below_spark_submit(
    send: Callable[[subprocess.Popen[str]], None], arguments: list[str], code: int, tmp_path: Path
) -> None:
    """Stdout and stderr are kept apart, Spark's log tells errors alone, and the JVM hands on a signal."""
    (tmp_path / "driver.py").write_text(DRIVER)
    out, err = tmp_path / "out", tmp_path / "err"
    with out.open("w") as stdout, err.open("w") as stderr:
        process = subprocess.Popen(
            [BIN / "spark-submit", "--master", "local[1]", tmp_path / "driver.py", *arguments],
            env={**os.environ, **SHORT_LIVED, "PYSPARK_PYTHON": sys.executable},
            stdout=stdout,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
    try:
        until(lambda: "ready\n" in err.read_text() or process.poll() is not None, 200)
        send(process)
        assert process.wait(150) == code, err.read_text()
    finally:
        process.kill()
        process.wait()

    assert out.read_text() == "data\n"
    lines = err.read_text().splitlines()
    assert {"written past Python", "quiet True", "ready", "stopped"} <= set(lines)
    assert any(line.endswith("spark ERROR x: a fault") for line in lines)
    assert not any("noise" in line for line in lines)
    assert ("ValueError: nobody catches this" in lines) is bool(code)


# A JVM that Python starts, as `sexton reaper run` does, without a session.
PARENT = """
import os, signal, threading
from sexton.streaming_jobs.submitted import gateway, take_signals

told = threading.Event()
take_signals(gateway(), told.set)
os.kill(gateway().proc.pid, signal.SIGTERM)
assert told.wait(150)
assert gateway().proc.poll() is None
"""


@pytest.mark.slow
def test_a_jvm_below_the_driver_hands_on_a_signal_and_continues() -> None:
    """Told alone, as by an operator who takes it for the reaper."""
    done = subprocess.run(
        [sys.executable, "-c", PARENT],
        env={**os.environ, **SHORT_LIVED},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_one_signal_to_all_processes_is_one_request_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told by the JVM and to this process it stops; told twice by the same it gives up."""
    ended: list[int] = []
    monkeypatch.setattr("sexton.streaming_jobs.reaper.stop.os._exit", ended.append)
    for second, gives_up in (("own", []), ("jvm", [75])):
        ended.clear()
        stop = StopFlag(3600, lambda: None)
        stop.told_by_jvm()
        assert stop.is_set
        if second == "own":
            stop._on_signal(signal.SIGTERM, None)
        else:
            stop.told_by_jvm()
        assert ended == gives_up


@pytest.fixture
def start(chain: Chain, installation: Installation) -> Iterator[Callable[..., Command]]:
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


@pytest.mark.real
@pytest.mark.spark
@pytest.mark.faults
def test_x_14_a_stop_of_all_under_spark_submit_lets_the_micro_batch_settle(
    chain: Chain, s3: S3Recorder, start: Callable[..., Command]
) -> None:
    """X-14: JVM, driver and workers are told: the micro-batch is finished, code 0, nothing left, no noise.

    The next reaper starts at once.
    """
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

    os.killpg(command.process.pid, signal.SIGTERM)
    reported.set()

    assert command.wait() == 0, command.printed
    assert command.events("stopped")
    assert not [line for line in command.lines if " INFO " in line or "Traceback" in line or "\tat " in line]
    until(lambda: not [pid for pid in seen if Path(f"/proc/{pid}").exists()], 20)
    assert chain.words() == {asked: "deleted"}
    assert chain.reap(s3_endpoint_url=s3.url).records == 0
    assert len(s3.deletes()) == 1
