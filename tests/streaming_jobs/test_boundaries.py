"""Boundary guards in the execute stage: listed, read, raised once, and only then deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.boundaries import (
    BOUNDARY,
    BUCKET,
    COMPACTIONS,
    DELETED,
    Bench,
    asked,
    files,
    outcome,
)
from tests.support.s3_state import Traits
from tests.support.task_work import NOW

from sexton.schemas.events import (
    BoundaryGuard,
    DeleteObjects,
    DeletePrefix,
    ExpiresAt,
    GenerationGuard,
    NotBeforeGuard,
    OnlyWhileExists,
    PromiseGuard,
)
from sexton.schemas.sequenced import MAX_FILE_ID
from sexton.streaming_jobs.reaper.judge import Rules

HOUR = timedelta(hours=1)


def test_the_boundary_is_raised_before_anything_is_deleted(on: Bench) -> None:
    """One list, one read, one conditional write, and then the deletes; raised to the intent's id."""
    (row,) = on.settle(asked(range(4, 9)))

    assert (outcome(row), on.boundary, on.left()) == (DELETED, b"8", [1, 2, 3, 9, 10])
    assert on.calls() == ["list", f"GET {BOUNDARY}", f"PUT {BOUNDARY}", "delete"]
    put = next(request for request in on.s3.requests if request.key == BOUNDARY and request.method == "PUT")
    assert set(put.headers) & {"if-match", "if-none-match"} == {"if-match"}
    assert (on.counts.advances, on.counts.set_back) == (1, {})


def test_where_no_boundary_is_it_is_created(on: Bench) -> None:
    """Absent means 0: the write is conditional on nothing being there."""
    on.set_boundary(None)

    (row,) = on.settle(asked([1, 2]))

    assert (outcome(row), on.boundary) == (DELETED, b"2")
    assert [r.headers.get("if-none-match") for r in on.s3.requests if r.key == BOUNDARY][-1] == "*"


def test_a_boundary_that_is_high_enough_is_not_written(on: Bench) -> None:
    """What was raised before, by whomever, is read and believed; never lowered."""
    on.set_boundary(b" 7\n")

    (row,) = on.settle(asked([4, 5]))

    assert (outcome(row), on.boundary, on.counts.advances) == (DELETED, b" 7\n", 0)
    assert on.calls() == ["list", f"GET {BOUNDARY}", "delete"]


def test_all_intents_of_a_namespace_share_one_list_one_read_and_one_write(on: Bench) -> None:
    """Three intents in one task: raised once, to the highest; another namespace has requests of its own."""
    names = files(range(1, 4), COMPACTIONS)
    on.s3.buckets.fill(BUCKET, dict.fromkeys(names, b"x"))

    rows = on.settle(
        asked([4, 5], name="a"),
        asked([8], name="b"),
        asked([1, 2], name="c", space=COMPACTIONS),
        asked([6], name="d"),
    )

    assert [outcome(row) for row in rows] == [DELETED] * 4
    assert (on.boundary, on.left(), on.left(COMPACTIONS)) == (b"8", [1, 2, 3, 7, 9, 10], [3])
    calls = on.calls()
    assert (calls.count("list"), calls.count(f"PUT {BOUNDARY}"), calls.count(f"GET {BOUNDARY}")) == (2, 1, 1)


@pytest.mark.parametrize("up_to", [10, 11, 10**6, MAX_FILE_ID])
def test_b_2_the_newest_file_and_ids_above_it_are_refused(on: Bench, up_to: int) -> None:
    """B-2: no boundary is raised to where it would lock every writer out; nothing is deleted."""
    (row,) = on.settle(asked([4], up_to))

    assert outcome(row) == ("refused", "refused", "newest-file")
    assert (on.boundary, on.left(), row.counts) == (b"3", list(range(1, 11)), {"refused": 1})
    assert on.calls() == ["list"]


