"""Pauses between phases: the next one begins that long after the one before it was acknowledged gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support.execute_stage import BUSY, CUT, Store
from tests.support.task_work import NOW, copied, promised, written

from sexton.schemas.events import (
    DeferredIntent,
    DeleteObjects,
    ExpiresAt,
    NotBeforeGuard,
    Outcome,
    OutcomeKind,
)
from sexton.storage import StoreRefused
from sexton.streaming_jobs.reaper.execute.gate import Gate
from sexton.streaming_jobs.reaper.recovery.attempts import SentBefore
from sexton.streaming_jobs.reaper.vetoes import Now

HOUR = timedelta(hours=1)
PAUSED = DeleteObjects("bucket", (("commit",), ("data-1", "data-2"), ("folder",)), pause_s=3600)
ALL = ["commit", "data-1", "data-2", "folder"]


def bucket(clock: datetime | None = NOW, left: list[str] = ALL, **given: Any) -> Store:
    """A bucket whose clock shows one time."""
    return Store(objects={"bucket": set(left)}, date=None if clock is None else lambda: clock, **given)


def sent(store: Store) -> list[str]:
    """The keys of all requests."""
    return [str(item) for _, items in store.sent for item in items]


def one(store: Store, given: bytes | DeferredIntent, wall: datetime = NOW, **work: Any) -> Any:
    """The one row that is written of an intent."""
    (row,) = written(store, given, wall=wall, **work)
    return row


def paused(store: Store | None = None, **changes: Any) -> DeferredIntent:
    """The copy of an intent whose first phase is gone."""
    copy = one(store or bucket(), promised(replace(PAUSED, **changes)))
    assert isinstance(copy, DeferredIntent)
    return copy


@pytest.mark.parametrize("ahead", [-HOUR, timedelta(), HOUR], ids=["behind", "equal", "ahead"])
def test_a_pause_is_counted_from_the_acknowledged_end_of_the_phase_before(ahead: timedelta) -> None:
    """By the clock that is ahead; the copy has the instant, key by key what is gone, and grows no older."""
    store = bucket(NOW + ahead)
    copy = one(store, promised(PAUSED))

    assert isinstance(copy, DeferredIntent)
    assert (sent(store), copy.reason, copy.waiting_since) == (["commit"], "paused", None)
    assert copy.resumes_at == NOW + HOUR + max(ahead, timedelta())
    assert copy.retry_at == copy.resumes_at + max(-ahead, timedelta())  # as the reaper's clock will show it
    assert copy.keys is not None
    assert [(done.outcome, done.ranges) for done in copy.keys.done] == [(OutcomeKind.DELETED, [0, 1])]


@pytest.mark.parametrize(
    ("reaper", "clock", "passed"),
    [
        (HOUR, HOUR, False),  # at the instant it has not passed yet
        (2 * HOUR, HOUR / 2, False),
        (HOUR / 2, 2 * HOUR, False),
        (2 * HOUR, None, False),
        (2 * HOUR, 2 * HOUR, True),
    ],
    ids=["at the instant", "the bucket's is behind", "the reaper's is behind", "no Date", "both have passed"],
)
def test_a_pause_has_passed_when_both_clocks_have(
    reaper: timedelta, clock: timedelta | None, passed: bool
) -> None:
    """By one alone nothing more is sent, and the instant stays what it was."""
    copy = paused()
    store = bucket(None if clock is None else NOW + clock, ALL[1:])
    again = one(store, copy, NOW + reaper)

    assert isinstance(again, DeferredIntent)
    if passed:
        assert (sent(store), again.reason) == (ALL[1:3], "paused")
        assert again.resumes_at == NOW + 3 * HOUR  # of the next phase, from now on
    else:
        assert (store.sent, again.reason, again.resumes_at) == ([], "paused", copy.resumes_at)
        assert again.keys == copy.keys


def test_the_last_phase_ends_it() -> None:
    """Phase after phase, a pause before each but the first; one outcome at the end."""
    second = one(bucket(NOW + 2 * HOUR), paused(), NOW + 2 * HOUR)
    store = bucket(NOW + 4 * HOUR, ["folder"])
    outcome = one(store, second, NOW + 4 * HOUR)

    assert isinstance(outcome, Outcome)
    assert (sent(store), outcome.counts) == (["folder"], {"deleted": 4})


def test_a_phase_that_has_begun_is_not_paused_again() -> None:
    """What its bucket held of it is sent once more, and its age counts as any other's."""
    busy = bucket(NOW + 2 * HOUR, answer=lambda number, bucket, item: BUSY)
    held = one(busy, paused(), NOW + 2 * HOUR)
    assert isinstance(held, DeferredIntent)
    assert (held.reason, held.waiting_since is None, held.resumes_at) == ("SlowDown", False, NOW + HOUR)

    store = bucket(NOW + 3 * HOUR)
    again = one(store, held, NOW + 3 * HOUR)
    assert (sent(store), again.resumes_at) == (ALL[1:3], NOW + 4 * HOUR)


