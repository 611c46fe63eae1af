"""P-11: which records ask for nothing any more, by what outcomes, dead letters and copies say of them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.schemas import events
from sexton.streaming_jobs.reaper.deferred.pending import Copy, digest_of, named, place_of
from sexton.streaming_jobs.reaper.recovery.attempts import SentBefore
from sexton.streaming_jobs.reaper.recovery.binding import CheckpointRefused
from sexton.streaming_jobs.reaper.recovery.catch_up import CatchUp
from sexton.streaming_jobs.reaper.recovery.offsets import Offsets
from sexton.streaming_jobs.reaper.recovery.said import Said

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOPIC, WAITS = "intents-id", "deferred-id"
Given = Callable[[Said], None]


def outcome(
    offset: int, *, intent_id: str = "i", topic: str = TOPIC, kept: bool = True, **counts: int
) -> Given:
    """An outcome of the intent at this offset."""
    said = {name.replace("_", "-"): number for name, number in (counts or {"deleted": 1}).items()}
    verdict = events.Verdict(events.VerdictResult.PASS, "pass", "", None)
    at, kind = events.Position(topic, 0, offset), events.OutcomeKind(next(iter(said)))
    event = events.Outcome(intent_id, "t", "b", kind, 1, said, [], verdict, at, [], NOW)
    return lambda found: found.outcome(event, letters_kept=kept)


def letter(
    offset: int,
    *,
    intent_id: str | None = "i",
    topic: str = TOPIC,
    keys: Sequence[str] = (),
    at_s: float = 0.0,
) -> Given:
    """A dead letter of the record at this offset."""
    at = events.Position(topic, 0, offset)
    event = events.DeadLetter("x", at, NOW, "r", "", intent_id, "t", "b", keys, None, b"", NOW)
    return lambda found: found.dead_letter(event, at_s)


def copy(
    at: int, offset: int, *, partition: int = 0, intent_id: str | None = "i", ms: int = 1, topic: str = TOPIC
) -> Copy:
    """A copy in `deferred`, of the intent at an offset."""
    name = named(TOPIC, intent_id) if intent_id else 0
    return Copy(partition, at, place_of(0, offset), name, ms, digest_of(topic))


@pytest.mark.parametrize(
    ("copies", "told", "first", "waiting", "uncertain"),
    [
        ([], [outcome(5)], [5], [], {}),
        ([], [outcome(5, topic="another")], [], [], {}),
        ([], [outcome(99)], [], [], {}),
        ([], [outcome(5, dead_lettered=1)], [], [], {}),
        ([], [outcome(5, dead_lettered=1), letter(5)], [5], [], {}),
        ([], [outcome(5, dead_lettered=1, kept=False)], [5], [], {}),
        ([], [letter(5, intent_id=None)], [5], [], {}),
        ([], [letter(5, topic="another")], [], [], {}),
        ([], [letter(5, topic=WAITS)], [], [(0, 5)], {}),
        ([copy(7, 5)], [], [5], [], {}),
        ([copy(7, 5, topic="another")], [], [], [], {}),
        ([copy(7, 5)], [outcome(5)], [5], [(0, 7)], {}),
        ([copy(7, 5)], [outcome(5, intent_id="its replay")], [5], [], {}),
        ([copy(7, 5), copy(8, 5, intent_id="its replay")], [letter(5)], [5], [(0, 7)], {}),
        ([copy(7, 5, intent_id=None)], [outcome(5)], [5], [], {}),
        ([copy(7, 5, intent_id=None)], [letter(5, intent_id=None)], [5], [], {}),
        ([copy(3, 5, ms=1), copy(2, 5, partition=1, ms=2)], [], [5], [(0, 3)], {1: frozenset([2])}),
        ([copy(3, 5, ms=2), copy(2, 5, partition=1, ms=2)], [], [5], [], {}),
        ([copy(3, 5, ms=1), copy(2, 5, intent_id="other", ms=2)], [], [5], [], {}),
        ([copy(3, 5, ms=1), copy(99, 5, ms=2)], [], [5], [(0, 3)], {0: frozenset([99])}),
    ],
    ids=[
        "an outcome",
        "of another topic",
        "outside of what is asked",
        "without its dead letter",
        "with its dead letter",
        "whose dead letter has gone by now",
        "a dead letter alone",
        "one of another topic",
        "one of a copy",
        "a copy waits",
        "one of another topic's intent",
        "its copy is done",
        "its replay is done",
        "it is dead and its replay waits",
        "a copy that does not say which",
        "bytes that are no intent, sent again",
        "the last copy continues",
        "both at once: nobody knows which",
        "two intents of one place",
        "the last copy is a new one",
    ],
)
def test_p_11_what_asks_for_nothing_any_more(
    copies: Sequence[Copy],
    told: Sequence[Given],
    first: list[int],
    waiting: list[tuple[int, int]],
    uncertain: dict[int, frozenset[int]],
) -> None:
    """P-11: an unknown is not among it, and nothing that is to be named in a dead letter is lost."""
    said = Said(TOPIC, WAITS, {0: (2, 10)}, {0: (0, 10), 1: (0, 10)}, copies, True)
    for take in told:
        take(said)

    found = said.settled()

    assert (list(found[0]), list(found[1])) == ([(0, offset) for offset in first], waiting)
    assert found[2] == uncertain


def test_p_11_after_a_crash_what_was_begun_continues_as_its_last_copy() -> None:
    """P-11: the attempt that ended has written it; what was not begun is left to the delay queue."""
    copies = [
        copy(3, 5, ms=1),
        copy(1, 5, ms=2, partition=1),
        copy(4, 6, ms=1),
        copy(12, 7, ms=1),
        copy(13, 7, ms=2),
    ]
    found = Said(TOPIC, WAITS, {}, {0: (0, 10)}, copies, False).settled()

    assert (list(found[1]), found[2]) == ([(0, 3)], {1: frozenset([1])})


def test_p_11_the_last_copy_of_a_partition_is_never_dropped() -> None:
    """I2: the delay queue drops the others of a partition: a clock that went back must not cost the last."""
    copies = [copy(3, 5, ms=9), copy(4, 5, ms=2), copy(1, 5, ms=8, partition=1)]

    found = Said(TOPIC, WAITS, {}, {0: (0, 10), 1: (0, 10)}, copies, True).settled()

    assert (list(found[1]), found[2]) == ([(1, 1)], {0: frozenset([3, 4])})


@pytest.mark.parametrize("offset", [2**48 + 5, 2**62, -1, -(2**48) + 5])
def test_an_outcome_of_a_place_that_no_topic_has_says_nothing(offset: int) -> None:
    """I2: its number is not taken for another partition's."""
    said = Said(TOPIC, WAITS, dict.fromkeys(range(3), (0, 10)), {}, [], True)
    outcome(offset)(said)

    assert list(said.settled()[0]) == []


