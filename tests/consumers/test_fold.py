"""Folding records by precedence, never by arrival."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.consumers.fold import PENDING, better, count, fold
from sexton.schemas import events
from sexton.schemas.events import OutcomeKind
from sexton.schemas.outcomes import rank

NOW = datetime(2026, 3, 1, tzinfo=UTC)
PLACE = events.Position("id", 0, 0)
WORDS = st.sampled_from(OutcomeKind)


def intent(*keys: str, intent_id: str = "i") -> events.DeletionIntent:
    """Return an intent that names keys."""
    guards = [events.PromiseGuard("op")]
    return events.DeletionIntent(intent_id, "t", NOW, "n", guards, events.DeleteObjects("b", [list(keys)]))


def outcome(
    counts: Mapping[str, int], exceptions: Mapping[str, OutcomeKind] | None = None, intent_id: str = "i"
) -> events.Outcome:
    """Return an outcome with these counts and named keys."""
    worst = min((OutcomeKind(kind) for kind in counts), key=rank)
    return events.Outcome(
        intent_id=intent_id,
        tenant="t",
        bucket="b",
        outcome=worst,
        keys=sum(counts.values()),
        counts=counts,
        exceptions=[events.KeyOutcome(key, kind, "") for key, kind in (exceptions or {}).items()],
        verdict=events.Verdict(events.VerdictResult.PASS, "in-window", "", 1),
        position=PLACE,
        store_request_ids=[],
        settled_at=NOW,
    )


def dead(*keys: str, intent_id: str | None = "i", at: events.Position | None = None) -> events.DeadLetter:
    """Return a dead letter for keys, for the whole intent if there are none."""
    return events.DeadLetter("t", at or PLACE, NOW, "r", "", intent_id, "t", "b", list(keys), None, None, NOW)


def state(asked: events.DeletionIntent | None, *said: events.Outcome | events.DeadLetter) -> str:
    """Return the folded state."""
    return fold("i", asked, said).state


def test_without_a_word_an_intent_is_pending() -> None:
    """No record at all is pending, for keys and for a prefix."""
    prefix = events.DeletionIntent(
        "i", "t", NOW, "n", [events.PromiseGuard("op")], events.DeletePrefix("b", "a/")
    )

    assert state(intent("a", "b")) == PENDING
    assert state(prefix) == PENDING
    assert fold("i", intent("a", "b"), []).pending == ("a", "b")


@pytest.mark.parametrize("kind", OutcomeKind)
def test_one_outcome_speaks_for_all_keys(kind: OutcomeKind) -> None:
    """The outcome of an outcome without exceptions is that of each key and of the intent."""
    folded = fold("i", intent("a", "b"), [outcome({kind: 2})])

    assert folded.state == kind
    assert folded.keys == {"a": kind, "b": kind}
    assert folded.final


def test_the_order_of_precedence() -> None:
    """deleted = absent > changed > refused > stale > cancelled > dead-lettered."""
    ranked = ["deleted", "changed", "refused", "stale", "cancelled", "dead-lettered"]
    for higher, lower in itertools.combinations(map(OutcomeKind, ranked), 2):
        assert better(higher, lower) is better(lower, higher) is higher
    assert rank(OutcomeKind.DELETED) == rank(OutcomeKind.ABSENT)


def test_j_9_a_replay_that_finds_nothing_changes_no_word() -> None:
    """J-9: deleted and then absent, or the other way round, is one final outcome: deleted."""
    for said in itertools.permutations([outcome({"deleted": 1}), outcome({"absent": 1})]):
        assert state(intent("a"), *said) == "deleted"


def test_a_replayed_dead_letter_that_succeeds_is_deleted() -> None:
    """A dead letter and a later success are a success, in whatever order they are read."""
    said: list[events.Outcome | events.DeadLetter] = [dead(), outcome({"dead-lettered": 1})]
    for order in itertools.permutations([*said, outcome({"deleted": 1})]):
        assert state(intent("a"), *order) == "deleted"


def test_the_intents_word_is_that_of_its_worst_key() -> None:
    """One dead-lettered key among deleted ones makes the intent dead-lettered, and is named."""
    said: list[events.Outcome | events.DeadLetter] = [
        outcome({"deleted": 2, "dead-lettered": 1}, {"b": OutcomeKind.DEAD_LETTERED}),
        dead("b"),
    ]
    folded = fold("i", intent("a", "b", "c"), said)

    assert folded.state == "dead-lettered"
    assert folded.keys == {
        "a": OutcomeKind.DELETED,
        "b": OutcomeKind.DEAD_LETTERED,
        "c": OutcomeKind.DELETED,
    }


def test_folding_is_per_key() -> None:
    """Two replays that each failed on another key have deleted both keys between them."""
    first = outcome({"deleted": 1, "dead-lettered": 1}, {"a": OutcomeKind.DEAD_LETTERED})
    second = outcome({"deleted": 1, "dead-lettered": 1}, {"b": OutcomeKind.DEAD_LETTERED})

    assert state(intent("a", "b"), first, second) == "deleted"


def test_a_dead_letter_for_some_keys_leaves_the_others_pending() -> None:
    """Before the outcome has come, keys that no record speaks of are pending, and so is the intent."""
    folded = fold("i", intent("a", "b"), [dead("a")])

    assert folded.state == PENDING
    assert folded.pending == ("b",)


def test_without_the_intent_the_records_speak_for_themselves() -> None:
    """When retention has passed the intent, named keys are known by name and the rest as one outcome."""
    folded = fold("i", None, [outcome({"deleted": 5, "stale": 1}, {"a": OutcomeKind.STALE})])

    assert (folded.state, folded.rest) == ("stale", OutcomeKind.DELETED)
    assert folded.keys == {"a": OutcomeKind.STALE}


def test_counts_that_leave_several_words_are_read_as_the_worst() -> None:
    """Nothing is shown as deleted that may not be."""
    assert state(intent("a", "b"), outcome({"deleted": 1, "stale": 1})) == "stale"


@given(st.lists(st.tuples(WORDS, st.dictionaries(st.sampled_from("abc"), WORDS)), max_size=5), st.randoms())
def test_arrival_never_matters(
    said: Sequence[tuple[OutcomeKind, dict[str, OutcomeKind]]], random: Random
) -> None:
    """Any order, and any repetition, of the same records folds to the same outcome for each key."""
    records: list[events.Outcome | events.DeadLetter] = []
    for kind, named in said:
        counts: dict[str, int] = {kind: 3 - len(named)} if len(named) < 3 else {}
        for other in named.values():
            counts[other] = counts.get(other, 0) + 1
        records.append(outcome(counts, named))
    shuffled = records * 2
    random.shuffle(shuffled)
    first, second = fold("i", intent(*"abc"), records), fold("i", intent(*"abc"), shuffled)

    assert (first.state, first.keys, first.pending) == (second.state, second.keys, second.pending)


@given(
    st.lists(st.sampled_from("vwxyz"), max_size=8),
    st.lists(st.tuples(st.sampled_from("uvwxyz"), WORDS), max_size=8),
    st.integers(0, 3),
)
def test_counters_add_up(asked: list[str], said: list[tuple[str, OutcomeKind]], garbage: int) -> None:
    """I2: submitted is final outcomes and pending, whatever is repeated, missing or undecodable."""
    records: list[events.Outcome | events.DeadLetter] = [outcome({kind: 1}, intent_id=i) for i, kind in said]
    records += [dead(intent_id=None, at=replace(PLACE, offset=n)) for n in range(garbage)] * 2
    counts = count([intent("a", intent_id=i) for i in asked], records)

    assert counts.submitted == counts.settled + counts.pending == len(set(asked))
    assert counts.pending == len(set(asked) - {i for i, _ in said})
    assert counts.unmatched == len({i for i, _ in said} - set(asked))
    assert counts.undecodable == garbage


@pytest.mark.slow
def test_counting_keeps_ids_and_no_intents() -> None:
    """A topic of a month has more keys than a console's memory: each intent is let go once it is counted."""
    many = [f"key-{n}-{'x' * 90}" for n in range(10_000)]

    def submitted() -> Iterator[events.DeletionIntent]:
        for number in range(60):
            keys = [f"{key}{number}" for key in many]
            yield replace(intent("a"), intent_id=f"i{number}", action=events.DeleteObjects("b", [keys]))

    tracemalloc.start()
    try:
        counts = count(submitted(), [])
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (counts.submitted, counts.pending) == (60, 60)
    assert most < 20_000_000
