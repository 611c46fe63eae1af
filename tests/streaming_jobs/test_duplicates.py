"""Several live copies of one deferred intent: one of them continues, and doubts what the others knew."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.chain import Chain, forget_last_commit
from tests.support.crashes import without_a_look_back
from tests.support.intents import promised
from tests.support.replies import SLOW_DOWN, on_deletes, partly
from tests.support.s3_recorder import S3Recorder

from sexton.schemas import events, records
from sexton.schemas.settings import load
from sexton.streaming_jobs.reaper.deferred import delay_queue
from sexton.streaming_jobs.reaper.deferred import pending as pending_module
from sexton.streaming_jobs.reaper.deferred.consumer import DeferredConsumer
from sexton.streaming_jobs.reaper.deferred.delay_queue import (
    DelayQueue,
    Place,
    parse_uncertain,
    parse_waiting,
    waiting_text,
)
from sexton.streaming_jobs.reaper.deferred.pending import Duplicates, Origin, Pending, origin_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WAITS: dict[str, Any] = {"reaper_patience_s": 0.2, "reaper_defer_delays_s": (3600.0,)}
DUE: dict[str, Any] = {"reaper_patience_s": 0.2, "reaper_defer_delays_s": (0.001,)}


def replayed(chain: Chain, s3: S3Recorder) -> None:
    """Let a bucket hold what is there, and have its micro-batch processed again: two copies of each."""
    s3.script(on_deletes(lambda request: SLOW_DOWN))
    chain.reap(s3_endpoint_url=s3.url, **WAITS)
    forget_last_commit(chain)


@pytest.mark.real
@pytest.mark.spark
@pytest.mark.slow
def test_of_two_copies_after_a_crash_one_chain_survives(chain: Chain, s3: S3Recorder) -> None:
    """Copies written, not committed, written again: the bucket's return ends all in one outcome each."""
    s3.create_bucket("bucket", {"a": b"", "b": b""})
    once, twice = promised(chain, "a"), promised(chain, "b")
    chain.emit(twice)
    replayed(chain, s3)
    chain.emit(once)
    with without_a_look_back():
        chain.reap(s3_endpoint_url=s3.url, **WAITS)
    assert [d.first.offset for d in chain.deferred()] == [0, 0, 1]

    s3.script(None)

    counts = chain.reap(s3_endpoint_url=s3.url, **DUE)

    assert counts.intents == {"duplicate": 1, "deleted": 2}
    assert (counts.records, counts.returned) == (3, 3)
    assert sorted(outcome.intent_id for outcome in chain.outcomes()) == sorted(
        [once.intent_id, twice.intent_id]
    )
    assert (chain.dead_letters(), len(chain.deferred())) == ([], 3)


