"""Raising a boundary while others write it, the store fails, and reapers end in between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.boundaries import (
    BOUNDARY,
    BUCKET,
    COMPACTIONS,
    DELETED,
    MANIFESTS,
    Bench,
    asked,
    files,
    outcome,
)
from tests.support.execute_stage import execution
from tests.support.s3_api import error_reply
from tests.support.s3_recorder import Recorded, Reply, S3Recorder
from tests.support.task_work import NOW

from sexton.schemas.events import (
    BoundaryGuard,
    DeleteObjects,
    PromiseGuard,
)
from sexton.storage import BatchDeleter, StoreSettings
from sexton.streaming_jobs.budget import NoBudget
from sexton.streaming_jobs.reaper.execute.boundaries import advance
from sexton.streaming_jobs.reaper.execute.bucket import Bucket as TaskBucket
from sexton.streaming_jobs.reaper.execute.gate import Gate
from sexton.streaming_jobs.reaper.execute.paced import OnePacer, PacedDeleter
from sexton.streaming_jobs.reaper.vetoes import Now, Wait

HOUR = timedelta(hours=1)


def others_first(times: int, raise_to: Callable[[int], bytes], s3: S3Recorder) -> Callable[[Recorded], None]:
    """Return a script in which somebody else writes the boundary just before each of our first writes."""
    seen = [0]

    def script(request: Recorded) -> None:
        if request.method == "PUT" and request.key == BOUNDARY and seen[0] < times:
            seen[0] += 1
            s3.buckets.fill(BUCKET, {BOUNDARY: raise_to(seen[0])})

    return script


@pytest.mark.parametrize(
    ("others", "after", "writes"),
    [(b"4", b"6", 2), (b"6", b"6", 1), (b"9", b"9", 1)],
    ids=["lower", "as high", "higher"],
)
def test_b_3_a_lost_race_is_read_again_and_never_lowers(
    on: Bench, others: bytes, after: bytes, writes: int
) -> None:
    """B-3: whoever was ahead, the boundary ends at the higher of both."""
    on.s3.script(others_first(1, lambda _: others, on.s3))

    (row,) = on.settle(asked([6]))

    assert (outcome(row), on.boundary, on.counts.advances) == (DELETED, after, writes)


def test_b_3_a_boundary_that_others_change_without_end_waits(on: Bench) -> None:
    """B-3: it gives up after some tries, deletes nothing, and comes again."""
    on.s3.script(others_first(99, lambda number: b"3" + b" " * number, on.s3))

    (row,) = on.settle(asked([6]))

    assert outcome(row) == ("deferred", "", "boundary-unknown")
    assert (on.left(), on.counts.advances) == (list(range(1, 11)), 8)


def test_b_11_a_boundary_that_vanishes_between_read_and_write_is_not_made_anew(on: Bench) -> None:
    """B-11: the write loses, and the next read finds it gone: an alarm, not a create."""

    def script(request: Recorded) -> None:
        if request.method == "PUT" and request.key == BOUNDARY and on.boundary is not None:
            on.set_boundary(None)

    on.s3.script(script)

    (row,) = on.settle(asked([6], floor=3))

    assert (outcome(row)[2], on.boundary, on.left()) == ("boundary-vanished", None, list(range(1, 11)))


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "not landed"])
def test_a_write_of_unknown_fate_is_read_back(on: Bench, landed: bool) -> None:
    """Cut off after or before its effect: what stands there decides, and nothing is deleted before."""
    once = iter([True])

    def script(request: Recorded) -> Reply | None:
        if request.method == "PUT" and request.key == BOUNDARY and next(once, False):
            return Reply(200, drop=True, act_first=landed)
        return None

    on.s3.script(script)

    (row,) = on.settle(asked([6]))

    assert (outcome(row), on.boundary, on.counts.advances) == (DELETED, b"6", 1 if landed else 2)
    assert on.calls().index("delete") > on.calls().index(f"GET {BOUNDARY}")


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_boundary_object_that_is_denied_harms_nobody_else(on: Bench, method: str) -> None:
    """Its intents wait; those of other namespaces, and plain ones of the bucket, are done."""
    on.s3.buckets.fill(BUCKET, {"plain": b"x", **dict.fromkeys(files(range(1, 4), COMPACTIONS), b"x")})

    def script(request: Recorded) -> Reply | None:
        denied = request.method == method and request.key == BOUNDARY
        return error_reply(403, "AccessDenied", "no") if denied else None

    on.s3.script(script)

    rows = on.settle(asked([6], name="denied"), asked([2], name="other", space=COMPACTIONS))

    assert [outcome(row)[2] for row in rows] == ["boundary-unknown", "pass"]
    assert (on.boundary, on.left(), on.left(COMPACTIONS)) == (b"3", list(range(1, 11)), [1, 3])


@pytest.mark.parametrize("what", ["too long", "without an ETag"])
def test_b_4_a_boundary_object_that_cannot_be_read_holds_nobody_else(on: Bench, what: str) -> None:
    """B-4: whoever writes 33 MiB there stops its own namespace, not the bucket."""
    on.s3.buckets.fill(BUCKET, dict.fromkeys(files(range(1, 4), COMPACTIONS), b"x"))
    if what == "too long":
        on.set_boundary(b" " * (33 * 2**20) + b"3")

    def script(request: Recorded) -> Reply | None:
        page = request.method == "GET" and request.key == BOUNDARY and what != "too long"
        return Reply(200, b"<html>hello</html>") if page else None

    on.s3.script(script)

    rows = on.settle(asked([5]), asked([1], space=COMPACTIONS))

    assert [outcome(row)[2] for row in rows] == ["boundary-unknown", "pass"]
    assert (on.left(), on.left(COMPACTIONS), on.counts.failing) == (list(range(1, 11)), [2, 3], {})


def page_of(*ids: int, says: str) -> Reply:
    """Return a page of a listing of these files; `says` is what it tells of those that follow."""
    listed = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in files(ids))
    body = f"<ListBucketResult><EncodingType>url</EncodingType>{says}{listed}</ListBucketResult>"
    return Reply(200, body.encode())


TRUNCATED = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"


@pytest.mark.parametrize(
    "page",
    [
        page_of(9, 10, says=TRUNCATED),
        page_of(says=TRUNCATED),
        page_of(says=""),
        page_of(says="<IsTruncated>false</IsTruncated><KeyCount>1</KeyCount>"),
    ],
    ids=["begins anew", "empty", "does not say", "left out"],
)
def test_b_2_a_page_that_cannot_be_relied_on_refuses_nothing(on: Bench, page: Reply) -> None:
    """B-2: that no file above it is there is nobody's word: the intent waits, and the task ends."""
    on.s3.script(lambda request: page if "list-type" in request.query else None)

    (row,) = on.settle(asked([10]))

    assert outcome(row) == ("deferred", "", "boundary-unknown")
    assert (on.boundary, on.left(), on.calls()) == (b"3", list(range(1, 11)), ["list"])


