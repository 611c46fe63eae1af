"""What executors lack is told before the reaper is ready, with its cause."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.support.chain import Chain
from tests.support.s3_recorder import S3Recorder
from tests.support.spark_cluster import cluster, submitted

from sexton.deploy.local import Installation
from sexton.streaming_jobs.reaper.executors import cause_of, lacks

TRACEBACK = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 0.0 failed 4 times
Traceback (most recent call last):
  File "/opt/spark/python/pyspark/serializers.py", line 459, in loads
ModuleNotFoundError: No module named 'sexton'

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (TRACEBACK, "ModuleNotFoundError: No module named 'sexton'"),
        (
            'x\njava.io.IOException: Cannot run program "/no/python3": error=2, No such file or directory\ny',
            'Cannot run program "/no/python3": error=2, No such file or directory',
        ),
        ("something else\nat a.b.c", "something else"),
    ],
)
def test_of_a_worker_s_failure_the_cause_is_told(text: str, cause: str) -> None:
    """One line, and not the screen that it stands in."""
    assert cause_of(text) == cause


@pytest.mark.real
def test_what_a_process_lacks_of_what_tasks_need(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing where all is there; else each thing by itself, in words that name it."""
    for name, value in installation.env.items():
        monkeypatch.setenv(name, value)
    settings = installation.settings
    assert list(lacks(settings, version("sexton"), "h")) == []

    (other,) = lacks(settings, "0.0.0", "h")
    assert ("the driver has 0.0.0" in other.what, other.passes, other.host) == (True, False, "h")
    away = settings.model_copy(update={"issuer_url": "http://127.0.0.1:1", "issuer_timeout_s": 1.0})
    (issuer,) = lacks(away, version("sexton"), "h")
    assert ("the issuer does not answer" in issuer.what, issuer.passes) == (True, True)
    monkeypatch.setitem(sys.modules, "sexton.streaming_jobs.budget.shared", None)  # it cannot be imported
    (later,) = lacks(settings, version("sexton"), "h")
    assert ("sexton.streaming_jobs.budget.shared" in later.what, later.passes) == (True, False)
    monkeypatch.undo()
    for name, value in installation.env.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    (store,) = lacks(settings, version("sexton"), "h")
    assert ("no AWS credentials can be found" in store.what, store.passes) == (True, True)


@pytest.mark.real
@pytest.mark.spark
@pytest.mark.faults
def test_executors_without_credentials_or_python_are_named_before_anything_is_read(
    chain: Chain, installation: Installation, s3: S3Recorder, tmp_path: Path
) -> None:
    """On a cluster whose workers have no credentials, and with a Python that they do not have."""
    s3.create_bucket("bucket", {"k": b"x"})
    theirs = {name: v for name, v in installation.environment.items() if not name.startswith("AWS_")}
    theirs |= {"AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path)}
    env = {**installation.environment, "SEXTON_S3_ENDPOINT_URL": s3.url}

    with cluster(tmp_path, theirs, workers=1) as master:
        without = submitted(master, chain.settings, env)
        elsewhere = {"PYSPARK_PYTHON": "/nowhere/python3", "PYSPARK_DRIVER_PYTHON": sys.executable}
        nowhere = submitted(master, chain.settings, {**env, **elsewhere})

    assert without.returncode == 75, without.stderr[-3000:]
    assert "executors lack what the reaper's tasks need" in without.stderr
    assert "no AWS credentials can be found" in without.stderr
    assert "docs/operating.md, 'Executors'" in without.stderr
    assert nowhere.returncode == 1, nowhere.stderr[-3000:]
    assert 'an executor cannot run a task: Cannot run program "/nowhere/python3"' in nowhere.stderr
    assert '"event": "ready"' not in without.stderr + nowhere.stderr
