"""The veto `unless_whole`: decided by a listing of what the commit object names, never by what was sent."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.execute_stage import Store
from tests.support.task_work import NOW, Issuer, promised, work_of, written

from sexton.schemas.events import (
    DeferredIntent,
    DeleteMode,
    DeleteObjects,
    DeletePrefix,
    KeyCondition,
    Outcome,
    UnchangedGuard,
    UnlessWhole,
)
from sexton.schemas.units import Named, named_by
from sexton.storage import Listed, NoReply, Slice, Versioning
from sexton.streaming_jobs.reaper.decode import Record
from sexton.streaming_jobs.reaper.execute.items import key_of
from sexton.streaming_jobs.reaper.vetoes import unless_whole
from sexton.streaming_jobs.reaper.work import settle, take

META, INDEX, CHUNK = "01A/meta.json", "01A/index", "01A/chunks/000001"
UNIT = DeleteObjects("bucket", ((META,), (INDEX, CHUNK)))
SECOND = [UnlessWhole(META, [1])]


def meta(*files: tuple[str, int | None], **changes: Any) -> bytes:
    """A commit object that names files with their sizes; without any it has no list."""
    listed = [{"rel_path": path} | ({} if size is None else {"size_bytes": size}) for path, size in files]
    return json.dumps({"version": 1, "thanos": {"files": listed} if files else {}} | changes).encode()


WHOLE = meta(("index", 5), ("chunks/000001", 7), ("meta.json", None))


def unit(
    commit: bytes | None, index: bytes = b"index", chunk: bytes | None = b"chunk-1", **given: Any
) -> Store:
    """A bucket with a unit: its commit object, if it is there, and its files."""
    bodies = {META: commit, INDEX: index, CHUNK: chunk, "01B/index": b"other"}
    there = {key: body for key, body in bodies.items() if body is not None}
    return Store(objects={"bucket": set(there)}, bodies=there, date=lambda: NOW, **given)


def restored(commit: bytes | None, **given: Any) -> tuple[Any, Store]:
    """What becomes of the second phase, of a unit whose commit object was deleted and is there again."""
    gone = DeleteObjects("bucket", UNIT.phases, pause_s=1)
    (copy,) = written(unit(b""), promised(gone, vetoes=SECOND), wall=NOW)
    assert isinstance(copy, DeferredIntent)
    store = unit(commit, **given)
    store.date = lambda: NOW + timedelta(minutes=1)
    (row,) = written(store, copy, wall=NOW + timedelta(minutes=1))
    return row, store


@pytest.mark.parametrize(
    "commit",
    [WHOLE, meta(("index", None), ("chunks/000001", None)), meta(), meta(thanos={})],
    ids=["with sizes", "without sizes", "no list", "no list of files"],
)
def test_what_somebody_has_put_back_whole_is_kept(commit: bytes) -> None:
    """The rest of it is cancelled; what went before keeps its outcome."""
    row, store = restored(commit)

    assert isinstance(row, Outcome)
    assert (row.counts, row.verdict.reason) == ({"deleted": 1, "cancelled": 2}, "whole")
    assert store.sent == []


@pytest.mark.parametrize(
    ("commit", "given"),
    [
        (WHOLE, {"chunk": None}),
        (WHOLE, {"index": b"cut"}),
        (meta(), {"chunk": None}),
    ],
    ids=["a file is missing", "a file is cut", "no list, and no chunk"],
)
def test_of_half_a_unit_the_commit_object_goes_first(commit: bytes, given: dict[str, Any]) -> None:
    """Data that goes below a commit object would leave a unit that names what is gone."""
    row, store = restored(commit, **given)

    assert isinstance(row, Outcome)
    assert (row.counts, row.outcome.value) == ({"deleted": 3}, "deleted")
    assert [items for _, items in store.sent] == [[META], [INDEX, CHUNK]]
    assert store.objects["bucket"] == {"01B/index"}


def test_without_a_commit_object_the_phase_goes_on() -> None:
    """As it is after the first phase."""
    row, store = restored(None)

    assert (row.counts, store.objects["bucket"]) == ({"deleted": 3}, {"01B/index"})


@pytest.mark.parametrize(
    ("commit", "given"),
    [
        (b"{", {}),
        (b"\xff", {}),
        (b"[]", {}),
        (meta(version=2), {}),
        (meta(("", 1)), {}),
        (meta(thanos={"files": []}), {}),
        (meta(thanos={"files": "index"}), {}),
        (meta(thanos=1), {}),
        (meta(("../01A/index", 5)), {}),
        (meta(("/index", 5)), {}),
        (meta(("./index", 5)), {}),
        (meta(("index", 5), ("index", 6)), {}),
        (meta(("index", -1)), {}),
        (WHOLE, {"look_status": 403}),
        (WHOLE, {"look_status": 500}),
    ],
    ids=[
        "cut",
        "no text",
        "no object",
        "newer",
        "no path",
        "no files",
        "no list",
        "odd",
        "outside",
        "absolute",
        "another spelling",
        "twice",
        "negative",
        "denied",
        "in doubt",
    ],
)
def test_what_nobody_can_tell_waits(commit: bytes, given: dict[str, Any]) -> None:
    """An unknown is never a yes: a commit object that is there and cannot be loaded may be a newer one."""
    row, store = restored(commit, **given)

    assert isinstance(row, DeferredIntent)
    assert (row.reason, row.waiting_since, store.sent) == ("veto-unknown", None, [])


def test_a_listing_that_may_show_other_keys_says_nothing() -> None:
    """Of a store that was not seen to list exactly, a name of odd characters may be another key's."""
    odd = "01A/chunks/a b"
    store = unit(WHOLE)
    store.objects["bucket"].add(odd)
    (row,) = written(store, promised(UNIT, vetoes=[UnlessWhole(META)]))

    assert (row.reason, store.sent) == ("veto-unknown", [])


