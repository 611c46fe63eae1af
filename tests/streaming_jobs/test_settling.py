"""What is written back of an intent: one outcome at its end, a dead letter of what failed, else a copy."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from typing import Any

import pytest
from tests.support.execute_stage import BUSY, CHANGED, INVALID, Store
from tests.support.task_work import (
    COPY_OFFSET,
    DEFERRED_ID,
    FIRST,
    NOW,
    TOPIC_ID,
    Issuer,
    copied,
    promised,
    written,
)

from sexton.schemas.events import (
    DeadLetter,
    DeferredIntent,
    DeleteObjects,
    DoneKeys,
    GenerationGuard,
    KeyCondition,
    KeyProgress,
    NotBeforeGuard,
    Outcome,
    OutcomeKind,
    Position,
    UnchangedGuard,
)
from sexton.schemas.windows import Window
from sexton.storage import Delete, Versioning
from sexton.streaming_jobs.reaper.deferred.pending import Duplicates
from sexton.streaming_jobs.reaper.judge import Rules
from sexton.streaming_jobs.reaper.recovery.attempts import Replayed, SentBefore

KEYS = promised(DeleteObjects("bucket", (("gone", "left"),)))
GONE = KeyProgress([DoneKeys(OutcomeKind.DELETED, "deleted", [0, 1])], [], None, ["r"])
ELSEWHERE = Rules((("another", ""),))


@pytest.mark.parametrize("waited", [False, True], ids=["at first", "again"])
def test_what_is_held_is_written_as_a_copy_alone(waited: bool) -> None:
    """One key has no outcome yet, so there is no outcome: the copy keeps place, age, and each key's state."""
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


@pytest.mark.parametrize("waited", [False, True], ids=["at first", "again"])
def test_what_waits_for_its_guards_keeps_what_is_known_of_its_keys(waited: bool) -> None:
    """Not yet to be judged when it comes back: gone stays gone, and what may be gone stays that."""
    intent = promised(DeleteObjects("bucket", (("gone", "left"),)), NotBeforeGuard(NOW + timedelta(days=1)))
    store = Store()
    (copy,) = written(store, copied(intent, keys=GONE, effect_unknown=True) if waited else intent)

    assert (copy.reason, copy.retry_at, copy.first) == ("not-before", NOW + timedelta(days=1), FIRST)
    assert (copy.attempt, copy.keys, copy.effect_unknown) == ((4, GONE, True) if waited else (1, None, False))
    assert store.sent == []


@pytest.mark.parametrize(("days", "ends"), [(6.9, False), (7.1, True)])
def test_x_19_what_a_bucket_holds_ends_past_the_age_limit_alone(days: float, ends: bool) -> None:
    """X-19: younger than seven days it continues waiting; older, what is there is a dead letter."""
    store = Store(objects={"bucket": {"gone", "left"}}, answer=lambda number, bucket, item: BUSY)
    rows = written(store, copied(KEYS, waiting_since=NOW - timedelta(days=days)))

    assert [type(row) for row in rows] == ([DeadLetter, Outcome] if ends else [DeferredIntent])
    assert not ends or (rows[0].reason, rows[0].keys) == ("expired", ["gone", "left"])


@pytest.mark.parametrize("status", [None, 403], ids=["seen", "not to be seen"])
@pytest.mark.parametrize("reported", [True, False], ids=["key by key", "as a whole"])
def test_i_7_what_may_be_gone_is_looked_at_before_the_rest_is_refused(
    status: int | None, reported: bool
) -> None:
    """I7: refused when it comes back: a key of unknown effect is `absent` if it is gone, or waits unseen."""
    intent = promised(DeleteObjects("bucket", (("unseen", "there", "fresh"),)))
    store = Store(objects={"bucket": {"there", "fresh"}}, look_status=status)
    keys = KeyProgress([], [0, 2], None, []) if reported else None
    (row,) = written(store, copied(intent, keys=keys, effect_unknown=True), rules=ELSEWHERE)

    assert sorted(store.verified) == (["there", "unseen"] if reported else ["fresh", "there", "unseen"])
    if status is None:
        assert (row.counts, row.effects) == ({"absent": 1, "refused": 2}, {"absent": 1})
        assert store.sent == []
    else:
        assert isinstance(row, DeferredIntent)
        assert (row.keys, row.effect_unknown, row.first) == (keys, True, FIRST)


def test_what_was_never_sent_is_refused_without_a_look() -> None:
    """Nothing can have happened to it."""
    store = Store()
    (outcome,) = written(store, copied(KEYS), rules=ELSEWHERE)

    assert (outcome.outcome, outcome.counts, store.verified) == ("refused", {"refused": 2}, [])


@pytest.mark.parametrize("below", [FIRST.offset, FIRST.offset + 1], ids=["new", "begun before"])
def test_a_refusal_of_what_was_begun_before_says_so(below: int) -> None:
    """A narrower allow-list forbids looking too: the outcome is `refused`, and says of an earlier start."""
    store = Store()
    (outcome,) = written(store, KEYS, rules=ELSEWHERE, earlier=SentBefore({0: below}))

    assert (outcome.outcome, store.verified, store.sent) == ("refused", [], [])
    assert ("begun before" in outcome.verdict.detail) is (below > FIRST.offset)


