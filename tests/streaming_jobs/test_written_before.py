"""Prefixes narrowed: by a suffix, and to what was written up to an instant by the store's clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.execute_stage import Store
from tests.support.prefixes import ERASE, lists, work
from tests.support.s3_recorder import Recorded, S3Recorder
from tests.support.s3_state import Traits
from tests.support.task_work import NOW, copied, promised, written

from sexton.schemas.events import (
    DeferredIntent,
    DeleteMode,
    DeletePrefix,
    ExpiresAt,
    OnlyWhileExists,
    Outcome,
    PromiseGuard,
    TransactionGuard,
    TransactionState,
)
from sexton.storage import Abilities, Ability, BatchDeleter, Listed, ListedVersion
from sexton.streaming_jobs.reaper.actions.delete_prefix.progress import PrefixProgress
from sexton.streaming_jobs.reaper.actions.delete_prefix.scope import Lot, Scope

SECOND = timedelta(seconds=1)
ACTION = DeletePrefix("b", "p/", tombstone="t")


def late(step: Any) -> tuple[Any, ...]:
    """How a step ended: its state, what is gone, what came too late."""
    return step.state, step.progress.gone, step.late


def aged(recorder: S3Recorder, seconds: float, *keys: str, bucket: str = "b") -> None:
    """Have objects written so many seconds ago (ahead: a negative number)."""
    for key in keys:
        for version in recorder.buckets.of(bucket).versions[key]:
            version.written_at -= seconds


@pytest.mark.parametrize("mode", [DeleteMode.HIDE, ERASE])
@pytest.mark.parametrize("versioning", ["", "Enabled"])
def test_what_is_written_after_the_first_listing_stays(
    recorder: S3Recorder, deleter: BatchDeleter, mode: DeleteMode, versioning: str
) -> None:
    """G-8: it is counted, nothing else stays, and so does the tombstone: the prefix is in use."""
    bucket = "v" if versioning else "b"
    recorder.create_bucket(bucket, dict.fromkeys(["p/1", "p/2", "p/3", "t"], b""), versioning=versioning)
    aged(recorder, 60, "p/1", "p/2", "p/3", "t", bucket=bucket)
    left = iter(["p/0", "p/4", "p/5"])

    def write(request: Recorded) -> None:
        if request.keys and (name := next(left, None)):
            recorder.buckets.fill(bucket, {name: b"new"})
            aged(recorder, -5, name, bucket=bucket)

    recorder.script(write)
    action = replace(ACTION, bucket=bucket, mode=mode)
    step = work(deleter, action, max_objects=2, ends_writes=False)
    assert step.state == "more"
    instant = step.progress.written_before
    assert instant is not None
    step = work(deleter, action, step.progress, ends_writes=False)

    assert (late(step)[:2], step.late > 0, step.failed) == (("done", 3), True, ())
    assert step.progress.written_before == instant  # as it was at the first listing
    current = {key for key, _ in recorder.buckets.of(bucket).objects()}
    assert "t" in current
    assert not current & {"p/1", "p/2", "p/3"}
    assert len(current) == step.late + 1
    assert "the tombstone stays" in step.note


def test_a_prefix_that_is_written_to_for_ever_ends(recorder: S3Recorder, deleter: BatchDeleter) -> None:
    """G-8: each of its listings meets something new; it does not keep the intent alive."""
    recorder.create_bucket("b", {"p/1": b"", "p/2": b""})
    number = iter(range(10**6))

    def write(request: Recorded) -> None:
        name = f"p/new-{next(number):06}"
        recorder.buckets.fill("b", {name: b""})
        aged(recorder, -60, name)

    recorder.script(write)
    step = work(deleter, DeletePrefix("b", "p/"), ends_writes=False)

    assert late(step)[:2] == ("done", 2)
    assert step.late == len(recorder.objects("b")) >= len(lists(recorder))
    assert all(key.startswith("p/new-") for key in recorder.objects("b"))


def test_more_latecomers_than_a_step_goes_through_end_it(recorder: S3Recorder, deleter: BatchDeleter) -> None:
    """After the first pass nothing that is old enough was met: there is no use in listing them again."""
    recorder.create_bucket("b", {f"p/{i:04}": b"" for i in range(2500)})
    aged(recorder, -60, *recorder.objects("b"))
    always = {"deadline": lambda: True, "ends_writes": False}
    progress, steps = PrefixProgress(), 0
    while (step := work(deleter, DeletePrefix("b", "p/"), progress, **always)).state == "more":
        progress, steps = step.progress, steps + 1
        assert steps < 10

    assert late(step) == ("done", 0, 1000)
    assert "not everything was listed again" in step.note
    assert len(recorder.objects("b")) == 2500


def test_g_8_a_newest_version_stays_above_a_late_one_of_the_next_page(
    recorder: S3Recorder, deleter: BatchDeleter
) -> None:
    """G-8: were it gone, what it had replaced would come to light again."""
    recorder.create_bucket("v", {f"p/{i:04}": b"" for i in range(998)}, versioning="Enabled")
    for body in (b"replaced", b"between", b"newest"):
        recorder.buckets.fill("v", {"p/9": body})
    aged(recorder, 100, *recorder.objects("v"), bucket="v")
    recorder.buckets.of("v").versions["p/9"][0].written_at += 500
    step = work(deleter, DeletePrefix("v", "p/", mode=ERASE), ends_writes=False)

    assert late(step) == ("done", 999, 1)
    assert recorder.objects("v") == {"p/9": b"newest"}


@pytest.mark.parametrize("suffix", [None, ".x"], ids=["late", "beside"])
@pytest.mark.parametrize("in_order", [Ability.YES, Ability.NO], ids=["in order", "in no order"])
def test_what_stays_and_is_more_than_a_step_goes_through_ends_it(
    recorder: S3Recorder, deleter: BatchDeleter, in_order: Ability, suffix: str | None
) -> None:
    """Where no pass comes to the end something may be left: in no order nobody has seen it, which is said."""
    recorder.create_bucket("b", {f"p/{i:04}": b"" for i in range(2500)})
    aged(recorder, -60, *recorder.objects("b"))
    deleter.learn(replace(deleter.probe("b"), lists_in_order=in_order))
    always = {"deadline": lambda: True, "ends_writes": False, "max_objects": 1000}
    progress, steps = PrefixProgress(), 0
    while (step := work(deleter, DeletePrefix("b", "p/", suffix=suffix), progress, **always)).state == "more":
        progress, steps = step.progress, steps + 1
        assert steps < 10

    assert "not everything was listed" in step.note
    failed = [(key, state.code) for key, state in step.failed]
    assert failed == ([] if in_order is Ability.YES else [("p/", "NotListed")])
    assert len(recorder.objects("b")) == 2500


@pytest.mark.parametrize("clock_s", [-3600.0, 0.0, 3600.0], ids=["behind", "equal", "ahead"])
def test_an_instant_that_is_named_is_by_the_stores_clock(
    recorder: S3Recorder, deleter: BatchDeleter, clock_s: float
) -> None:
    """Whatever ours shows; and the first listing changes nothing about it."""
    recorder.create_bucket("b", dict.fromkeys(["p/old", "p/new"], b""))
    recorder.buckets.traits = Traits(clock_s=clock_s)
    aged(recorder, 100, "p/old")
    aged(recorder, 10, "p/new")
    limit = datetime.now(UTC) + timedelta(seconds=clock_s - 50)
    step = work(deleter, DeletePrefix("b", "p/", written_before=limit), ends_writes=False)

    assert (late(step), list(recorder.objects("b"))) == (("done", 1, 1), ["p/new"])


def test_only_names_with_the_suffix_go(recorder: S3Recorder, deleter: BatchDeleter) -> None:
    """All others are nobody's business: they are neither counted nor in the way of the tombstone."""
    names = ["p/a.23", "p/b.24", "p/23", "p/c/d.23", "p/.23", "p/x.23.bak", "q.23", "t"]
    recorder.create_bucket("b", dict.fromkeys(names, b""))
    step = work(deleter, replace(ACTION, suffix=".23"))

    assert late(step) == ("done", 4, 0)  # with the tombstone
    assert sorted(recorder.objects("b")) == ["p/23", "p/b.24", "p/x.23.bak", "q.23"]