def test_a_bucket_that_closes_between_phases_shortens_no_pause() -> None:
    """The instant of the phase that comes next is in the copy, however that came to be."""
    second = one(bucket(NOW + 2 * HOUR), paused(), NOW + 2 * HOUR)
    away = StoreRefused("no", code="NoSuchBucket", status=404)
    held = one(bucket(NOW + 2 * HOUR, probe_error=lambda bucket: away), second, NOW + 2 * HOUR)
    assert (held.reason, held.resumes_at) == ("NoSuchBucket", NOW + 3 * HOUR)

    # A later phase never takes over the instant of the one before it.
    store = bucket(NOW + 3 * HOUR, ["folder"])
    assert one(store, held, NOW + 3 * HOUR).reason == "paused"
    assert store.sent == []


@pytest.mark.parametrize("known", [True, False], ids=["a copy of it was written", "none was"])
def test_a_replay_only_lengthens_a_pause(known: bool) -> None:
    """A crash after the first phase: verified, and counted from now; a copy keeps what it says."""
    store, later = bucket(NOW + HOUR / 2, ALL[1:]), NOW + HOUR / 2
    if known:
        row = one(store, paused(), later, earlier=SentBefore({0: 1000}))
    else:
        row = one(store, promised(PAUSED), later, earlier=SentBefore({0: 1000}))

    assert isinstance(row, DeferredIntent)
    assert row.resumes_at == (NOW + HOUR if known else later + HOUR)
    assert [key for key in sent(store) if key != "commit"] == []


def test_a_first_phase_of_unknown_effect_starts_no_pause() -> None:
    """Only what is acknowledged gone counts: until then the phase itself waits."""
    store = bucket(answer=lambda number, bucket, item: CUT, look_status=500)
    copy = one(store, promised(PAUSED))

    assert isinstance(copy, DeferredIntent)
    assert (copy.resumes_at, copy.reason != "paused") == (None, True)


def test_a_pause_is_kept_while_the_intent_is_judged_anew() -> None:
    """Its guards wait by themselves, say; the instant stays as it is."""
    copy = copied(promised(PAUSED, NotBeforeGuard(NOW + 2 * HOUR)), resumes_at=NOW + HOUR)
    again = one(bucket(), copy)

    assert isinstance(again, DeferredIntent)
    assert (again.reason, again.resumes_at) == ("not-before", NOW + HOUR)


def test_what_expires_while_it_pauses_is_cancelled() -> None:
    """What went before keeps its outcome, and the rest stays."""
    intent = promised(PAUSED, vetoes=[ExpiresAt(NOW + HOUR / 2)])
    copy = one(bucket(), intent)
    store = bucket(NOW + 2 * HOUR, ALL[1:])
    outcome = one(store, copy, NOW + 2 * HOUR)

    assert isinstance(outcome, Outcome)
    assert (outcome.counts, outcome.verdict.reason) == ({"deleted": 1, "cancelled": 3}, "expired")
    assert store.objects["bucket"] == {*ALL[1:]}


def test_without_a_pause_phases_follow_each_other() -> None:
    """Nothing is counted and nothing waits."""
    store = bucket()
    outcome = one(store, promised(replace(PAUSED, pause_s=0)))

    assert (outcome.counts, len(store.sent)) == ({"deleted": 4}, 3)


def test_a_dry_run_says_that_it_would_pause() -> None:
    """The first phase would go, and the rest wait."""
    row = one(None, promised(PAUSED))  # type: ignore[arg-type]

    assert (row.reason, row.resumes_at) == ("paused", NOW + HOUR)


def test_the_instant_is_that_of_the_clock_that_is_ahead() -> None:
    """One that tells no time adds nothing: it has to tell one before the pause is over."""
    gate = Gate(pause_s=60)
    ends = [gate.resumes_at(Now(NOW, store)) for store in (NOW - HOUR, NOW, NOW + HOUR, None)]

    minute = timedelta(minutes=1)
    assert ends == [NOW + minute, NOW + minute, NOW + HOUR + minute, NOW + minute]