def test_b_2_one_bad_intent_raises_nothing_for_its_neighbours(on: Bench) -> None:
    """B-2: the boundary rises to the highest of those that may pass; two lists tell which these are."""
    rows = on.settle(
        asked([4], MAX_FILE_ID, name="bad"), asked([5, 6], name="good"), asked([10], name="newest")
    )

    assert [outcome(row)[2] for row in rows] == ["newest-file", "pass", "newest-file"]
    assert (on.boundary, on.left()) == (b"6", [1, 2, 3, 4, 7, 8, 9, 10])
    assert on.calls() == ["list", "list", f"GET {BOUNDARY}", f"PUT {BOUNDARY}", "delete"]


@pytest.mark.parametrize(
    "intruder",
    [
        "db/manifest/00000000000000000011.manifes",
        "db/manifest/0000000000000000011.manifest",
        "db/manifest/00000000000000000011.manifest/",
        "db/manifest/zzz",
    ],
)
def test_b_2_what_is_no_file_of_the_namespace_is_no_newer_file(on: Bench, intruder: str) -> None:
    """B-2: only a name that a writer would read as a higher id counts."""
    on.s3.buckets.fill(BUCKET, {intruder: b"x"})

    (row,) = on.settle(asked([10]))

    assert (outcome(row)[2], on.boundary) == ("newest-file", b"3")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (None, "boundary-vanished"),
        (b"", "boundary-unreadable"),
        (b"12x", "boundary-unreadable"),
        (b"-1", "boundary-unreadable"),
        (b"9" * 30, "boundary-unreadable"),
        (b"\xff\xfe", "boundary-unreadable"),
        (b"2", "boundary-lowered"),
        (b"0", "boundary-lowered"),
    ],
    ids=["gone", "empty", "12x", "-1", "30 digits", "bytes", "lower", "zero"],
)
def test_b_4_b_11_a_boundary_that_was_set_back_stops_everything(
    on: Bench, body: bytes | None, reason: str
) -> None:
    """B-4, B-11: nothing is written, nothing is deleted, the intent waits and the alarm names it."""
    on.set_boundary(body)

    (row,) = on.settle(asked([4, 5], floor=3))

    assert outcome(row) == ("deferred", "", reason)
    assert (on.boundary, on.left(), on.counts.advances) == (body, list(range(1, 11)), 0)
    assert list(on.counts.set_back) == ["bucket/db/manifest"]
    assert row.waiting_since is None  # no trouble of its bucket's: it grows no older


def test_b_11_nobody_writes_on_top_of_a_boundary_that_one_intent_knows_to_be_set_back(on: Bench) -> None:
    """B-11: an intent without a floor waits, too, unless the boundary that stands is enough for it."""
    on.set_boundary(b"2")

    rows = on.settle(asked([4], floor=3, name="a"), asked([5], name="b"), asked([1, 2], name="c"))

    assert [outcome(row)[2] for row in rows] == ["boundary-lowered", "boundary-lowered", "pass"]
    assert (on.boundary, on.left()) == (b"2", list(range(3, 11)))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"guards": [NotBeforeGuard(NOW + HOUR)]}, "not-before"),
        ({"guards": [GenerationGuard("t", 7)]}, "never-issued"),
        ({"vetoes": [ExpiresAt(NOW - HOUR)]}, "expired"),
        ({"vetoes": [OnlyWhileExists("not-there")]}, "vanished"),
    ],
    ids=["not yet", "refused", "expired", "vetoed"],
)
def test_b_11_whoever_does_not_pass_raises_no_boundary(on: Bench, given: Any, reason: str) -> None:
    """B-11: judged last, also after the vetoes: what is not executed writes nothing."""
    (row,) = on.settle(asked([8], **given))

    assert outcome(row)[2] == reason
    assert (on.boundary, on.left()) == (b"3", list(range(1, 11)))
    assert [call for call in on.calls() if BOUNDARY in call] == []


def test_b_11_a_neighbour_that_does_not_pass_lifts_nobody(on: Bench) -> None:
    """B-11: the boundary rises to the highest of those that are executed, not of all that were asked for."""
    rows = on.settle(asked([8], guards=[NotBeforeGuard(NOW + HOUR)], name="later"), asked([5], name="now"))

    assert [outcome(row)[2] for row in rows] == ["not-before", "pass"]
    assert on.boundary == b"5"