def test_a_commit_object_that_is_not_the_intents_own_is_never_deleted() -> None:
    """Its guards say nothing of it: the intent waits until it is gone, or whole."""
    action = DeleteObjects("bucket", ((INDEX, CHUNK),))
    store = unit(WHOLE, index=b"cut")
    (row,) = written(store, promised(action, vetoes=[UnlessWhole(META)]))

    assert (row.reason, store.sent) == ("veto-unknown", [])


def test_what_cannot_be_read_of_one_unit_is_no_fault_of_its_bucket() -> None:
    """A commit object that is too long to read keeps its own intent waiting, and no neighbour."""
    store = unit(WHOLE)

    def too_long(bucket: str, key: str) -> bytes:
        raise NoReply("more than 32 MiB", effect_unknown=False, code="UnreadableReply")

    store.get = too_long  # type: ignore[method-assign]
    task = work_of(Issuer(), store)
    veto = promised(UNIT, vetoes=[UnlessWhole(META)])
    beside = promised(DeletePrefix("bucket", "01B/"))
    take(task, [Record(0, 5, 0, b"tenant", veto), Record(0, 6, 0, b"tenant", beside)])
    settle(task)

    assert store.objects["bucket"] == {META, INDEX, CHUNK}
    assert not task.execute.executor.failing()


def test_what_lists_too_many_files_is_no_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit object at the root of a bucket has everything beside it: its task would list for hours."""
    monkeypatch.setattr(unless_whole, "_MOST_FILES", 2)
    store = unit(meta(("index", 1)))
    (row,) = written(store, promised(UNIT, vetoes=[UnlessWhole(META)]))

    assert (row.reason, store.sent) == ("veto-unknown", [])


def test_pages_in_no_order_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page begins after the last name of the one before: names that stand elsewhere are left out."""
    store = unit(WHOLE)

    def pages(bucket: str, prefix: str, after: str | None = None) -> Slice:
        files = {INDEX: 5, META: 9, CHUNK: 7}
        found = [Listed(name, "", size) for name, size in files.items() if after is None or name > after]
        return Slice(tuple(found[1:]), found[2].key) if after is None else Slice(tuple(found), None)

    monkeypatch.setattr(store, "list_slice", pages)
    (row,) = written(store, promised(UNIT, vetoes=[UnlessWhole(META)]))

    assert (row.reason, store.sent) == ("veto-unknown", [])


