"""Delay tiers, what is due, and where what waits first stood: pure rules."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.schemas import events
from sexton.streaming_jobs.reaper.deferred.delay_levels import level_of, levels
from sexton.streaming_jobs.reaper.deferred.delay_queue import Place, due_ranges, parse_waiting, waiting_text
from sexton.streaming_jobs.reaper.deferred.pending import Origin, Pending, origin_of
from sexton.streaming_jobs.reaper.held import Change, HeldBuckets
from sexton.streaming_jobs.reaper.recovery.binding import CheckpointRefused

NOW = datetime(2026, 1, 2, tzinfo=UTC)
DELAYS = (5.0, 30.0, 180.0)
PLACE = Place("deferred", "id", 3)


def test_there_are_no_more_tiers_than_partitions() -> None:
    """Delays ascend; what has no partition is left out, but one tier there is always."""
    assert levels([30, 5, 180], 12) == (5, 30, 180)
    assert levels([30, 5, 180], 2) == (5, 30)
    assert levels([30, 5], 0) == (5,)


@pytest.mark.parametrize(("attempt", "level"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (1000, 2)])
def test_delays_grow_with_attempts(attempt: int, level: int) -> None:
    """Each attempt waits longer, the last delay over and over."""
    assert level_of(DELAYS, attempt, NOW, None) == level


@pytest.mark.parametrize(
    ("seconds", "level"), [(-9, 0), (0, 0), (4, 0), (5, 0), (29, 0), (30, 1), (179, 1), (1e9, 2)]
)
def test_a_known_time_is_never_passed_by_a_longer_delay_than_needed(seconds: float, level: int) -> None:
    """With a known time the longest delay that does not pass it is taken."""
    assert level_of(DELAYS, 7, NOW, NOW + timedelta(seconds=seconds)) == level


def test_only_what_is_due_is_worked_off() -> None:
    """From where a partition is done to the first record that is not due, no more than a bound at a time."""
    assert due_ranges({0: 5, 1: 7}, {0: 9, 1: 7, 2: 3}) == {0: (5, 9), 2: (0, 3)}
    assert due_ranges({0: 0}, {0: 10_000}, most=100) == {0: (0, 100)}


def test_waiting_text_has_a_golden_form() -> None:
    """The persisted form is fixed; it is read back, and refused for another topic or when damaged."""
    text = waiting_text(PLACE, {1: 7, 0: 5})
    assert text == '{"format": 2, "topic_id": "id", "done": {"0": 5, "1": 7}, "doubted": {}}'
    assert parse_waiting(text, PLACE) == {0: 5, 1: 7}
    assert parse_waiting(None, PLACE) == {}
    with pytest.raises(CheckpointRefused, match="re-created"):
        parse_waiting(text, Place("deferred", "other", 3))
    for bad in ("", "{", "[]", '{"format": 1}', json.dumps({"format": 3, "topic_id": "id", "done": {}})):
        with pytest.raises(CheckpointRefused):
            parse_waiting(bad, PLACE)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 50)), max_size=2000),
    st.dictionaries(st.integers(0, 2), st.integers(0, 2000)),
)
def test_the_oldest_position_is_never_above_a_waiting_one(
    records: list[tuple[int, int, int]], done: dict[int, int]
) -> None:
    """What is still waiting first stood at or above the oldest position; nothing waits without one."""
    pending, offsets = Pending(), dict.fromkeys(range(3), 0)
    waiting: list[tuple[int, int]] = []
    for partition, place, at in records:
        pending.note(partition, offsets[partition], Origin(place, at))
        if offsets[partition] >= done.get(partition, 0):
            waiting.append((place, at))
        offsets[partition] += 1
    for partition, end in done.items():
        pending.done(partition, end)

    oldest = pending.oldest()
    assert all(oldest[place] <= at for place, at in waiting)
    if all(done.get(p, 0) >= offsets[p] for p in range(3)):
        assert oldest == {}


def test_the_oldest_intent_that_waits_is_known_by_its_age() -> None:
    """Its first record counts, not the copy; what is done does not, and unreadable copies have no age."""
    pending = Pending()
    for offset, since_s in enumerate([70.0, 90.0, *[100.0] * 300]):
        pending.note(0, offset, Origin(0, offset, since_s=since_s))
    pending.note(1, 0, None)
    assert pending.since_s() == 70.0

    pending.done(0, 256)
    assert pending.since_s() == 100.0
    pending.done(0, 302)
    assert (pending.oldest(), pending.since_s()) == ({}, None)

    copy = events.DeferredIntent(
        events.Position("t", 0, 5), datetime(1970, 1, 2, tzinfo=UTC), "held", "", 1, None, None, b""
    )
    pending.note(2, 0, origin_of(copy))
    assert pending.since_s() == 86_400.0


def test_a_bad_bucket_is_held_longer_each_time_and_freed_by_work() -> None:
    """A bucket is held for a while after each failure, longer each time, and free once it works."""
    held = HeldBuckets()
    held.note({"bad": "SlowDown"}, ["good"], now=0)
    assert held.current(1) == {"bad": "SlowDown"}
    assert held.current(6) == {}
    held.note({"bad": "NoSuchBucket"}, [], now=6)
    assert held.current(15) == {"bad": "NoSuchBucket"}
    held.note({}, ["bad"], now=15)
    assert held.current(15) == {}
    held.note({"bad": "SlowDown"}, ["bad"], now=20)
    assert held.current(24) == {"bad": "SlowDown"}
    assert held.current(26) == {}


def test_a_bucket_that_is_held_is_reported_once_with_its_stores_words_and_when_it_is_free() -> None:
    """Not with each micro-batch: when it begins, when the reason changes, and when it ends, with how long."""
    held = HeldBuckets()
    busy = {"bad": "please slow down"}

    assert held.note({"bad": "SlowDown"}, ["good"], 10, busy) == [Change("bad", "SlowDown", busy["bad"])]
    assert held.note({"bad": "SlowDown"}, [], 20) == []
    assert held.held_for_s(["bad", "good"], 20) == {"bad": 10}
    assert held.note({"bad": "NoSuchBucket"}, ["bad"], 30, {"bad": "gone"}) == [
        Change("bad", "NoSuchBucket", "gone")
    ]
    assert held.note({}, ["bad", "good"], 45) == [Change("bad", "NoSuchBucket", "gone", 35)]
    assert held.note({}, ["bad"], 50) == []