def test_what_is_overwritten_after_the_listing_stays_where_the_store_checks_it(
    recorder: S3Recorder, deleter: BatchDeleter
) -> None:
    """By its ETag: new data under an old key is not what was listed."""
    recorder.create_bucket("c", dict.fromkeys(["p/1", "p/2"], b"old"))
    aged(recorder, 60, "p/1", "p/2", bucket="c")
    once = iter([True])

    def overwrite(request: Recorded) -> None:
        if "p/1" in request.keys and next(once, False):
            recorder.buckets.fill("c", {"p/1": b"new"})
            aged(recorder, -5, "p/1", bucket="c")

    recorder.script(overwrite)
    step = work(deleter, DeletePrefix("c", "p/"), ends_writes=False)

    assert (late(step), recorder.objects("c")) == (("done", 1, 1), {"p/1": b"new"})


OLD, NEW = NOW - SECOND, NOW + SECOND


@pytest.mark.parametrize(
    ("written_at", "lot"),
    [
        (OLD, Lot.GOES),
        (NOW, Lot.GOES),
        (NOW + SECOND * 0.9, Lot.GOES),  # a Date has no parts of a second
        (NEW, Lot.LATE),
        (None, "NoLastModified"),
    ],
)
@pytest.mark.parametrize("version", [True, False], ids=["version", "object"])
def test_when_it_was_written_decides(written_at: datetime | None, lot: Lot | str, version: bool) -> None:
    """To the second; what the listing does not say is never taken for old."""
    scope = Scope(DeletePrefix("b", "p/"), Abilities("b"), NOW)
    entry: Listed | ListedVersion = Listed("p/a", "", 0, written_at=written_at)
    if version:
        entry = ListedVersion("p/a", "v", True, False, written_at=written_at)
    found = scope.lot(entry)

    assert (found if isinstance(found, Lot) else found.code) == lot


