"""A standalone Spark cluster of the pip-installed pyspark: a master, and workers on loopback addresses."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

import sexton.streaming_jobs.submit
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.spark import connector_jars

__all__ = ["BIN", "SHORT_LIVED", "cluster", "submit", "submitted"]

BIN = Path(pyspark.__file__).with_name("bin")
# Each machine of Java lives here for a few seconds.
SHORT_LIVED = {"JDK_JAVA_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
_JAVA = "org.apache.spark.deploy"


@contextmanager
def cluster(folder: Path, environment: Mapping[str, str], workers: int = 2, cores: int = 2) -> Iterator[str]:
    """Run a master and workers of so many cores each in this environment, which executors have; yield its
    URL.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    own = {"SPARK_WORKER_DIR": str(folder / "work"), "SPARK_DAEMON_MEMORY": "256m"}
    place = ("--webui-port", "0", "--host")
    commands = [[f"{_JAVA}.master.Master", "--port", str(port), *place, "127.0.0.1"]]
    for number in range(workers):
        size = ("-c", str(cores), "-m", "1g")
        commands.append([f"{_JAVA}.worker.Worker", *size, *place, f"127.0.0.{2 + number}", url])
    log = folder / "spark.log"
    with log.open("w") as out:
        started = [
            subprocess.Popen(
                [BIN / "spark-class", *command],
                env={**environment, **SHORT_LIVED, **own},
                stdout=out,
                stderr=out,
            )
            for command in commands
        ]
        try:
            deadline = time.monotonic() + 200
            while log.read_text().count("Successfully registered with master") < workers:
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
            yield url
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(20)


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
