"""Vetoes, and time by two clocks: asked before the first request of each phase, at every attempt."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.execute_stage import BUSY, Store, Versioned
from tests.support.task_work import FIRST, NOW, Issuer, copied, promised, work_of, written

from sexton.schemas.errors import StoreUnavailable
from sexton.schemas.events import (
    DeferredIntent,
    DeleteMode,
    DeleteObjects,
    DeletePrefix,
    DoneKeys,
    ExpiresAt,
    KeyCondition,
    KeyProgress,
    NotBeforeGuard,
    OnlyWhileExists,
    Outcome,
    OutcomeKind,
    UnchangedGuard,
)
from sexton.storage import Ability, StoreRefused
from sexton.streaming_jobs.reaper.actions.delete_objects.execution import ObjectsExecution
from sexton.streaming_jobs.reaper.decode import Record
from sexton.streaming_jobs.reaper.execute.bucket import Bucket
from sexton.streaming_jobs.reaper.execute.gate import Gate
from sexton.streaming_jobs.reaper.recovery.attempts import SentBefore
from sexton.streaming_jobs.reaper.vetoes import Now
from sexton.streaming_jobs.reaper.work import settle, take

HOUR = timedelta(hours=1)
PHASES = DeleteObjects("bucket", (("commit",), ("data-1", "data-2")))
THERE = {"commit", "data-1", "data-2", "replacement"}


def clocks(reaper: datetime = NOW, bucket: datetime | None = NOW, **given: Any) -> tuple[Store, datetime]:
    """A store whose clock shows one time, and what the reaper's shows."""
    store = Store(objects={"bucket": set(THERE)}, date=None if bucket is None else lambda: bucket, **given)
    return store, reaper


def done(store: Store, given: bytes | DeferredIntent, **work: Any) -> tuple[Any, list[str]]:
    """The one row that is written of an intent, and what is left in the bucket but the replacement."""
    (row,) = written(store, given, **work)
    return row, sorted(store.objects["bucket"] - {"replacement"})


@pytest.mark.parametrize(
    ("reaper", "bucket", "expired"),
    [
        (NOW, NOW, False),
        (NOW + HOUR, NOW + HOUR, True),
        (NOW + HOUR, NOW, False),
        (NOW, NOW + HOUR, False),
        (NOW + HOUR, None, False),
    ],
    ids=["neither", "both", "the reaper's is ahead", "the bucket's is ahead", "the bucket's is not known"],
)
def test_what_has_expired_by_both_clocks_is_cancelled(
    reaper: datetime, bucket: datetime | None, expired: bool
) -> None:
    """Nothing of it is sent, each key is `cancelled`, the outcome says why; one clock alone says nothing."""
    store, wall = clocks(reaper, bucket)
    row, left = done(store, promised(PHASES, vetoes=[ExpiresAt(NOW)]), wall=wall)

    assert isinstance(row, Outcome)
    if expired:
        assert (row.outcome, row.counts, left) == (OutcomeKind.CANCELLED, {"cancelled": 3}, sorted(THERE)[:3])
        assert (row.verdict.reason, store.sent, row.effects) == ("expired", [], {})
    else:
        assert (row.counts, left) == ({"deleted": 3}, [])


@pytest.mark.parametrize(
    ("reaper", "bucket", "passed"),
    [
        (NOW, NOW + 2 * HOUR, False),
        (NOW + 2 * HOUR, NOW, False),
        (NOW + 2 * HOUR, None, False),
        (NOW + 2 * HOUR, NOW + 2 * HOUR, True),
    ],
    ids=["the bucket's is ahead", "the reaper's is ahead", "the bucket's is not known", "both"],
)
@pytest.mark.parametrize("action", [PHASES, DeletePrefix("bucket", "data/")], ids=["keys", "prefix"])
def test_an_instant_has_passed_when_both_clocks_have(
    action: DeleteObjects | DeletePrefix, reaper: datetime, bucket: datetime | None, passed: bool
) -> None:
    """A reaper whose clock is ahead deletes nothing early: it waits, without growing old."""
    instant = NOW - HOUR  # so that the guard itself has passed, as the judge sees it
    store, wall = clocks(reaper - 2 * HOUR, bucket and bucket - 2 * HOUR)
    row, left = done(store, promised(action, NotBeforeGuard(instant)), wall=wall)

    if passed:
        assert isinstance(row, Outcome)
        assert left == ([] if action is PHASES else sorted(THERE)[:3])
    else:
        assert isinstance(row, DeferredIntent)
        at = bucket and max(instant, reaper - 2 * HOUR + (instant - (bucket - 2 * HOUR)))
        assert (row.reason, row.retry_at, row.waiting_since) == ("not-before", at, None)
        assert (store.sent, len(left)) == ([], 3)