@pytest.mark.parametrize(
    ("given", "plan", "verifications"),
    [
        (KEYS, {"earlier": SentBefore({0: FIRST.offset + 1})}, True),
        (KEYS, {"earlier": SentBefore({0: FIRST.offset, 1: 99})}, False),
        (KEYS, {"retried": True}, True),
        (copied(KEYS), {"earlier": SentBefore({0: 100})}, True),
        (copied(KEYS), {"earlier": SentBefore({0: 99})}, False),
        (copied(KEYS), {"replayed": Replayed({0: FIRST.offset}, 0.0)}, True),
        (copied(KEYS), {"replayed": Replayed({0: FIRST.offset + 1}, 0.0)}, False),
        (copied(KEYS, effect_unknown=True), {}, True),
        (copied(KEYS, effect_unknown=True, keys=KeyProgress([], [], None, [])), {}, False),
        (copied(KEYS, effect_unknown=True, keys=KeyProgress([], [0, 2], None, [])), {}, True),
        (copied(KEYS), {"duplicates": Duplicates(kept={0: frozenset([COPY_OFFSET])})}, True),
    ],
    ids=[
        "begun before",
        "not begun",
        "a task that runs again",
        "a copy that was begun",
        "a copy that was not",
        "replayed",
        "not replayed",
        "a copy of unknown effect",
        "but of no key",
        "and of both keys",
        "one of two copies",
    ],
)
def test_x_11_what_an_attempt_before_may_have_hidden_is_looked_at_first(
    given: Any, plan: dict[str, Any], verifications: bool
) -> None:
    """X-11: after a crash, a replay, or an answer that never came: one marker, and `absent` for the gone."""
    store = Store(objects={"bucket": {"left"}}, versioning=Versioning.ON)
    (outcome,) = written(store, given, **plan)

    assert sorted(store.verified) == (["gone", "left"] if verifications else [])
    assert outcome.counts == ({"absent": 1, "deleted": 1} if verifications else {"deleted": 2})


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
    assert store.sent == [("bucket", [Delete("a", "e")])]  # not without its condition


def test_of_two_copies_of_an_intent_one_is_left_alone() -> None:
    """The later one has the one outcome: nothing is sent for this one, or written of it."""
    store = Store()

    assert written(store, copied(KEYS), duplicates=Duplicates(dropped={0: frozenset([COPY_OFFSET])})) == []
    assert store.sent == []


@pytest.mark.parametrize(
    ("window", "expected"), [(Window(5, 6), "deleted"), (Window(6), "stale"), (Window(0, 5), "stale")]
)
def test_what_waited_is_judged_by_where_it_first_stood(window: Window, expected: str) -> None:
    """Accepted in time is accepted, however long it waited; its copy's own place says nothing."""
    intent = promised(DeleteObjects("bucket", (("a",),)), GenerationGuard("tenant", 1))
    given = copied(intent, first=Position(TOPIC_ID, 1, FIRST.offset))
    (outcome,) = written(Store(), given, issuer=Issuer(window, partition=1), ends=(10, 10))

    assert (outcome.outcome, outcome.position) == (expected, given.first)


@pytest.mark.parametrize(("ago_s", "expected"), [(200, "absent"), (20, "changed"), (None, "absent")])
def test_j_5_of_several_attempts_the_first_one_counts(ago_s: int | None, expected: str) -> None:
    """J-5: what has stood for 100 s stood there before a replay 50 s ago, but an attempt may be older."""
    now = time.time()
    intent = promised(DeleteObjects("bucket", (("a",),)), UnchangedGuard((KeyCondition("a", "e"),)))
    store = Store(objects={"bucket": {"a"}}, answer=lambda number, bucket, item: CHANGED)
    store.headers = {"etag": '"e"', "date": formatdate(now), "last-modified": formatdate(now - 100)}
    since = None if ago_s is None else datetime.fromtimestamp(now - ago_s, UTC)
    given = copied(intent, keys=KeyProgress([], [0, 1], since, []))
    (outcome,) = written(store, given, earlier=SentBefore({0: 100}, since_s=now - 50))

    assert outcome.outcome == expected


@pytest.mark.parametrize("readable", [True, False])
def test_a_dead_letter_names_the_record_that_cannot_be_read(readable: bool) -> None:
    """Of a copy that is whole the intent at its first position, else the copy in the delay queue."""
    given: Any = copied(b"no intent") if readable else b"no copy"
    plan: dict[str, Any] = {} if readable else {"topic": "deferred", "deferred_topic_id": DEFERRED_ID}
    (dead,) = written(None, given, **plan)

    place = ("intents", FIRST) if readable else ("deferred", Position(DEFERRED_ID, 0, FIRST.offset))
    assert (dead.topic, dead.position) == place
    assert dead.raw_value == (b"no intent" if readable else b"no copy")
    assert dead.written_at == (given.first_written_at if readable else datetime.fromtimestamp(0, UTC))


def test_each_key_that_differs_is_named_in_outcome_and_dead_letter() -> None:
    """The outcome is that of the worst key; what nobody names was deleted."""
    states = {"dead": INVALID, "locked": replace(INVALID, legal_hold=True)}
    store = Store(answer=lambda number, bucket, item: states.get(str(item)))
    dead, outcome = written(store, promised(DeleteObjects("bucket", (("a", "dead", "locked", "b"),))))

    assert (dead.reason, dead.keys, dead.position) == ("InvalidArgument", ["dead"], FIRST)
    assert (dead.intent_id, dead.tenant, dead.bucket) == ("intent", "tenant", "bucket")
    assert (outcome.outcome, outcome.keys, outcome.bucket) == ("dead-lettered", 4, "bucket")
    assert outcome.counts == {"deleted": 2, "dead-lettered": 1, "refused": 1}
    named = {each.key: (each.outcome.value, each.detail) for each in outcome.exceptions}
    assert {key: kind for key, (kind, _) in named.items()} == {"dead": "dead-lettered", "locked": "refused"}
    assert "legal hold" in named["locked"][1]
    assert (outcome.position, outcome.store_request_ids) == (Position(TOPIC_ID, 0, FIRST.offset), ["r0"])
