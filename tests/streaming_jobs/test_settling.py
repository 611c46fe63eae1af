"""What is written back of an intent: one outcome at its end, a dead letter of what failed, else a copy."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.execute_stage import BUSY, CHANGED, CUT, INVALID, MISSING, Store
from tests.support.task_work import DEFERRED_ID, FIRST, NOW, TOPIC_ID, copied, promised, written

from sexton.schemas.events import (
    DeadLetter,
    DeferredIntent,
    DeleteMode,
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
from sexton.storage import (
    KeyState,
    Kind,
    Listed,
    ListedVersion,
    Slice,
    StoreRefused,
    Versioning,
    VersionSlice,
)
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


@pytest.mark.parametrize("waited", [False, True], ids=["at first", "again"])
def test_what_waits_for_its_guards_keeps_what_is_known_of_its_keys(waited: bool) -> None:
    """Not yet to be judged when it comes back: gone stays gone, and what may be gone stays that."""
    intent = promised(DeleteObjects("bucket", (("gone", "left"),)), NotBeforeGuard(NOW + timedelta(days=1)))
    store = Store()
    (copy,) = written(store, copied(intent, keys=GONE, effect_unknown=True) if waited else intent)

    assert (copy.reason, copy.retry_at, copy.first) == ("not-before", NOW + timedelta(days=1), FIRST)
    assert (copy.attempt, copy.keys, copy.effect_unknown) == ((4, GONE, True) if waited else (1, None, False))
    assert store.sent == []


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
@pytest.mark.parametrize("unknown", [True, False], ids=["of unknown effect", "of known effect"])
def test_a_prefix_that_is_held_keeps_how_far_it_came(answers: int, unknown: bool) -> None:
    """What earlier slices and attempts did stands in each copy: what is gone, and that more may be."""
    left = iter([None] * answers)
    store = Store(probe_error=lambda bucket: next(left, NO_BUCKET))
    (copy,) = written(store, copied(PREFIX, gone=10, after="p/5", effect_unknown=unknown))

    assert (copy.reason, copy.gone, copy.after, copy.effect_unknown) == ("NoSuchBucket", 10, "p/5", unknown)


@pytest.mark.parametrize(
    ("mode", "versioning", "effect"),
    [
        (DeleteMode.HIDE, Versioning.OFF, "deleted"),
        (DeleteMode.HIDE, Versioning.ON, "hidden"),
        (DeleteMode.ERASE_ALL_VERSIONS, Versioning.ON, "erased"),
    ],
)
@pytest.mark.parametrize("met", [True, False], ids=["one is absent", "nothing is left"])
def test_i_7_all_slices_of_a_prefix_have_one_effect(
    mode: DeleteMode, versioning: Versioning, effect: str, met: bool
) -> None:
    """I7: what went before went in the same way, also where somebody else was first with all of the rest."""
    absent = KeyState(Kind.ABSENT, "NoSuchKey")
    store = Store(objects={"bucket": {"p/1"} if met else set()}, versioning=versioning)

    def first(number: int, bucket: str, item: object) -> KeyState:
        store.objects.clear()
        return absent

    def versions(bucket: str, prefix: str, *page: object) -> VersionSlice:
        names = store.objects.get(bucket, ())
        return VersionSlice(tuple(ListedVersion(name, "v", True, False) for name in names), None)

    store.answer = first
    store.version_slice = versions  # type: ignore[attr-defined]
    (outcome,) = written(store, copied(promised(DeletePrefix("bucket", "p/", mode)), gone=10))

    assert (outcome.counts, outcome.effects) == ({"deleted": 10}, {effect: 10})


def test_what_stays_of_a_prefix_is_counted_by_its_word() -> None:
    """A lock refuses, all else is a dead letter, a thousand are named; and what went is `deleted`."""
    names = [f"p/{n:04d}" for n in range(1_002)]
    states = dict.fromkeys(names, INVALID) | {"p/0000": replace(INVALID, legal_hold=True)}
    store = Store(
        objects={"bucket": {*names, "p/z"}}, answer=lambda number, bucket, item: states.get(str(item))
    )
    dead, outcome = written(store, PREFIX, slices=10_000)

    assert (outcome.outcome, outcome.keys) == ("dead-lettered", 1_003)
    assert outcome.counts == {"deleted": 1, "refused": 1, "dead-lettered": 1_001}
    assert dead.keys == names[1:1_000]


def test_a_prefix_of_which_some_may_be_gone_uncounted_says_so() -> None:
    """One answer never came, and then the bucket was missing: nothing is counted, and its copy knows."""
    store = Store(objects={"bucket": {"p/1"}}, answer=lambda number, bucket, item: MISSING if number else CUT)
    (copy,) = written(store, PREFIX)

    assert (copy.reason, copy.gone, copy.effect_unknown) == ("NoSuchBucket", 0, True)


@pytest.mark.parametrize(
    ("listed", "known", "expected"),
    [
        (("p/1",), {}, "dead-lettered"),
        ((), {}, "absent"),
        ((), {"gone": 10}, "deleted"),
        (None, {}, "dead-lettered"),
        (None, {"gone": 10}, None),
        (None, {"effect_unknown": True}, None),
    ],
)
@pytest.mark.parametrize("mode", [DeleteMode.HIDE, DeleteMode.ERASE_ALL_VERSIONS])
def test_x_19_a_prefix_past_the_age_limit_is_listed_for_its_last_word(
    mode: DeleteMode, listed: tuple[str, ...] | None, known: dict[str, Any], expected: str | None
) -> None:
    """X-19: in the way it asked for; where nothing can be listed and some may be gone it goes on waiting."""
    store = Store(probe_error=lambda bucket: NO_BUCKET)

    def lists(bucket: str, prefix: str, *, limit: int) -> Slice | VersionSlice:
        if listed is None:
            raise NO_BUCKET
        if mode is DeleteMode.HIDE:
            return Slice(tuple(Listed(name, "", 0) for name in listed), None)
        return VersionSlice(tuple(ListedVersion(name, "v", True, True) for name in listed), None)

    # What the other listing shows is no answer to what was asked.
    name = "list_slice" if mode is DeleteMode.HIDE else "version_slice"
    setattr(store, name, lists)
    prefix = promised(DeletePrefix("bucket", "p/", mode))
    *dead, last = written(store, copied(prefix, waiting_since=NOW - timedelta(days=8), **known))

    assert [(letter.reason, letter.keys) for letter in dead] == [("expired", ["p/"])] * (
        expected == "dead-lettered"
    )
    assert getattr(last, "outcome", None) == expected


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
    given: Any = copied(b"no intent") if readable else b"no copy"
    plan = {} if readable else {"topic": "deferred", "deferred_topic_id": DEFERRED_ID}
    (dead,) = written(None, given, **plan)

    place = ("intents", FIRST) if readable else ("deferred", Position(DEFERRED_ID, 0, FIRST.offset))
    assert (dead.topic, dead.position) == place
    assert dead.raw_value == (b"no intent" if readable else b"no copy")
    assert dead.written_at == (given.first_written_at if readable else datetime.fromtimestamp(0, UTC))


def test_each_key_that_differs_is_named_in_outcome_and_dead_letter() -> None:
    """The word is that of the worst key; what nobody names was deleted."""
    states = {"dead": INVALID, "locked": replace(INVALID, legal_hold=True)}
    store = Store(answer=lambda number, bucket, item: states.get(str(item)))
    dead, outcome = written(store, promised(DeleteObjects("bucket", (("a", "dead", "locked", "b"),))))

    assert (dead.reason, dead.keys, dead.position) == ("InvalidArgument", ["dead"], FIRST)
    assert (dead.intent_id, dead.tenant, dead.bucket) == ("intent", "tenant", "bucket")
    assert (outcome.outcome, outcome.keys, outcome.bucket) == ("dead-lettered", 4, "bucket")
    assert outcome.counts == {"deleted": 2, "dead-lettered": 1, "refused": 1}
    named = {each.key: (each.outcome.value, each.detail) for each in outcome.exceptions}
    assert {key: word for key, (word, _) in named.items()} == {"dead": "dead-lettered", "locked": "refused"}
    assert "legal hold" in named["locked"][1]
    assert (outcome.position, outcome.store_request_ids) == (Position(TOPIC_ID, 0, FIRST.offset), ["r0"])
