"""The reaper on a cluster of workers with addresses of their own; Spark's speculation is refused."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from tests.support.chain import Chain
from tests.support.crashes import markers
from tests.support.intents import GONE, folded, promised
from tests.support.s3_recorder import Recorded, S3Recorder

import sexton.streaming_jobs.submit
from sexton.deploy.local import Installation
from sexton.streaming_jobs.spark import connector_jars

pytestmark = [pytest.mark.real, pytest.mark.spark]

BIN = Path(pyspark.__file__).with_name("bin")
NAMES = ["k0", "k1", "k2", "slow"]
# Six machines of Java start here for a few seconds each.
SHORT_LIVED = {"JDK_JAVA_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}


@pytest.fixture
def s3(s3: S3Recorder) -> S3Recorder:
    """The recorder with a versioned bucket."""
    s3.create_bucket("bucket", dict.fromkeys(NAMES, b"x"), versioning="Enabled")
    return s3


@pytest.fixture
def master(chain: Chain, installation: Installation, tmp_path: Path) -> Iterator[str]:
    """The URL of a Spark master with two workers on two loopback addresses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    # The workers hand their environment on to executors: they are where the store's credentials are needed.
    env = {
        **installation.environment,
        **SHORT_LIVED,
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    java = "org.apache.spark.deploy"
    commands = [
        [f"{java}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"],
        *[
            [f"{java}.worker.Worker", "--host", host, "--webui-port", "0", "-c", "2", "-m", "1g", url]
            for host in ("127.0.0.2", "127.0.0.3")
        ],
    ]
    log = (tmp_path / "spark.log").open("w")
    started = [
        subprocess.Popen([BIN / "spark-class", *command], env=env, stdout=log, stderr=log)
        for command in commands
    ]
    try:
        deadline = time.monotonic() + 60
        while (tmp_path / "spark.log").read_text().count("Successfully registered with master") < 2:
            assert time.monotonic() < deadline, (tmp_path / "spark.log").read_text()
            time.sleep(0.2)
        yield url
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(20)
        log.close()


@pytest.mark.faults
def test_tasks_on_two_workers_delete_once(
    chain: Chain, installation: Installation, s3: S3Recorder, master: str
) -> None:
    """On a cluster, one task slow: one delete, marker and outcome for each intent."""
    intents = [promised(chain, name) for name in NAMES]
    for partition, intent in enumerate(intents):
        chain.emit(intent, partition=partition)

    def slowly(request: Recorded) -> None:
        if request.is_delete_objects and "slow" in request.keys:
            time.sleep(5)

    s3.script(slowly)
    given = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.jars": ",".join(map(str, connector_jars(chain.settings.cache_dir))),
    }
    options = [part for name, value in given.items() for part in ("--conf", f"{name}={value}")]
    env = {**installation.environment, "SEXTON_S3_ENDPOINT_URL": s3.url, "PYSPARK_PYTHON": sys.executable}

    done = subprocess.run(
        [
            BIN / "spark-submit",
            "--master",
            master,
            *options,
            str(sexton.streaming_jobs.submit.__file__),
            "--once",
        ],
        env={**os.environ, **env, **SHORT_LIVED},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    assert folded(chain, *intents) == [GONE] * 4
    assert len(chain.outcomes()) == 4
    assert sorted(key for request in s3.deletes() for key in request.keys) == NAMES
    assert markers(s3, "bucket", NAMES) == dict.fromkeys(NAMES, 1)


def test_speculation_is_refused_wherever_it_was_set(
    chain: Chain, installation: Installation, s3: S3Recorder, tmp_path: Path
) -> None:
    """By spark-submit's option or by spark-defaults.conf: exit 2 that says what to set, and no request."""
    chain.emit(promised(chain, NAMES[0]))
    (tmp_path / "spark-defaults.conf").write_text("spark.speculation  true\n")
    env = {**installation.environment, "SEXTON_S3_ENDPOINT_URL": s3.url, "PYSPARK_PYTHON": sys.executable}
    submit = [str(BIN / "spark-submit"), "--master", "local[2]", "--conf", "spark.speculation=true"]
    submit += ["--jars", ",".join(map(str, connector_jars(chain.settings.cache_dir)))]
    ways = [
        ([*submit, str(sexton.streaming_jobs.submit.__file__), "--once"], env),
        (
            [sys.executable, "-m", "sexton.deploy.main", "reaper", "run", "--once"],
            {**env, "SPARK_CONF_DIR": str(tmp_path)},
        ),
    ]

    # Under spark-submit the JVM prints what Python says, all of it on its stdout.
    given: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    started = [subprocess.Popen(command, env={**env, **SHORT_LIVED}, **given) for command, env in ways]
    ended = [(process, process.communicate(timeout=200)[0]) for process in started]

    for process, reported in ended:
        assert process.returncode == 2, reported[-4000:]
        assert "error: spark.speculation is on: a task that runs twice deletes twice\n" in reported
        assert "hint: set spark.speculation=false" in reported
    assert s3.requests == []
