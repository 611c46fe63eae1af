"""What is written back of a prefix: how far it came, what went and what stays, and its one outcome."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.execute_stage import CUT, INVALID, LONG_AGO, MISSING, Store
from tests.support.task_work import FIRST, NOW, copied, promised, written

from sexton.schemas.errors import EnvironmentFault
from sexton.schemas.events import (
    DeferredIntent,
    DeleteMode,
    DeletePrefix,
    Outcome,
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

PREFIX = promised(DeletePrefix("bucket", "p/"))
ELSEWHERE = Rules((("another", ""),))
NO_BUCKET = StoreRefused("no", code="NoSuchBucket", status=404)


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
        found = (ListedVersion(name, "v", True, False, written_at=LONG_AGO) for name in names)
        return VersionSlice(tuple(found), None, date=NOW)

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
@pytest.mark.parametrize("answers", [0, 1], ids=["before a step", "in a step"])
def test_x_19_a_prefix_past_the_age_limit_is_listed_for_its_last_word(
    answers: int,
    mode: DeleteMode,
    listed: tuple[str, ...] | None,
    known: dict[str, Any],
    expected: str | None,
) -> None:
    """X-19: in the way it asked for; where nothing can be listed and some may be gone it continues
    waiting.
    """
    left = iter([None] * answers)
    store = Store(probe_error=lambda bucket: next(left, NO_BUCKET))

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


def test_x_7_what_is_wrong_with_everything_is_no_last_word_on_a_prefix() -> None:
    """X-7: credentials that have ended hold the micro-batch, and make no dead letter of what is old."""
    store = Store(probe_error=lambda bucket: NO_BUCKET)

    def lists(*asked: object, **more: object) -> Slice:
        raise StoreRefused("no", code="ExpiredToken", status=400)

    store.list_slice = lists  # type: ignore[method-assign]
    with pytest.raises(EnvironmentFault, match="cannot be verified"):
        written(store, copied(PREFIX, waiting_since=NOW - timedelta(days=8)))


def test_i_7_what_is_gone_of_a_prefix_is_counted_when_the_rest_is_refused() -> None:
    """I7: the slices before have their receipt, and the prefix its outcome."""
    (outcome,) = written(Store(), copied(PREFIX, gone=10), rules=ELSEWHERE)

    assert (outcome.outcome, outcome.counts) == ("refused", {"deleted": 10, "refused": 1})
