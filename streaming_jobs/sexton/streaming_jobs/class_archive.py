"""The class archive of Spark's JVM: its classes, parsed and verified once and not at each start.

A reaper's JVM loads some 20,000 classes before it reads a record. With an archive (class data sharing, JEP
350) it maps them into memory, and a start takes half of the time and of the work. Java looks by itself
whether an archive belongs to it and to these jars, and starts without one that does not.

    python -m sexton.streaming_jobs.class_archive FILE

runs a Spark that does what the reaper's does, and writes the archive when it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pyarrow import RecordBatch
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from sexton.schemas import settings as settings_module
from sexton.streaming_jobs.spark import archive_path, jvm_process, open_session

__all__ = ["make"]

_SECONDS = 300
_NOWHERE = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "kafka.default.api.timeout.ms": "200",
    "kafka.max.block.ms": "200",
}


def make(cache_dir: Path) -> str | None:
    """Make the archive unless it is there; return what went wrong, None when it is there now."""
    path = archive_path(cache_dir)
    if path.is_file():
        return None
    print("archiving the classes of Spark (once, half a minute)", file=sys.stderr)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "sexton.streaming_jobs.class_archive", str(unfinished)],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if not unfinished.is_file():
            lines = done.stderr.strip().splitlines()
            return lines[-1] if lines else f"exit code {done.returncode}"
        unfinished.replace(path)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        unfinished.unlink(missing_ok=True)
    return None


def _train(file: str) -> int:
    options = [f"-XX:ArchiveClassesAtExit={file}"]
    # Of local mode, whatever cluster is set here: that alone takes its classes from the archive.
    local = settings_module.load({}, cache_dir=settings_module.load().cache_dir)
    session = open_session(local, "class-archive", class_options=options)
    rows = session.readStream.format("rate").load()
    query = rows.writeStream.foreachBatch(_process).trigger(once=True).start()
    query.awaitTermination()
    with suppress(PySparkException):  # no broker is there; its client's classes are loaded all the same
        session.read.format("kafka").options(**_NOWHERE, subscribe="none").load().collect()
    jvm = jvm_process(session)
    assert jvm is not None
    assert jvm.stdin is not None
    session.stop()
    jvm.stdin.close()  # with this the JVM ends, and then it writes the archive
    return int(jvm.wait(_SECONDS))


def _process(batch: DataFrame, batch_id: int) -> None:
    session = batch.sparkSession
    values = session.range(2).union(batch.select("value")).selectExpr("CAST(id AS STRING) AS value")
    rows = values.mapInArrow(_same, "value STRING")
    rows.count()
    with suppress(PySparkException):
        rows.write.format("kafka").options(**_NOWHERE, topic="none").save()


def _same(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    yield from batches


if __name__ == "__main__":
    raise SystemExit(_train(sys.argv[1]))
