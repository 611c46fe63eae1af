"""What is written back of an intent: one outcome at its end, a dead letter of what failed, else a copy."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.execute_stage import BUSY, CHANGED, INVALID, Store
from tests.support.task_work import DEFERRED_ID, FIRST, NOW, TOPIC_ID, copied, promised, written

from sexton.schemas.events import (
    DeadLetter,
    DeferredIntent,
    DeleteObjects,
    DeletePrefix,
    DoneKeys,
    KeyCondition,
    KeyProgress,
    NotBeforeGuard,
    Outcome,
    OutcomeWord,
    Position,
    UnchangedGuard,
)
from sexton.storage import StoreRefused, Versioning
from sexton.streaming_jobs.reaper.judge import Rules
from sexton.streaming_jobs.reaper.receipts import Replayed, SentBefore

KEYS = promised(DeleteObjects("bucket", (("gone", "left"),)))
PREFIX = promised(DeletePrefix("bucket", "p/"))
GONE = KeyProgress([DoneKeys(OutcomeWord.DELETED, "deleted", [0, 1])], [], None, ["r"])
ELSEWHERE = Rules((("another", ""),))
NO_BUCKET = StoreRefused("no", code="NoSuchBucket", status=404)


@pytest.mark.parametrize("waited", [False, True], ids=["at first", "again"])
def test_what_is_held_is_written_as_a_copy_alone(waited: bool) -> None:
    """One key has no word yet, so there is no outcome: the copy keeps place, age, and each key's state."""
    store = Store(answer=lambda number, bucket, item: BUSY if item == "left" else None)
    (copy,) = written(store, copied(KEYS, keys=GONE) if waited else KEYS)

    assert isinstance(copy, DeferredIntent)
    first = (FIRST, NOW - timedelta(days=1), NOW - timedelta(days=1), 4)
    new = (FIRST, datetime.fromtimestamp(0, UTC), NOW, 1)
    assert (copy.first, copy.first_written_at, copy.waiting_since, copy.attempt) == (first if waited else new)
    assert (copy.reason, copy.effect_unknown, copy.raw_value) == ("SlowDown", True, KEYS)
    assert copy.keys is not None
    assert (copy.keys.done, copy.keys.unknown) == (GONE.done, [])
    assert {item for _, items in store.sent for item in items} == ({"left"} if waited else {"gone", "left"})


def test_what_waits_for_its_guards_keeps_what_is_known_of_its_keys() -> None:
    """Not yet to be judged when it comes back: gone stays gone, and what may be gone stays that."""
    intent = promised(DeleteObjects("bucket", (("gone", "left"),)), NotBeforeGuard(NOW + timedelta(days=1)))
    store = Store()
    (copy,) = written(store, copied(intent, keys=GONE, effect_unknown=True))

    assert (copy.reason, copy.retry_at, copy.first) == ("not-before", NOW + timedelta(days=1), FIRST)
    assert (copy.keys, copy.effect_unknown, store.sent) == (GONE, True, [])


def test_i_7_a_prefix_in_slices_has_one_outcome_at_its_end() -> None:
    """I7: until its last slice only copies are written, which do not grow old; then all is counted."""
    store = Store(objects={"bucket": {"p/1", "p/2", "p/3"}})
    (copy,) = written(store, PREFIX, slices=2)
    assert isinstance(copy, DeferredIntent)
    (outcome,) = written(store, copy, slices=2)

    assert (copy.reason, copy.gone, copy.attempt, copy.waiting_since) == ("slice", 2, 1, None)
    assert isinstance(outcome, Outcome)
    assert (outcome.outcome, outcome.counts, outcome.effects) == ("deleted", {"deleted": 3}, {"deleted": 3})
    assert outcome.position == FIRST


@pytest.mark.parametrize("answers", [0, 1], ids=["before a step", "in a step"])
def test_a_prefix_that_is_held_keeps_how_far_it_came(answers: int) -> None:
    """What earlier slices and attempts did stands in each copy: what is gone, and that more may be."""
    left = iter([None] * answers)
    store = Store(probe_error=lambda bucket: next(left, NO_BUCKET))
    (copy,) = written(store, copied(PREFIX, gone=10, after="p/5", effect_unknown=True))

    assert (copy.reason, copy.gone, copy.after, copy.effect_unknown) == ("NoSuchBucket", 10, "p/5", True)


@pytest.mark.parametrize(("days", "ends"), [(6.9, False), (7.1, True)])
def test_x_19_what_a_bucket_holds_ends_past_the_age_limit_alone(days: float, ends: bool) -> None:
    """X-19: younger than seven days it goes on waiting; older, what is there is a dead letter."""
    store = Store(objects={"bucket": {"gone", "left"}}, answer=lambda number, bucket, item: BUSY)
    rows = written(store, copied(KEYS, waiting_since=NOW - timedelta(days=days)))

    assert [type(row) for row in rows] == ([DeadLetter, Outcome] if ends else [DeferredIntent])
    assert not ends or (rows[0].reason, rows[0].keys) == ("expired", ["gone", "left"])


@pytest.mark.parametrize("status", [None, 403], ids=["seen", "not to be seen"])
@pytest.mark.parametrize("told", [True, False], ids=["key by key", "as a whole"])
def test_i_7_what_may_be_gone_is_looked_at_before_the_rest_is_refused(status: int | None, told: bool) -> None:
    """I7: refused when it comes back: a key of unknown effect is `absent` if it is gone, or waits unseen."""
    intent = promised(DeleteObjects("bucket", (("unseen", "there", "fresh"),)))
    store = Store(objects={"bucket": {"there", "fresh"}}, look_status=status)
    keys = KeyProgress([], [0, 2], None, []) if told else None
    (row,) = written(store, copied(intent, keys=keys, effect_unknown=True), rules=ELSEWHERE)

    assert sorted(store.looked) == (["there", "unseen"] if told else ["fresh", "there", "unseen"])
    if status is None:
        assert (row.counts, row.effects) == ({"absent": 1, "refused": 2}, {"absent": 1})
        assert store.sent == []
    else:
        assert isinstance(row, DeferredIntent)
        assert (row.keys, row.effect_unknown, row.first) == (keys, True, FIRST)


