"""The reaper on a cluster of workers with addresses of their own; Spark's speculation is refused."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.chain import Chain
from tests.support.crashes import markers
from tests.support.intents import GONE, folded, promised
from tests.support.s3_recorder import Recorded, S3Recorder
from tests.support.spark_cluster import BIN, SHORT_LIVED, cluster, submitted

import sexton.streaming_jobs.submit
from sexton.deploy.local import Installation
from sexton.streaming_jobs.spark import connector_jars

pytestmark = [pytest.mark.real, pytest.mark.spark]

NAMES = ["k0", "k1", "k2", "slow"]


@pytest.fixture
def s3(s3: S3Recorder) -> S3Recorder:
    """The recorder with a versioned bucket."""
    s3.create_bucket("bucket", dict.fromkeys(NAMES, b"x"), versioning="Enabled")
    return s3


@pytest.fixture
def master(chain: Chain, installation: Installation, tmp_path: Path) -> Iterator[str]:
    """The URL of a Spark master with two workers, which hand the store's credentials on to executors."""
    with cluster(tmp_path, installation.environment) as url:
        yield url


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
    env = {**installation.environment, "SEXTON_S3_ENDPOINT_URL": s3.url}
    done = submitted(master, chain.settings, env)

    assert done.returncode == 0, done.stderr[-4000:]
    assert folded(chain, *intents) == [GONE] * 4
    assert len(chain.outcomes()) == 4
    assert sorted(key for request in s3.deletes() for key in request.keys) == NAMES
    assert markers(s3, "bucket", NAMES) == dict.fromkeys(NAMES, 1)


@pytest.mark.slow
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
