"""The reaper on a Spark cluster whose workers have Python and the store's credentials, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from tests.support.chain import Chain, keys
from tests.support.s3_api import Reply, error_reply
from tests.support.s3_recorder import Recorded, S3Recorder
from tests.support.spark_cluster import BIN, SHORT_LIVED, SparkCluster, spark_cluster

from sexton.deploy import java
from sexton.deploy.local import Installation, LocalStack
from sexton.deploy.pack_commands import submit_command
from sexton.streaming_jobs.budget.shared import key_of
from sexton.streaming_jobs.pack import Pack

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(600)]

INTENTS, EACH, PARTITIONS = 2400, 3, 4


@pytest.fixture(scope="module")
def workers(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A cluster of two workers: no PATH, no HOME, no Sexton."""
    own = {name: os.environ[name] for name in ("AWS_CA_BUNDLE", "AWS_EC2_METADATA_DISABLED")}
    own |= {name: value for name, value in stack.env.items() if name.startswith("AWS_")}
    own["JAVA_HOME"] = str(java.find(stack.settings.cache_dir.expanduser()).home)
    with spark_cluster(tmp_path_factory.mktemp("cluster"), own) as made:
        yield made


def fill(chain: Chain, s3: S3Recorder) -> dict[str, str]:
    """Ask for some thousand deletions, a third of them too late; return the outcome that each is owed."""
    names = keys("k", INTENTS * EACH)
    s3.create_bucket(chain.bucket, dict.fromkeys(names, b"x"))
    owed: dict[str, str] = {}
    with chain.issuer() as issuer:
        generation = issuer.attach("node", "t").generation
        for asked, outcome in ((INTENTS * 2 // 3, "deleted"), (INTENTS // 3, "stale")):
            begun = len(owed)
            intents = [
                chain.intent("t", generation, names[n * EACH : (n + 1) * EACH])
                for n in range(begun, begun + asked)
            ]
            for partition in range(PARTITIONS):
                chain.emit(*intents[partition::PARTITIONS], partition=partition)
            owed |= {intent.intent_id: outcome for intent in intents}
            issuer.attach("node", "t")  # what is asked for by the first generation from here on is stale
    return owed


def live(owed: dict[str, str]) -> set[str]:
    """The keys of intents that are stale."""
    names, ids = keys("k", INTENTS * EACH), list(owed)
    return {name for n, name in enumerate(names) if owed[ids[n // EACH]] == "stale"}


@dataclass
class Throttling:
    """A slow store that refuses this many requests at first."""

    left: int

    def __call__(self, request: Recorded) -> Reply | None:
        """Answer one request."""
        if request.is_delete_objects and not request.is_probe and self.left > 0:
            self.left -= 1
            return error_reply(503, "SlowDown", "Please reduce your request rate.")
        return slowly(request)


def slowly(request: Recorded) -> Reply | None:
    """A store that takes its time, so that something is under way when a process dies."""
    if request.is_delete_objects:
        time.sleep(0.2)
    return None


@dataclass
class Driver:
    """A reaper's driver as a process of its own, with all that it prints in one file."""

    process: subprocess.Popen[bytes]
    log: Path

    def until_deleted(self, s3: S3Recorder, share: float) -> None:
        """Return once about that share of what will be deleted is."""
        deadline = time.monotonic() + 250
        while sum(len(request.keys) for request in s3.deletes()) < INTENTS * EACH * 2 / 3 * share:
            assert self.process.poll() is None, self.tail
            assert time.monotonic() < deadline, self.tail
            time.sleep(0.05)

    def ends(self) -> None:
        """Return once it has ended, and well."""
        assert self.process.wait(250) == 0, self.tail

    def kill(self) -> None:
        """End it and its JVM with -9, as a machine does that loses power; its executors are elsewhere."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(20)

    @property
    def tail(self) -> str:
        """The end of what it has printed."""
        return self.log.read_text()[-4000:]


@contextmanager
def driver(
    command: Sequence[str | Path], environment: Mapping[str, str], home: Path, s3: S3Recorder
) -> Iterator[Driver]:
    """Start a driver in a folder of its own; nothing of it is left afterwards."""
    home.mkdir()
    env = {**environment, **SHORT_LIVED, "SEXTON_S3_ENDPOINT_URL": s3.url, "HOME": str(home)}
    env["SEXTON_REAPER_INTENTS_PER_TRIGGER"] = "600"
    env.pop("PYSPARK_PYTHON", None)  # that of this process' own session: workers have the pack's
    with (home / "log").open("w") as out:
        process = subprocess.Popen(command, env=env, cwd=home, stdout=out, stderr=out, start_new_session=True)
    try:
        yield Driver(process, home / "log")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)


def all_is_as_owed(s3: S3Recorder, chain: Chain, owed: dict[str, str]) -> None:
    """Every intent has the one outcome that it is owed, and of the keys those are left that have to live."""
    assert chain.words() == owed
    assert set(s3.objects(chain.bucket)) == live(owed)
    asked = {key for request in s3.deletes() for key in request.keys}
    assert asked & live(owed) == set()
    assert chain.dead_letters() == []


def test_d_1_a_worker_dies_in_the_middle_of_a_backlog(
    chain: Chain,
    installation: Installation,
    s3: S3Recorder,
    pack: Pack,
    workers: SparkCluster,
    tmp_path: Path,
) -> None:
    """D-1: by spark-submit, as the pack's command says; a worker goes with all its executors."""
    owed = fill(chain, s3)
    s3.script(slowly)
    command: list[str | Path] = [
        BIN / "spark-submit",
        "--master",
        workers.url,
        *submit_command(pack)[1:],
        "--once",
    ]
    with driver(command, installation.environment, tmp_path / "home", s3) as reaper:
        reaper.until_deleted(s3, 0.3)
        workers.kill(0)
        reaper.ends()

    all_is_as_owed(s3, chain, owed)


def test_d_2_the_driver_dies_and_is_started_elsewhere(
    chain: Chain,
    installation: Installation,
    s3: S3Recorder,
    pack: Pack,
    workers: SparkCluster,
    tmp_path: Path,
) -> None:
    """D-2: without spark-submit; meanwhile a second driver is refused, and the next one goes on.

    Both executors send for it, in one budget, which the store's refusals have made; no verdict changes.
    """
    if workers.lost:
        workers.start_worker()
        workers.await_workers()
    owed = fill(chain, s3)
    s3.script(Throttling(3))
    command = [sys.executable, "-m", "sexton.deploy.main", "reaper", "run", "--once"]
    command += ["--master", workers.url, "--pack", str(pack.folder)]
    with driver(command, installation.environment, tmp_path / "first", s3) as first:
        first.until_deleted(s3, 0.3)
        with driver(command, installation.environment, tmp_path / "second", s3) as second:
            assert second.process.wait(250) == 1, second.tail
            assert "another reaper runs on this checkpoint" in second.tail
        first.kill()
    with driver(command, installation.environment, tmp_path / "third", s3) as third:
        third.ends()

    all_is_as_owed(s3, chain, owed)
    verdicts: dict[str, set[tuple[str, str]]] = {}
    for outcome in chain.outcomes():
        verdicts.setdefault(outcome.intent_id, set()).add((outcome.verdict.result, outcome.verdict.reason))
    assert [found for found in verdicts.values() if len(found) > 1] == []
    budget = redis.Redis.from_url(installation.settings.redis_url.get_secret_value())
    try:
        assert budget.exists(key_of(chain.bucket)) == 1
    finally:
        budget.close()
    unpacked = {path.parent.name for path in (workers.folder / "work").glob("*/*/environment")}
    assert {"0", "1"} <= unpacked