@pytest.mark.parametrize("what", ["list", "GET"])
def test_a_store_that_is_away_holds_its_bucket(on: Bench, what: str) -> None:
    """What is about the bucket opens its circuit: everything of it waits, nothing is raised or deleted."""

    def script(request: Recorded) -> Reply | None:
        about = "list-type" in request.query if what == "list" else request.key == BOUNDARY
        return error_reply(503, "SlowDown", "later") if about and not request.is_probe else None

    on.s3.script(script)

    (row,) = on.settle(asked([6]))

    assert outcome(row)[0] == "deferred"
    assert (on.boundary, on.left()) == (b"3", list(range(1, 11)))
    assert list(on.counts.failing) == [BUCKET]


def test_a_held_bucket_is_asked_nothing(on: Bench) -> None:
    """Its intents wait with it: no list, no read, no write."""

    (row,) = on.settle(asked([6]), held={BUCKET: "SlowDown"})

    assert (outcome(row)[2], on.s3.requests, on.boundary) == ("SlowDown", [], b"3")


def test_b_3_two_tasks_raise_one_boundary_while_writers_read_it(on: Bench) -> None:
    """B-3: at once, to different ids: whoever reads meanwhile never sees it fall; the higher one stands."""
    on.s3.buckets.fill(BUCKET, dict.fromkeys(files(range(11, 61)), b"x"))
    seen: list[int] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.append(int(on.boundary or b"0"))

    def raise_each(ids: range) -> None:
        settings = StoreSettings(on.s3.url, connect_timeout_s=20, read_timeout_s=20)
        with BatchDeleter(settings) as deleter:
            store = PacedDeleter(deleter, OnePacer(NoBudget()))
            for id in ids:
                guard = BoundaryGuard(MANIFESTS.text, id)
                assert advance(store, BUCKET, [guard]).told == {guard: None}

    reader = threading.Thread(target=read)
    tasks = [threading.Thread(target=raise_each, args=(range(first, 60, 2),)) for first in (4, 5)]
    reader.start()
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    stop.set()
    reader.join()

    assert (on.boundary, seen == sorted(seen)) == (b"59", True)