def test_p_11_a_dead_letter_that_names_keys_ends_with_its_outcome() -> None:
    """I2: those that it does not name have none without; one from before the outcomes has had one."""
    said = Said(TOPIC, WAITS, {0: (0, 10)}, {}, [], True)
    for offset, at_s in ((3, 10.0), (4, 20.0), (5, 20.0)):
        letter(offset, keys=["k"], at_s=at_s)(said)
    outcome(5, dead_lettered=1)(said)
    said.outcomes_kept_since(15.0)

    assert list(said.settled()[0]) == [(0, 3), (0, 5)]


@given(st.sets(st.integers(0, 60)), st.integers(0, 30), st.integers(0, 60))
def test_offsets_are_a_set_within_their_range(given: set[int], first: int, end: int) -> None:
    """Whatever is added, and after it went to a task."""
    found = Offsets({3: (first, end)})
    for offset in given:
        found.add(3, offset)
        found.add(4, offset)

    sent = pickle.loads(pickle.dumps(found))

    expected = [(3, offset) for offset in sorted(given) if first <= offset < end]
    assert list(found) == list(sent) == expected
    assert [at for at in range(61) if sent.has(3, at)] == [at for _, at in expected]
    assert found == sent


def test_what_is_known_of_a_record() -> None:
    """Settled, unknown, or open; and nothing once all is processed that may have been before."""
    settled = Offsets({0: (0, 10)})
    settled.add(0, 4)
    before = SentBefore({0: 10, 1: 3}, None, None, (settled,), {0: 6})

    assert [before.is_settled(0, at) for at in (4, 5, 6)] == [True, None, False]
    assert before.is_settled(1, 0) is False
    assert before.past({0: 10, 1: 2}) is before
    assert before.past({0: 10, 1: 3}) == SentBefore()


@pytest.mark.parametrize(
    ("committed", "done", "is_done"),
    [({0: 5, 1: 2}, {0: 3}, True), ({0: 5}, {0: 3}, False), ({0: 5, 1: 2}, {}, False), ({}, {}, False)],
)
def test_p_11_a_new_checkpoint_has_caught_up(
    committed: dict[int, int], done: dict[int, int], is_done: bool
) -> None:
    """P-11: when both topics are processed as far as they went at its first start."""
    assert CatchUp({0: 5, 1: 2}, {0: 3}).is_done(committed, done) is is_done
    assert CatchUp().is_done(committed, done)


GOLDEN = '{"format": 1, "intents": {"0": 5, "1": 2}, "deferred": {"0": 3}}'


def test_the_file_of_a_new_checkpoint_is_read_as_it_was_written() -> None:
    """Its first format, byte for byte; none of a checkpoint from before there was one."""
    mark = CatchUp({1: 2, 0: 5}, {0: 3})

    assert mark.to_text() == GOLDEN
    assert CatchUp.parse(GOLDEN) == mark
    assert CatchUp.parse(None) == CatchUp()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"format": 2, "intents": {}, "deferred": {}}',
        '{"format": 1, "intents": {"x": 1}}',
    ],
)
def test_a_damaged_file_of_a_new_checkpoint_is_refused(text: str) -> None:
    """Without it nobody knows what was executed: never taken for none."""
    with pytest.raises(CheckpointRefused, match="sexton-catch-up"):
        CatchUp.parse(text)
