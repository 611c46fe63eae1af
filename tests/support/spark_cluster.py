"""A standalone Spark cluster of the pip-installed pyspark: a master, and workers on loopback addresses.

A worker with its executors stands for a machine: it can be killed as one, and another one be started.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

import sexton.streaming_jobs.submit
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.spark import connector_jars

__all__ = ["BIN", "SHORT_LIVED", "SparkCluster", "cluster", "spark_cluster", "submit", "submitted"]

BIN = Path(pyspark.__file__).with_name("bin")
# Each machine of Java lives here for a few seconds.
SHORT_LIVED = {"JDK_JAVA_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
_JAVA = "org.apache.spark.deploy"


@dataclass
class SparkCluster:
    """A master and its workers, of so many cores each; executors have this environment and nothing else."""

    folder: Path
    environment: Mapping[str, str]
    url: str
    wanted: int
    cores: int = 2
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    others: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start one of Spark's daemons; its log is the cluster's."""
        own = {"SPARK_WORKER_DIR": str(self.folder / "work"), "SPARK_DAEMON_MEMORY": "256m"}
        with self.log.open("a") as out:
            return subprocess.Popen(
                [BIN / "spark-class", f"{_JAVA}.{main}", *arguments],
                env={**self.environment, **SHORT_LIVED, **own},
                stdout=out,
                stderr=out,
            )

    def start_worker(self) -> None:
        """Start one more worker, on a loopback address of its own."""
        host = f"127.0.0.{2 + len(self.workers)}"
        size = ("-c", str(self.cores), "-m", "1g")
        self.workers.append(self.start("worker.Worker", *size, "--webui-port", "0", "--host", host, self.url))

    def await_workers(self) -> None:
        """Return once every worker that was ever started has been taken by the master."""
        deadline = time.monotonic() + 200
        while self.log.read_text().count("Successfully registered with master") < len(self.workers):
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.2)

    @property
    def lost(self) -> bool:
        """Whether a worker was killed, and none was started since."""
        return sum(worker.poll() is None for worker in self.workers) < self.wanted

    def kill(self, number: int) -> None:
        """End a worker and all that it has started with -9, as a machine does that loses power."""
        worker = psutil.Process(self.workers[number].pid)
        lost = [worker, *worker.children(recursive=True)]
        for process in lost:  # first the parents: who lives would start others in their place
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.workers[number].wait(20)

    def end(self) -> None:
        """End all of it."""
        started = [*self.workers, *self.others]
        for process in started:
            process.terminate()
        for process in started:
            process.wait(60)

    @property
    def log(self) -> Path:
        """What the daemons say."""
        return self.folder / "spark.log"


@contextmanager
def spark_cluster(
    folder: Path, environment: Mapping[str, str], workers: int = 2, cores: int = 2
) -> Iterator[SparkCluster]:
    """Run a master and workers in this environment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    made = SparkCluster(folder, environment, f"spark://127.0.0.1:{port}", workers, cores)
    place = ("--port", str(port), "--webui-port", "0", "--host", "127.0.0.1")
    made.others.append(made.start("master.Master", *place))
    try:
        for _ in range(workers):
            made.start_worker()
        made.await_workers()
        yield made
    finally:
        made.end()


@contextmanager
def cluster(folder: Path, environment: Mapping[str, str], workers: int = 2, cores: int = 2) -> Iterator[str]:
    """Run a master and workers that nothing happens to; yield its URL."""
    with spark_cluster(folder, environment, workers, cores) as made:
        yield made.url


def submit(master: str, settings: Settings, *options: str) -> list[str]:
    """The command that runs the reaper's script by spark-submit with these options; arguments follow."""
    given: Sequence[str] = (
        "spark.executor.memory=512m",
        "spark.driver.host=127.0.0.1",
        f"spark.jars={','.join(map(str, connector_jars(settings.cache_dir)))}",
        *options,
    )
    options = tuple(part for each in given for part in ("--conf", each))
    script = str(sexton.streaming_jobs.submit.__file__)
    return [str(BIN / "spark-submit"), "--master", master, *options, script]


def submitted(
    master: str, settings: Settings, environment: Mapping[str, str], *options: str
) -> subprocess.CompletedProcess[str]:
    """Run the reaper's script to its end with `--once`, by spark-submit with these options."""
    return subprocess.run(
        [*submit(master, settings, *options), "--once"],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **environment, **SHORT_LIVED},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