def test_b_8_after_a_crash_the_same_intent_finds_what_was_done(on: Bench) -> None:
    """B-8: raised and not deleted, or deleted and not told: done again it converges, nothing else changes."""
    on.set_boundary(b"6")  # raised, and the task ended there
    (first,) = on.settle(asked([4, 5, 6]))
    (again,) = on.settle(asked([4, 5, 6]), retried=True)

    assert [outcome(row) for row in (first, again)] == [DELETED, DELETED]
    assert (on.boundary, on.left(), on.counts.advances) == (b"6", [1, 2, 3, 7, 8, 9, 10], 0)


def test_b_3_of_two_that_create_a_boundary_the_higher_one_stands(on: Bench) -> None:
    """B-3: there was none when it was read, and a higher one when it was written."""
    on.set_boundary(None)
    on.s3.script(others_first(1, lambda _: b"8", on.s3))

    (row,) = on.settle(asked([6]))

    assert (outcome(row), on.boundary, on.counts.advances) == (DELETED, b"8", 1)


def test_a_store_whose_writes_could_not_be_tried_waits(on: Bench) -> None:
    """Whether conditional writes are real is not known: nothing is raised, and it comes again."""

    def script(request: Recorded) -> Reply | None:
        tried = request.method == "PUT" and request.is_probe
        return error_reply(403, "AccessDenied", "no") if tried else None

    on.s3.script(script)

    (row,) = on.settle(asked([6]))

    assert (outcome(row)[2], on.boundary, on.left()) == ("boundary-unknown", b"3", list(range(1, 11)))


def test_a_dry_run_without_a_store_passes_no_boundary(on: Bench) -> None:
    """Who may not even look there learns that it would wait, and fails at nothing."""

    def script(request: Recorded) -> Reply | None:
        return error_reply(403, "InvalidAccessKeyId", "no")

    on.s3.script(script)

    assert [outcome(row)[2] for row in on.settle(asked([6]), dry=True)] == ["boundary-unknown"]


def test_a_boundary_of_which_nobody_was_asked_is_not_raised() -> None:
    """No answer is no pass: the phase does not begin."""
    begun = execution(files([6]), gate=Gate(unmade=[BoundaryGuard(MANIFESTS.text, 6)]))
    begun.bucket = TaskBucket(BUCKET, bypass=False)
    sender: Any = SimpleNamespace(now=lambda bucket: Now(NOW, NOW))

    assert not begun.may_begin(sender)
    assert begun.gated == Wait("boundary-unknown", "the store could not be asked")


class Budget(NoBudget):
    """Notes what was taken of it."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def take(self, bucket: str, keys: int) -> float:
        self.taken.append(keys)
        return 0.0


def test_a_boundary_is_written_within_the_bucket_s_budget(on: Bench) -> None:
    """It is a write like a delete: one of the bucket's budget is taken before it is sent."""
    budget = Budget()
    store = PacedDeleter(on.deleter, OnePacer(budget))

    assert advance(store, BUCKET, [BoundaryGuard(MANIFESTS.text, 6)]).writes == 1
    assert budget.taken == [1]


def test_a_bucket_whose_circuit_opens_meanwhile_raises_no_boundary(on: Bench) -> None:
    """What goes first is throttled: nothing is asked or written for what would come next."""
    on.s3.buckets.fill(BUCKET, {"plain": b"x"})

    def script(request: Recorded) -> Reply | None:
        later = replace(error_reply(503, "SlowDown", "later"), headers={"Retry-After": "100"})
        return later if request.is_delete_objects and not request.is_probe else None

    on.s3.script(script)
    plain = replace(
        asked([1], name="plain"),
        guards=(PromiseGuard("ours"),),
        action=DeleteObjects(BUCKET, (("plain",),)),
    )

    rows = on.settle(plain, asked([6]))

    assert [outcome(row)[:2] for row in rows] == [("deferred", "")] * 2
    assert (on.boundary, set(on.calls())) == (b"3", {"delete"})