@pytest.mark.real
@pytest.mark.spark
@pytest.mark.slow
def test_what_a_dropped_copy_knew_makes_no_untrue_word(
    chain: Chain, s3: S3Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I7: the copy that continues knows nothing of a key that is gone: verified, also after a restart."""
    real = delay_queue.due_ranges
    monkeypatch.setattr(delay_queue, "due_ranges", lambda done, due: real(done, due, most=1))
    s3.create_bucket("bucket", {"a": b"", "b": b""})
    intent = promised(chain, "a", "b")
    chain.emit(intent)
    replayed(chain, s3)
    s3.script(on_deletes(lambda r: partly(s3, r, {"b": "SlowDown"})))
    with without_a_look_back():
        chain.reap(s3_endpoint_url=s3.url, **WAITS)
    nothing, gone = chain.deferred()
    assert nothing.keys is not None
    assert gone.keys is not None
    assert (nothing.keys.done, nothing.keys.unknown, bool(gone.keys.done)) == ([], [], True)
    # The first attempt is slow to write: its copy comes last, and is the one that continues.
    chain.produce(chain.codec.encode(nothing), partition=0, topic=records.DEFERRED)
    s3.script(on_deletes(lambda r: partly(s3, r, dict.fromkeys(r.keys, "KeyTooLongError"))))

    with monkeypatch.context() as patch:
        patch.setattr(DeferredConsumer, "drain", lambda self: self._round() and self._round())
        counts = chain.reap(s3_endpoint_url=s3.url, **DUE)
    assert (counts.intents, chain.outcomes()) == ({"duplicate": 2}, [])
    chain.reap(s3_endpoint_url=s3.url, **DUE)

    (outcome,) = chain.outcomes()
    assert dict(outcome.counts) == {"absent": 1, "dead-lettered": 1}
    assert [dead.keys for dead in chain.dead_letters()] == [["b"]]


def noted(*origins: tuple[int, Origin | None]) -> Pending:
    """Waiting records, each with its partition; offsets count from 0 in each."""
    pending, offsets = Pending(), dict.fromkeys(range(9), 0)
    for partition, origin in origins:
        pending.note(partition, offsets[partition], origin)
        offsets[partition] += 1
    return pending


def test_what_is_no_copy_of_the_same_intent_is_never_dropped() -> None:
    """I2: neither another delay's, nor a replay's at the same position, nor what cannot be read."""
    a, other = Origin(0, 7, 1), Origin(0, 7, 2)
    assert (
        noted((0, a), (1, a), (0, other), (0, None), (0, None)).duplicates({0: (0, 5), 1: (0, 1)})
        == Duplicates()
    )

    twice = Origin(1, 7, 1)  # the same bytes, written to two partitions, have a receipt each
    assert noted((0, a), (0, twice)).duplicates({0: (0, 2)}) == Duplicates()

    ids = [
        origin_of(events.DeferredIntent(events.Position(topic_id, 0, 7), NOW, "r", "", 1, None, None, value))
        for topic_id, value in (("t", b"i"), ("t", b"other"), ("created again", b"i"))
    ]
    assert len(set(ids)) == 3


def test_every_copy_can_be_noted() -> None:
    """Whatever its bytes and wherever it stood, within Kafka's own bounds of partitions and offsets."""
    pending = Pending()
    for number in range(64):
        first = events.Position("t", 2**15 - 1, 2**48 - 1 - number)
        copy = events.DeferredIntent(first, NOW, "r", "", 1, None, None, b"i%d" % number)
        pending.note(0, number, origin_of(copy))
        assert pending.oldest() == {2**15 - 1: 2**48 - 1 - number}

    assert pending.duplicates({0: (0, 64)}) == Duplicates()


@pytest.mark.parametrize("size", [1, 2, 3])
@given(st.lists(st.integers(0, 3), max_size=12), st.tuples(st.integers(0, 12), st.integers(0, 12)))
def test_no_copy_is_overlooked_where_records_are_summed_up(
    size: int, found: list[int], bounds: tuple[int, int]
) -> None:
    """I2: wherever a summary of records begins and ends, it says of twins what each record would say."""
    start, end = min(bounds), max(bounds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pending_module, "_PER_ENTRY", size)
        pending = noted(*((0, Origin(0, at, 1)) for at in found))
        twins = pending.duplicates({0: (start, end)})
        last = {at: offset for offset, at in enumerate(found)}
        dropped = {offset for offset in range(start, min(end, len(found))) if last[found[offset]] != offset}
        assert twins.dropped == ({0: dropped} if dropped else {})
        assert twins.kept == ({0: {last[found[offset]] for offset in dropped}} if dropped else {})
        pending.done(0, end)

    left = found[end - end % size if end < len(found) else len(found) :]
    assert pending.oldest() == ({0: min(left)} if left else {})


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4), st.integers(0, 1)), max_size=40),
    st.tuples(st.integers(0, 20), st.integers(0, 20)),
)
def test_one_copy_of_each_intent_always_stays(
    found: list[tuple[int, int, int]], bounds: tuple[int, int]
) -> None:
    """I2: whatever waits and whatever is due: of each intent and delay the last copy is not dropped."""
    pending = noted(*((partition, Origin(0, at, digest)) for partition, at, digest in found))
    start, end = min(bounds), max(bounds)
    pending.done(0, start)
    duplicates = pending.duplicates({0: (start, end)})

    own = [(at, digest) for partition, at, digest in found if partition == 0]
    last = {intent: offset for offset, intent in enumerate(own)}
    expected = {offset for offset in range(start, min(end, len(own))) if last[own[offset]] != offset}
    assert set(duplicates.dropped.get(0, ())) == expected
    assert set(duplicates.kept.get(0, ())) == {last[own[offset]] for offset in expected}


def test_uncertain_copies_have_a_golden_form_and_the_older_one_is_read() -> None:
    """The persisted form is fixed; format 1, which has no doubts, is read."""
    place = Place("deferred", "id", 3)
    text = waiting_text(place, {1: 7, 0: 5}, {1: frozenset([9, 8]), 0: frozenset()})
    assert text == '{"format": 2, "topic_id": "id", "done": {"0": 5, "1": 7}, "doubted": {"1": [8, 9]}}'
    assert (parse_waiting(text, place), parse_uncertain(text)) == ({0: 5, 1: 7}, {1: frozenset([8, 9])})
    old = json.dumps({"format": 1, "topic_id": "id", "done": {"0": 5}})
    assert (parse_waiting(old, place), parse_uncertain(old), parse_uncertain(None)) == ({0: 5}, {}, {})


def test_what_came_to_be_uncertain_while_a_range_was_processed_stays_so() -> None:
    """A copy that was doubted since, and lies above the range, is doubted when its own turn comes."""
    queue = DelayQueue(load({}), Place("deferred", "d", 1), (0.0,), {})
    before = Duplicates({}, {0: frozenset([1, 7])})
    queue.doubt({0: frozenset([2, 9])})

    assert queue.still_uncertain(before, {0: 5}) == {0: frozenset([7, 9])}