@pytest.mark.parametrize(
    ("gone", "status", "expected"),
    [(False, None, "deleted"), (True, None, "cancelled"), (False, 503, "waits"), (True, 500, "waits")],
    ids=["there", "gone", "busy", "nobody knows"],
)
def test_only_while_something_exists(gone: bool, status: int | None, expected: str) -> None:
    """Gone: cancelled; there: done; where nobody can tell it waits, however often."""
    store, _ = clocks(look_status=status)
    if gone:
        store.objects["bucket"].discard("replacement")
    row, left = done(store, promised(PHASES, vetoes=[OnlyWhileExists("replacement")]))

    if expected == "waits":
        assert isinstance(row, DeferredIntent)
        assert (row.reason, row.waiting_since, row.attempt, len(left)) == ("veto-unknown", None, 1, 3)
        again, _ = done(store, replace(row, waiting_since=None))
        assert (again.reason, again.attempt, again.first) == ("veto-unknown", 2, FIRST)
        assert store.sent == []
    else:
        assert (row.counts, len(left)) == ({expected: 3}, 3 if gone else 0)
        assert row.verdict.reason == ("vanished" if gone else "pass")


@pytest.mark.parametrize(
    ("phases", "counts"),
    [(None, {"cancelled": 3}), ([0], {"cancelled": 3}), ([1], {"deleted": 1, "cancelled": 2})],
    ids=["all", "the first", "the second"],
)
def test_a_veto_is_asked_about_before_the_phases_that_it_names(
    phases: list[int] | None, counts: dict[str, int]
) -> None:
    """What went before keeps its outcome, and nothing more is sent."""
    store, wall = clocks(NOW + HOUR, NOW + HOUR)
    row, left = done(store, promised(PHASES, vetoes=[ExpiresAt(NOW, phases)]), wall=wall)

    assert (row.outcome, row.counts) == (OutcomeKind.CANCELLED, counts)
    assert left == [key for key in sorted(THERE)[:3] if key != "commit" or "deleted" not in counts]
    assert [key.key for key in row.exceptions] == (["data-1", "data-2"] if "deleted" in counts else [])


@pytest.mark.parametrize("vanishes", [False, True], ids=["there", "gone"])
def test_a_veto_is_asked_about_again_before_the_next_phase(vanishes: bool) -> None:
    """What the store said before the first phase is not believed for the second."""

    def answer(number: int, bucket: str, item: object) -> None:
        if vanishes:
            store.objects["bucket"].discard("replacement")

    store, _ = clocks(answer=answer)
    row, _ = done(store, promised(PHASES, vetoes=[OnlyWhileExists("replacement")]))

    assert row.counts == ({"deleted": 1, "cancelled": 2} if vanishes else {"deleted": 3})
    assert store.verified.count("replacement") == 2


def test_a_phase_of_which_nothing_is_left_asks_about_nothing() -> None:
    """A first phase that is gone already hangs on nothing any more."""
    store, _ = clocks()
    store.objects["bucket"] -= {"replacement", "commit"}
    keys = KeyProgress([DoneKeys(OutcomeKind.DELETED, "deleted", [0, 1])], [], None, [])
    intent = promised(PHASES, vetoes=[OnlyWhileExists("replacement", [0])])
    row, left = done(store, copied(intent, keys=keys))

    assert (row.counts, left) == ({"deleted": 3}, [])


