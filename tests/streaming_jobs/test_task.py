"""What surrounds a task's work: how the interpreter is set for it, and its rows as Spark takes them."""

from __future__ import annotations

import gc
import sys

import pytest

from sexton.streaming_jobs.reaper.settle import Row
from sexton.streaming_jobs.reaper.task import ROW_SCHEMA, _busy, _to_arrow

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