def test_a_commit_object_of_a_later_phase_goes_once() -> None:
    """It goes before all, and is counted where it goes."""
    action = DeleteObjects("bucket", ((INDEX,), (CHUNK, META)))
    store = unit(meta(("index", 1)))
    (row,) = written(store, promised(action, vetoes=[UnlessWhole(META)]))

    assert row.counts == {"deleted": 3}
    assert [items for _, items in store.sent] == [[META], [INDEX], [CHUNK]]


@pytest.mark.parametrize("erases", [False, True], ids=["plain", "one version"])
def test_what_came_back_within_one_attempt_waits_for_the_next(erases: bool) -> None:
    """It was deleted a moment ago: what stands there now is told by the next attempt.

    So it is where one version was erased, and another one stands above it.
    """
    versioning = Versioning.ON if erases else Versioning.OFF
    store = unit(meta(("index", 1)), versioning=versioning)
    kept = store.delete_all

    def back(bucket: str, items: Any, **given: Any) -> Any:
        found = kept(bucket, items, **given)
        store.objects[bucket].add(META)
        return found

    def seldom(bucket: str, key: str) -> bytes:
        assert len(store.verified) < 9, "it goes on for ever"
        return store.bodies[key]

    store.delete_all, store.get = back, seldom  # type: ignore[method-assign]
    versions = UnchangedGuard([KeyCondition(key, version_id="v1") for key in UNIT.keys])
    action = replace(UNIT, mode=DeleteMode.ERASE_VERSION if erases else DeleteMode.HIDE)
    (row,) = written(store, promised(action, *([versions] if erases else []), vetoes=SECOND))

    assert isinstance(row, DeferredIntent)
    assert (row.reason, [[key_of(item) for item in items] for _, items in store.sent]) == (
        "veto-unknown",
        [[META]],
    )


def test_before_the_phase_of_the_commit_object_itself() -> None:
    """It goes alone, before what stands beside it in its phase."""
    action = DeleteObjects("bucket", ((INDEX, META, CHUNK),))
    store = unit(WHOLE, index=b"cut")
    (row,) = written(store, promised(action, vetoes=[UnlessWhole(META)]))

    assert row.counts == {"deleted": 3}
    assert [items for _, items in store.sent] == [[META], [INDEX, CHUNK]]


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "half"])
def test_of_a_prefix(whole: bool) -> None:
    """A prefix names no commit object to go first: half a unit waits."""
    store = unit(WHOLE, index=b"index" if whole else b"cut")
    (row,) = written(store, promised(DeletePrefix("bucket", "01A/"), vetoes=[UnlessWhole(META)]))

    if whole:
        assert (row.counts, row.verdict.reason) == ({"cancelled": 1}, "whole")
    else:
        assert row.reason == "veto-unknown"
    assert store.sent == []


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        ({"index": 1, "chunks/000001": 1, "chunks/000002": 1}, None),
        ({"index": 1, "chunks/000001": 1, "chunks/000003": 1}, "chunks/000002"),
        ({"index": 1, "chunks/000002": 1}, "chunks/000001"),
        ({"index": 1}, "chunks/000001"),
        ({"chunks/000001": 1}, "index"),
        ({"index": 1, "chunks/000001.tmp": 1}, "chunks/000001"),
    ],
)
def test_a_unit_without_a_list_has_an_index_and_unbroken_chunks(
    found: dict[str, int], missing: str | None
) -> None:
    """As a reader of it would need them."""
    assert named_by(meta()).missing(found) == missing


def test_a_file_of_another_size_is_named_with_both() -> None:
    """So that a person sees what was cut."""
    assert Named({"index": 5}).missing({"index": 3}) == "index (3 of 5 bytes)"
    assert replace(Named({"index": None})).missing({"index": 3}) is None