@pytest.mark.parametrize("status", [None, 403], ids=["seen", "not to be seen"])
@pytest.mark.parametrize("waited", [False, True], ids=["after a crash", "as a copy says"])
def test_i_7_what_may_be_gone_is_seen_before_it_is_cancelled(status: int | None, waited: bool) -> None:
    """I7: an attempt before may have deleted it: `absent` if so, and no word while nobody can tell."""
    store, wall = clocks(NOW + HOUR, NOW + HOUR, look_status=status)
    store.objects["bucket"].discard("commit")
    intent = promised(PHASES, vetoes=[ExpiresAt(NOW)])
    if waited:
        given: bytes | DeferredIntent = copied(intent, keys=KeyProgress([], [0, 1], None, []))
        row, _ = done(store, given, wall=wall)
    else:
        row, _ = done(store, intent, wall=wall, earlier=SentBefore({0: 100}))

    assert store.sent == []
    if status is None:
        assert isinstance(row, Outcome)
        assert (row.counts, row.effects) == ({"absent": 1, "cancelled": 2}, {"absent": 1})
    else:
        assert isinstance(row, DeferredIntent)
        assert row.keys is not None


@pytest.mark.parametrize("bound", [False, True], ids=["plain", "bound"])
def test_of_two_that_need_each_other_one_stays(bound: bool) -> None:
    """Asked about in one go, each would be seen to stand; the second one waits, and is cancelled then."""
    store = Store(objects={"bucket": {"a", "b"}}, date=lambda: NOW, batch_condition=Ability.YES)
    task = work_of(Issuer(), store)
    for offset, (key, other) in enumerate([("a", "b"), ("b", "a")]):
        guards = [UnchangedGuard([KeyCondition(key, '"e"')])] if bound else []
        action = DeleteObjects("bucket", ((key,),))
        intent = promised(action, *guards, vetoes=[OnlyWhileExists(other)])
        take(task, [Record(0, offset, 0, b"tenant", intent)])
    topics = [row.topic for row in settle(task)]

    assert (sorted(topics), store.objects["bucket"]) == (["deferred", "outcomes"], {"b"})


def test_i_7_versions_that_stand_are_cancelled() -> None:
    """I7: a marker hides the key, an attempt before may have erased some: not `absent` while any stands."""
    store = Versioned(objects={"bucket": set()}, date=lambda: NOW + HOUR, listed=["marker", "v1"])
    store.in_order = store.exact = Ability.YES
    action = DeleteObjects("bucket", (("k",),), DeleteMode.ERASE_ALL_VERSIONS)
    intent = promised(action, vetoes=[ExpiresAt(NOW)])
    (row,) = written(store, copied(intent, keys=KeyProgress([], [0, 1], None, [])), wall=NOW + HOUR)

    assert isinstance(row, Outcome)
    assert (row.counts, store.sent) == ({"cancelled": 1}, [])


def test_a_held_bucket_comes_before_a_veto() -> None:
    """While nothing can be sent nothing is decided either: it waits for its bucket."""
    store, _ = clocks(answer=lambda number, bucket, item: BUSY)
    row, _ = done(store, promised(PHASES, vetoes=[OnlyWhileExists("replacement")]))

    assert isinstance(row, DeferredIntent)
    assert row.reason == "SlowDown"
    assert row.waiting_since is not None


def test_what_was_not_asked_keeps_a_phase_from_beginning() -> None:
    """However it came that nobody has answered: an unknown is never a yes."""
    execution = ObjectsExecution(PHASES, gate=Gate([OnlyWhileExists("replacement")]))
    execution.bucket = Bucket("bucket", bypass=False)
    sender: Any = SimpleNamespace(dry=False, now=lambda bucket: Now(NOW, NOW))

    assert not execution.may_begin(sender)
    assert execution.held is not None
    assert execution.held.reason == "veto-unknown"


