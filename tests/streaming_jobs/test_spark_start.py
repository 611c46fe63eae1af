"""What makes Spark start quickly: an archive of its classes, workers that are forked with their imports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from sexton.deploy import java
from sexton.deploy.local import LocalStack
from sexton.streaming_jobs import class_archive
from sexton.streaming_jobs.spark import archive_options, archive_path, jvm_process


@pytest.mark.real
@pytest.mark.spark
def test_spark_maps_the_archive_that_the_set_up_made(stack: LocalStack, spark: SparkSession) -> None:
    """What `make setup` left in the cache is what a JVM of ours has in its memory."""
    archive, jvm = archive_path(stack.settings.cache_dir), jvm_process(spark)
    if not archive.is_file():
        pytest.skip("this Java has made no archive")

    assert jvm is not None
    assert str(archive) in Path(f"/proc/{jvm.pid}/maps").read_text()
    assert class_archive.make(stack.settings.cache_dir) is None


@pytest.mark.real
@pytest.mark.spark
@pytest.mark.slow
def test_a_worker_is_forked_with_what_it_runs(spark: SparkSession) -> None:
    """Its parent is our daemon, and not Spark's own, which has imported nothing of ours."""

    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        parent = Path(f"/proc/{os.getppid()}/cmdline").read_text()
        yield pa.RecordBatch.from_pydict({"name": [parent, *(name for name in sys.modules)]})

    rows = spark.createDataFrame([("a row",)], "name string").mapInArrow(seen, "name string").collect()
    parent, *modules = (row.name for row in rows if row.name != "a row")

    assert "\0sexton.streaming_jobs.worker_daemon\0" in parent
    assert "sexton.streaming_jobs.reaper.task" in modules


def test_an_archive_that_does_not_fit_is_no_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one there is no option; Java starts with what is none, and prints nothing about it."""
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "__init__.py"))
    assert archive_options(tmp_path) == []
    archive_path(tmp_path).write_bytes(b"no archive" * 1000)
    options = archive_options(tmp_path)

    command = java.find(tmp_path, {"PATH": "/usr/bin"}).command(*options, "-version")
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert f"-XX:SharedArchiveFile={archive_path(tmp_path)}" in options
    assert done.returncode == 0, done.stderr
    assert "archive" not in done.stdout + done.stderr


def test_why_there_is_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that cannot make one is reported, and nothing of it is left behind."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "__init__.py"))

    wrong = class_archive.make(tmp_path)

    assert wrong
    assert list(tmp_path.iterdir()) == []