@pytest.mark.parametrize(
    ("prefixes", "passes"),
    [(["db/manifest/"], False), (["db/gc/"], False), (["db/manifest/", "db/gc/"], True), (["db/"], True)],
    ids=["without the boundary", "the boundary alone", "both", "the whole database"],
)
def test_the_allow_list_binds_the_boundary_object(on: Bench, prefixes: Sequence[str], passes: bool) -> None:
    """Where the reaper may not write the boundary, nothing of the intent is done."""
    (row,) = on.settle(asked([5]), rules=Rules(allow=tuple((BUCKET, prefix) for prefix in prefixes)))

    assert outcome(row) == (DELETED if passes else ("refused", "refused", "not-allowed"))
    assert on.boundary == (b"5" if passes else b"3")


@pytest.mark.parametrize(
    ("action", "guard", "reason"),
    [
        (DeletePrefix(BUCKET, "db/manifest/"), BoundaryGuard("db/manifest", 5), "not-in-namespace"),
        ([*files([5]), "db/manifest/5"], BoundaryGuard("db/manifest", 5), "not-in-namespace"),
        (files([5], COMPACTIONS), BoundaryGuard("db/manifest", 5), "not-in-namespace"),
        (
            [*files([5]), "db/wal/00000000000000000005.sst"],
            BoundaryGuard("db/manifest", 5),
            "not-in-namespace",
        ),
        ([BOUNDARY], BoundaryGuard("db/manifest", 5), "not-in-namespace"),
        (files([5]), BoundaryGuard("other/manifest", 5), "not-in-namespace"),
        (files([4, 6]), BoundaryGuard("db/manifest", 5), "above-boundary"),
    ],
    ids=["prefix", "short id", "other name", "other folder", "boundary", "other root", "id above"],
)
def test_b_2_an_intent_may_name_files_that_its_boundary_covers_and_nothing_else(
    on: Bench, action: Any, guard: BoundaryGuard, reason: str
) -> None:
    """B-2: a key of another namespace or name, or above the id: refused before anything is asked."""
    given = action if isinstance(action, DeletePrefix) else DeleteObjects(BUCKET, (tuple(action),))
    intent = replace(asked([5]), guards=(guard, PromiseGuard("ours")), action=given)
    (row,) = on.settle(intent)

    assert outcome(row) == ("refused", "refused", reason)
    assert (on.boundary, on.calls()) == (b"3", [])


def test_b_10_a_dry_run_writes_no_boundary(on: Bench) -> None:
    """B-10: it reads as a real one does, says the same of a bad intent, and the boundary is what it was."""
    rows = on.settle(asked([5], name="good"), asked([4], 99, name="bad"), dry=True)

    assert [outcome(row)[2] for row in rows] == ["pass", "newest-file"]
    assert (on.boundary, on.left()) == (b"3", list(range(1, 11)))
    assert {request.method for request in on.s3.requests} == {"GET"}
    on.set_boundary(b"oops")
    assert [outcome(row)[2] for row in on.settle(asked([5]), dry=True)] == ["boundary-unreadable"]


@pytest.mark.parametrize(
    "traits",
    [
        Traits(conditions_ignored=frozenset(["create"])),
        Traits(conditions_ignored=frozenset(["replace"])),
        Traits(writes_s=0.05),
    ],
    ids=["create", "replace", "several winners"],
)
def test_b_6_a_store_whose_conditional_writes_are_not_real_is_refused(on: Bench, traits: Traits) -> None:
    """B-6: found out by writers that race, before anything is raised or deleted."""
    on.s3.buckets.traits = traits

    (row,) = on.settle(asked([5]))

    assert outcome(row) == ("refused", "refused", "conditional-writes-not-real")
    assert (on.boundary, on.left()) == (b"3", list(range(1, 11)))


def test_writers_race_once_in_a_process(on: Bench) -> None:
    """What was found out of a bucket is known: the next task asks for no more than its own requests."""
    on.settle(asked([4]))
    probes = sum(request.is_probe for request in on.s3.requests)
    on.settle(asked([5]))

    assert sum(each.is_probe for each in on.s3.requests) - probes <= 2  # about the bucket itself