@pytest.mark.parametrize(
    ("beside", "in_order", "there", "expected"),
    [
        ([], Ability.UNKNOWN, True, "deleted"),
        (["replacement-2"], Ability.YES, True, "deleted"),
        ([], Ability.UNKNOWN, False, "cancelled"),
        (["replacement-2"], Ability.YES, False, "cancelled"),
        (["replacement-2"], Ability.UNKNOWN, False, "waits"),
    ],
)
@pytest.mark.parametrize("status", [400, 403])
def test_where_a_head_cannot_tell_an_exact_listing_does(
    beside: list[str], in_order: Ability, there: bool, expected: str, status: int
) -> None:
    """As of an object under a customer's key, whose HEAD is refused to whoever has not got that."""
    store, _ = clocks(look_status=status, in_order=in_order)
    store.objects["bucket"].update(beside)
    if not there:
        store.objects["bucket"].discard("replacement")
    row, _ = done(store, promised(PHASES, vetoes=[OnlyWhileExists("replacement")]))

    found = "waits" if isinstance(row, DeferredIntent) else row.outcome.value
    assert found == expected


@pytest.mark.parametrize("name", ["replacement+", "new/é"])
def test_a_listing_that_may_name_another_key_tells_nothing(name: str) -> None:
    """Of a name that some stores list as another one, unless theirs was seen to be exact."""
    store, _ = clocks(look_status=403)
    store.objects["bucket"].add(name)
    row, _ = done(store, promised(PHASES, vetoes=[OnlyWhileExists(name)]))

    assert (row.reason, store.sent) == ("veto-unknown", [])


def test_a_listing_that_is_refused_tells_nothing() -> None:
    """Whoever may neither look nor list knows nothing of what is there."""
    store, _ = clocks(look_status=403)

    def refused(*args: object, **given: object) -> Any:
        raise StoreRefused("no", code="AccessDenied", status=403)

    store.list_slice = refused  # type: ignore[method-assign]
    row, _ = done(store, promised(PHASES, vetoes=[OnlyWhileExists("replacement")]))

    assert (row.reason, store.sent) == ("veto-unknown", [])


@pytest.mark.parametrize(
    ("action", "key"),
    [(PHASES, "commit"), (PHASES, "data-2"), (DeletePrefix("bucket", "p/"), "p/x")],
    ids=["of an earlier phase", "of the same", "under the prefix"],
)
def test_an_intent_that_would_stop_itself_is_refused_where_it_is_made(
    action: DeleteObjects | DeletePrefix, key: str
) -> None:
    """It asks for what it deletes: its next attempt would find that gone."""
    (letter,) = written(Store(), promised(action, vetoes=[OnlyWhileExists(key)]))

    assert (letter.reason, "itself deletes" in letter.detail) == ("invalid-intent", True)


@pytest.mark.parametrize("there", [True, False])
def test_a_dry_run_asks_about_vetoes(there: bool) -> None:
    """That only reads; what hangs on no veto asks for nothing."""
    store, _ = clocks()
    if not there:
        store.objects["bucket"].discard("replacement")
    intent = promised(PHASES, vetoes=[OnlyWhileExists("replacement")])
    (row,) = written(None, intent, reads=lambda: store)

    assert row.counts == {"deleted" if there else "cancelled": 3}
    assert (store.sent, store.verified) == ([], ["replacement"] * (2 if there else 1))


def test_a_dry_run_without_rights_at_the_store_says_that_it_waits() -> None:
    """Nothing else of the run ends by it."""
    intent = promised(PHASES, vetoes=[OnlyWhileExists("replacement")])

    def nobody() -> Any:
        raise StoreUnavailable("no credentials")

    (row,) = written(None, intent, reads=nobody)
    assert row.reason == "veto-unknown"


def test_a_veto_without_a_room_keeps_its_intent_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left out, it would delete more than was asked for: a newer reaper may know it."""
    monkeypatch.setattr("sexton.streaming_jobs.reaper.judge.VETOES", {})
    store, _ = clocks()
    row, left = done(store, promised(PHASES, vetoes=[ExpiresAt(NOW + HOUR)]))

    assert (row.reason, store.sent, len(left)) == ("veto-not-judged", [], 3)
