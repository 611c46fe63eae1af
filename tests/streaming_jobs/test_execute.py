"""Merging keys into requests, against a deleter that only records."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.schemas.events import DeleteObjects
from sexton.streaming_jobs.reaper.execute import MAX_KEYS, Executor


@dataclass
class Reply:
    request_id: str


@dataclass
class Recorder:
    """A deleter that answers at once; `fail_at` is the number of the request that fails."""

    sent: list[tuple[str, list[str]]] = field(default_factory=list)
    fail_at: int = -1

    def submit(self, bucket: str, keys: Sequence[str]) -> Future[Any]:
        future: Future[Any] = Future()
        if len(self.sent) == self.fail_at:
            future.set_exception(OSError("unclean"))
        else:
            future.set_result(Reply(f"r{len(self.sent)}"))
        self.sent.append((bucket, list(keys)))
        return future


def delete(*keys: str, bucket: str = "b") -> DeleteObjects:
    """One phase of keys."""
    return DeleteObjects(bucket, (keys,))


def run(*actions: DeleteObjects) -> tuple[Recorder, Executor, list[Any]]:
    """Run the stage over these actions."""
    recorder = Recorder()
    executor = Executor(recorder)
    executions = [executor.add(action) for action in actions]
    executor.finish()
    return recorder, executor, executions


@pytest.mark.parametrize(
    ("keys", "sizes"), [(2500, [1000, 1000, 500]), (2001, [1000, 1000, 1]), (1000, [1000]), (1, [1])]
)
def test_x_1_keys_of_all_intents_fill_requests(keys: int, sizes: list[int]) -> None:
    """X-1: intents of several tenants share requests of exactly 1,000 keys, the last holds the rest."""
    names = [f"k{i}" for i in range(keys)]
    recorder, _, _ = run(*(delete(*names[i : i + 70]) for i in range(0, keys, 70)))

    assert [len(sent) for _, sent in recorder.sent] == sizes
    assert [key for _, sent in recorder.sent for key in sent] == names


def test_x_1_duplicates_are_one_element_on_the_wire() -> None:
    """X-1: a key that several intents name, or one names twice, is sent once."""
    recorder, _, _ = run(delete("a", "b", "a"), delete("b", "c"), delete("a"))

    assert recorder.sent == [("b", ["a", "b", "c"])]


def test_buckets_are_never_mixed() -> None:
    """A request holds keys of one bucket only, and the same key in two buckets is two deletes."""
    recorder, _, _ = run(delete("a"), delete("a", bucket="c"), delete("b"))

    assert sorted(recorder.sent) == [("b", ["a", "b"]), ("c", ["a"])]


def test_request_ids_reach_the_intents_whose_keys_they_carried() -> None:
    """An intent's receipt names exactly the requests in which its keys went out."""
    names = [f"k{i}" for i in range(2200)]
    _, executor, (first, second) = run(delete(*names[:900]), delete(*names[900:]))

    assert [executor.request_ids[n] for n in first.requests] == ["r0"]
    assert [executor.request_ids[n] for n in second.requests] == ["r0", "r1", "r2"]


def test_a_phase_starts_after_the_one_before_is_acknowledged() -> None:
    """The commit object of every unit is acknowledged gone before any of its data is sent."""
    unit = DeleteObjects("b", (("meta.json",), ("chunk-1", "chunk-2"), ("last",)))
    recorder, _, _ = run(unit, delete("x"))

    assert recorder.sent == [("b", ["meta.json", "x"]), ("b", ["chunk-1", "chunk-2"]), ("b", ["last"])]


def test_an_unclean_phase_stops_the_next() -> None:
    """When the commit object is not acknowledged gone, its data stays."""
    recorder = Recorder(fail_at=0)
    executor = Executor(recorder)
    executor.add(DeleteObjects("b", (("meta.json",), ("chunk",))))

    with pytest.raises(OSError, match="unclean"):
        executor.finish()

    assert recorder.sent == [("b", ["meta.json"])]


def test_a_failure_is_seen_before_the_task_ends() -> None:
    """An unclean reply stops a long task early, not after thousands of further requests."""
    recorder = Recorder(fail_at=0)
    executor = Executor(recorder)

    def add_many() -> None:
        for i in range(1000):
            executor.add(delete(*(f"{i}/{j}" for j in range(MAX_KEYS))))

    with pytest.raises(OSError, match="unclean"):
        add_many()

    assert len(recorder.sent) < 50


@given(st.lists(st.lists(st.integers(0, 3000).map(str), min_size=1, max_size=1500), max_size=8))
def test_exactly_the_distinct_keys_are_sent(lists: list[list[str]]) -> None:
    """Whatever the intents name, each distinct key goes out once, in requests of at most 1,000."""
    recorder, executor, _ = run(*(delete(*keys) for keys in lists))

    sent = [key for _, keys in recorder.sent for key in keys]
    assert sorted(sent) == sorted({key for keys in lists for key in keys})
    assert all(1 <= len(keys) <= MAX_KEYS for _, keys in recorder.sent)
    assert executor.keys_sent == len(sent)
