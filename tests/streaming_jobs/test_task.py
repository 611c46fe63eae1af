"""What surrounds a task's work: how the interpreter is set for it, and its rows as Spark takes them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.support.task_work import TOPIC_ID, Issuer, work_of

from sexton.schemas.settings import load
from sexton.streaming_jobs.reaper import task
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.plan import TaskPlan
from sexton.streaming_jobs.reaper.settle import Row
from sexton.streaming_jobs.reaper.task import ROW_SCHEMA, _busy, _to_arrow
from sexton.streaming_jobs.reaper.work import Work

ROWS = [
    Row("outcomes", b"tenant", b"1", [("word", b"deleted"), ("tenant", b"t")], 3),
    Row("dead-letters", None, b"", []),
    Row("deferred", b"", b"\x00\xff", [("", b"")], 0),
]


@pytest.mark.parametrize("raised", [False, True], ids=["ends", "raises"])
def test_threads_wait_short_for_each_other_while_a_task_runs(raised: bool) -> None:
    """No collection, and a hand-over in a millisecond; both as before once it has ended, however it ends."""
    before = (gc.isenabled(), sys.getswitchinterval())
    try:
        with _busy():
            assert (gc.isenabled(), sys.getswitchinterval() <= 0.001) == (False, True)
            if raised:
                raise KeyError
    except KeyError:
        pass
    assert (gc.isenabled(), sys.getswitchinterval()) == before == (True, before[1])


def arrow(offset: int, *values: bytes) -> pa.RecordBatch:
    """Records as Spark hands them to a task."""
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(offset, offset + count), pa.int64()),
            "timestamp": pa.array([0] * count, pa.timestamp("us")),
            "key": pa.array([None] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )


def test_a_task_holds_only_so_many_bytes_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has is settled before it takes more; all is counted once, and no bucket waited for twice."""
    seen: list[str] = []
    plans: list[TaskPlan] = []

    def opened(plan: TaskPlan) -> Work:
        plans.append(plan)
        work = work_of(Issuer())
        if len(plans) == 1:
            work.counts.failing["bucket"] = "SlowDown"
        return work

    def given() -> Iterator[pa.RecordBatch]:
        for offset in range(5):
            seen.append(f"record {offset}")
            yield arrow(offset, b"x" * 1000)

    monkeypatch.setattr(task, "open_work", opened)
    monkeypatch.setattr(task, "check_topic", lambda plan: None)
    monkeypatch.setattr(task, "_MOST_BYTES", 2000)
    reported: list[Counts] = []
    plan = TaskPlan(load({}), TOPIC_ID, 7, (99,))

    for rows in task.make_task(plan, reported.append)(given()):
        seen.append(f"{rows.num_rows} rows")

    first, second = ["record 0", "record 1", "2 rows"], ["record 2", "record 3", "2 rows"]
    assert seen == [*first, *second, "record 4", "1 rows"]
    (counts,) = reported
    assert (counts.records, counts.reached, dict(counts.intents)) == (5, {0: 5}, {"dead-lettered": 5})
    assert [dict(plan.held) for plan in plans] == [{}, {"bucket": "SlowDown"}, {"bucket": "SlowDown"}]


def test_rows_are_written_as_they_are() -> None:
    """Each column of Spark's Kafka sink holds what its row said, with no, one and several headers."""
    batch = _to_arrow(ROWS)

    assert batch.schema == ROW_SCHEMA
    assert batch.to_pylist() == [
        {
            "topic": row.topic,
            "key": row.key,
            "value": row.value,
            "headers": [{"key": name, "value": value} for name, value in row.headers],
            "partition": row.partition,
        }
        for row in ROWS
    ]
    assert _to_arrow([]).num_rows == 0