def test_i_7_what_is_gone_of_a_prefix_is_counted_when_the_rest_is_refused() -> None:
    """I7: the slices before have their receipt, and the prefix its word."""
    (outcome,) = written(Store(), copied(PREFIX, gone=10), rules=ELSEWHERE)

    assert (outcome.outcome, outcome.counts) == ("refused", {"deleted": 10, "refused": 1})


def test_what_was_never_sent_is_refused_without_a_look() -> None:
    """Nothing can have happened to it."""
    store = Store()
    (outcome,) = written(store, copied(KEYS), rules=ELSEWHERE)

    assert (outcome.outcome, outcome.counts, store.looked) == ("refused", {"refused": 2}, [])


@pytest.mark.parametrize(
    ("given", "plan", "looks"),
    [
        (KEYS, {"earlier": SentBefore({0: FIRST.offset + 1})}, True),
        (KEYS, {"earlier": SentBefore({0: FIRST.offset, 1: 99})}, False),
        (copied(KEYS), {"earlier": SentBefore({0: 100})}, True),
        (copied(KEYS), {"earlier": SentBefore({0: 99})}, False),
        (copied(KEYS), {"replayed": Replayed({0: FIRST.offset}, 0.0)}, True),
        (copied(KEYS), {"replayed": Replayed({0: FIRST.offset + 1}, 0.0)}, False),
        (copied(KEYS, effect_unknown=True), {}, True),
        (copied(KEYS, effect_unknown=True, keys=KeyProgress([], [], None, [])), {}, False),
        (copied(KEYS, effect_unknown=True, keys=KeyProgress([], [0, 2], None, [])), {}, True),
    ],
    ids=[
        "begun before",
        "not begun",
        "a copy that was begun",
        "a copy that was not",
        "replayed",
        "not replayed",
        "a copy of unknown effect",
        "but of no key",
        "and of both keys",
    ],
)
def test_x_11_what_an_attempt_before_may_have_hidden_is_looked_at_first(
    given: Any, plan: dict[str, Any], looks: bool
) -> None:
    """X-11: after a crash, a replay, or an answer that never came: one marker, and `absent` for the gone."""
    store = Store(objects={"bucket": {"left"}}, versioning=Versioning.ON)
    (outcome,) = written(store, given, **plan)

    assert sorted(store.looked) == (["gone", "left"] if looks else [])
    assert outcome.counts == ({"absent": 1, "deleted": 1} if looks else {"deleted": 2})


@pytest.mark.parametrize(
    ("said", "expected"),
    [(frozenset([(0, FIRST.offset)]), "changed"), (frozenset([(0, 99)]), "absent"), (None, "changed")],
    ids=["its receipt said so", "another receipt did", "nobody has looked"],
)
@pytest.mark.parametrize("waited", [False, True])
def test_j_5_changed_is_said_again_where_its_receipt_said_so(
    said: frozenset[tuple[int, int]] | None, expected: str, waited: bool
) -> None:
    """J-5: the receipt stands at the intent's first position, where it is looked for."""
    guard = UnchangedGuard((KeyCondition("a", "e"),))
    intent = promised(DeleteObjects("bucket", (("a",),)), guard)
    store = Store(objects={"bucket": {"a"}}, answer=lambda number, bucket, item: CHANGED)
    (outcome,) = written(store, copied(intent) if waited else intent, earlier=SentBefore({0: 100}, said, 5.0))

    assert outcome.outcome == expected


@pytest.mark.parametrize("readable", [True, False])
def test_a_dead_letter_names_the_record_that_cannot_be_read(readable: bool) -> None:
    """Of a copy that is whole the intent at its first position, else the copy in the waiting room."""
    given = copied(b"no intent") if readable else b"no copy"
    plan = {} if readable else {"topic": "deferred", "deferred_topic_id": DEFERRED_ID}
    (dead,) = written(None, given, **plan)

    place = ("intents", FIRST) if readable else ("deferred", Position(DEFERRED_ID, 0, FIRST.offset))
    assert (dead.topic, dead.position) == place
    assert dead.raw_value == (b"no intent" if readable else b"no copy")


def test_each_key_that_differs_is_named_in_outcome_and_dead_letter() -> None:
    """The word is that of the worst key; what nobody names was deleted."""
    states = {"dead": INVALID, "locked": replace(INVALID, legal_hold=True)}
    store = Store(answer=lambda number, bucket, item: states.get(str(item)))
    dead, outcome = written(store, promised(DeleteObjects("bucket", (("a", "dead", "locked", "b"),))))

    assert (dead.reason, dead.keys, dead.position) == ("InvalidArgument", ["dead"], FIRST)
    assert (outcome.outcome, outcome.keys) == ("dead-lettered", 4)
    assert outcome.counts == {"deleted": 2, "dead-lettered": 1, "refused": 1}
    named = {each.key: (each.outcome.value, each.detail) for each in outcome.exceptions}
    assert {key: word for key, (word, _) in named.items()} == {"dead": "dead-lettered", "locked": "refused"}
    assert "legal hold" in named["locked"][1]
    assert (outcome.position, outcome.store_request_ids) == (Position(TOPIC_ID, 0, FIRST.offset), ["r0"])
