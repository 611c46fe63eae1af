"""One task of a micro-batch: decode, judge, execute and settle its records in one pass, in one Spark stage.

No shuffle, no cache and no second action: each would read Kafka again and delete twice. Rows leave when every
request is acknowledged, at the end of the task. A micro-batch is bounded in records, and they may be large: a
task whose records come to more than it should hold in memory settles what it has before it takes more.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate

import pyarrow as pa
from pyspark import AccumulatorParam

from sexton.schemas.memo import cache
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.decode import Record
from sexton.streaming_jobs.reaper.plan import TaskPlan, check_topic
from sexton.streaming_jobs.reaper.settle import Row
from sexton.streaming_jobs.reaper.work import Work, open_work, settle, take

__all__ = ["ROW_SCHEMA", "ROW_SPARK_SCHEMA", "CountsParam", "make_task"]

_ROWS_PER_BATCH = 2_000
_MOST_BYTES = 128 * 1024 * 1024  # of records, which are some four times as large once they are decoded
_SWITCH_S = 0.0005
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ROW_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("partition", pa.int32()),
    ]
)
ROW_SPARK_SCHEMA = (
    "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>, partition int"
)


class CountsParam(AccumulatorParam[Counts]):
    """How Spark adds up what tasks report; executors import its module, which has to need little."""

    def zero(self, value: Counts) -> Counts:
        """Return what a task begins with."""
        return Counts()

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:  # noqa: N802  # Spark's name
        """Return the sum."""
        return value1 + value2


def make_task(
    plan: TaskPlan, report: Callable[[Counts], None]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that Spark runs over a task's batches; `report` is called once, at its end."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts, given, more = Counts(), plan, True
        while more:
            with _busy():
                work = open_work(given)
                more = _take_most(work, given, batches)
                rows = settle(work)
            counts += work.counts
            # What has just held up a part of the task is not waited for once more.
            given = replace(given, held={**given.held, **work.counts.failing})
            del work  # its records, beside those of the next part
            if not more:
                report(counts)
            for start in range(0, len(rows), _ROWS_PER_BATCH):
                yield _to_arrow(rows[start : start + _ROWS_PER_BATCH])
            del rows

    return task


def _take_most(work: Work, plan: TaskPlan, batches: Iterator[pa.RecordBatch]) -> bool:
    """Take batches in until there is enough; return whether there may be more."""
    size = 0
    for batch in batches:
        check_topic(plan)
        take(work, _records(batch))
        size += batch.nbytes
        if size >= _MOST_BYTES:
            return True
    return False


@contextmanager
def _busy() -> Iterator[None]:
    """Set the interpreter for a task, which decodes in one thread while others send.

    The collector of cycles rests: what a task holds is no garbage, and looking through it over and over was
    a sixth of its CPU. A thread with a reply to read waits shorter for the one that decodes: it asks for the
    interpreter again after each call into the network, 5 ms each time by default.
    """
    gc.disable()
    _spare_what_is_loaded()
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
        gc.enable()


@cache
def _spare_what_is_loaded() -> None:
    # Modules and clients live as long as the process: between tasks, too, they are not looked through again.
    gc.freeze()


def _records(batch: pa.RecordBatch) -> Iterable[Record]:
    columns = (
        batch.column("partition").to_pylist(),
        batch.column("offset").to_pylist(),
        batch.column("timestamp").cast(pa.int64()).to_pylist(),
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
    )
    return map(Record, *columns)


def _to_arrow(rows: list[Row]) -> pa.RecordBatch:
    headers = [header for row in rows for header in row.headers]
    ends = [0, *accumulate(len(row.headers) for row in rows)]
    names, values = [name for name, _ in headers], [value for _, value in headers]
    pairs = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary())], ["key", "value"]
    )
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row.topic for row in rows], pa.string()),
            pa.array([row.key for row in rows], pa.binary()),
            pa.array([row.value for row in rows], pa.binary()),
            pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs),
            pa.array([row.partition for row in rows], pa.int32()),
        ],
        schema=ROW_SCHEMA,
    )