def test_an_object_is_bound_by_its_etag_only_where_that_is_checked() -> None:
    """Elsewhere a condition would be refused, or believed for nothing."""
    store = Store(objects={"bucket": {"p/1"}}, batch_condition=Ability.NO)
    (outcome,) = written(store, promised(DeletePrefix("bucket", "p/")))

    assert (outcome.counts, store.sent) == ({"deleted": 1}, [("bucket", ["p/1"])])


def narrowed(store: Store, given: bytes | DeferredIntent, **work: Any) -> Any:
    """The one row that is written of a prefix."""
    (row,) = written(store, given, **work)
    return row


def test_a_copy_keeps_the_instant_and_the_outcome_says_what_stays() -> None:
    """Slice after slice; what came too late is among the effects, and the detail says since when."""
    store = Store(objects={"bucket": {"p/1", "p/2", "p/3"}}, date=lambda: NOW, written={"p/3": NEW})
    copy = narrowed(store, promised(DeletePrefix("bucket", "p/")), slices=1)
    assert isinstance(copy, DeferredIntent)
    assert (copy.written_before, copy.gone, copy.reason) == (NOW, 1, "slice")
    store.date = lambda: NEW  # a later listing fixes nothing
    outcome = narrowed(store, copy)

    assert isinstance(outcome, Outcome)
    assert (outcome.counts, outcome.effects) == ({"deleted": 2}, {"deleted": 2, "written-later": 1})
    assert "1 written after 2026-01-02T00:00:00.000Z stay" in outcome.verdict.detail
    assert store.objects["bucket"] == {"p/3"}


def test_a_listing_without_a_date_ends_its_prefix_alone() -> None:
    """Up to when is not known then, and no waiting mends it; unless the intent says it."""
    store = Store(objects={"bucket": {"p/1"}}, date=None)
    dead, outcome = written(store, promised(DeletePrefix("bucket", "p/")))
    assert (dead.reason, dead.keys, store.sent) == ("NoDate", ["p/"], [])
    assert outcome.counts == {"dead-lettered": 1}

    outcome = narrowed(store, promised(DeletePrefix("bucket", "p/", written_before=NOW)))
    assert outcome.counts == {"deleted": 1}


def test_nothing_but_latecomers_is_absent() -> None:
    """Nothing was deleted, and nothing of what was asked for is there."""
    store = Store(objects={"bucket": {"p/3"}}, date=lambda: NOW, written={"p/3": NEW})
    outcome = narrowed(store, promised(DeletePrefix("bucket", "p/")))

    assert (outcome.outcome.value, outcome.effects) == ("absent", {"written-later": 1})


def test_a_copy_that_waits_for_something_else_keeps_the_instant() -> None:
    """Held, or judged anew: the first listing counts."""
    store = Store(objects={"bucket": {"p/1"}}, date=lambda: NOW, probe_error=lambda bucket: OSError("no"))
    copy = copied(promised(DeletePrefix("bucket", "p/")), written_before=OLD, gone=3)
    held = narrowed(store, copy)

    assert isinstance(held, DeferredIntent)
    assert (held.written_before, held.gone) == (OLD, 3)


def test_where_nobody_writes_any_more_no_instant_binds_it() -> None:
    """All uploads of a rejected transaction have ceased; of others nobody knows it."""
    states = {state: TransactionGuard("t", 1, state).ends_writes for state in TransactionState}

    assert states == {TransactionState.REJECTED: True, TransactionState.COMMITTED: False}
    assert not PromiseGuard("o").ends_writes


@pytest.mark.parametrize("gone", [0, 3], ids=["nothing went", "some went before"])
def test_a_veto_stops_a_prefix_between_its_slices(gone: int) -> None:
    """Asked about before each slice; what went before keeps its outcome."""
    store = Store(objects={"bucket": {"p/1"}}, date=lambda: NEW)
    intent = promised(DeletePrefix("bucket", "p/"), vetoes=[ExpiresAt(NOW)])
    outcome = narrowed(store, copied(intent, gone=gone) if gone else intent, wall=NEW)

    went = {"deleted": gone} if gone else {}
    assert (outcome.counts, outcome.effects) == ({**went, "cancelled": 1}, went)
    assert (outcome.outcome.value, outcome.verdict.reason, store.sent) == ("cancelled", "expired", [])


@pytest.mark.parametrize(
    ("there", "status", "expected"),
    [(True, None, {"deleted": 1}), (False, None, {"cancelled": 1}), (True, 500, None)],
    ids=["there", "gone", "unknown"],
)
def test_a_prefix_goes_only_while_something_exists(
    there: bool, status: int | None, expected: dict[str, int] | None
) -> None:
    """Where nobody can tell, it waits, and nothing is listed."""
    store = Store(objects={"bucket": {"p/1", *(["new"] if there else [])}}, look_status=status)
    row = narrowed(store, promised(DeletePrefix("bucket", "p/"), vetoes=[OnlyWhileExists("new")]))

    if expected is None:
        assert (row.reason, row.waiting_since, store.sent) == ("veto-unknown", None, [])
    else:
        assert row.counts == expected
        assert ("p/1" in store.objects["bucket"]) == ("cancelled" in expected)
