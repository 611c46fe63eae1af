"""B-7: PUTs of unknown fate, and checks that cannot be made: each ending told truly."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.sequenced import MANIFESTS, OnFake

from sexton.producers import (
    HandleUnusable,
    NoObject,
    SequencedConflict,
    SequencedNotWritten,
    SequencedUnknown,
    StoredObject,
    StoreUnavailable,
    UsageError,
    sequenced,
)
from sexton.producers.testing import FakeSexton, FakeStore

KEY = MANIFESTS.key(1)
DEAD = MANIFESTS.boundary_key


class Scripted(FakeStore):
    """A store whose next calls do first what a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[Callable[[], bool | None]] = []
        self.gets: dict[str, list[Callable[[], None]]] = {}
        self.calls: list[str] = []

    def put_if_absent(self, bucket: str, key: str, body: bytes, nonce: str | None) -> bool:
        self.calls.append(f"put {key}")
        if self.puts:
            answer = self.puts.pop(0)()
            if answer is not None:
                return answer
        return super().put_if_absent(bucket, key, body, nonce)

    def get_if_changed(self, bucket: str, key: str, etag: str | None) -> Any:
        self.calls.append(f"get {key}")
        if self.gets.get(key):
            self.gets[key].pop(0)()
        return super().get_if_changed(bucket, key, etag)


@pytest.fixture
def store() -> Scripted:
    """A scripted store."""
    return Scripted()


@pytest.fixture
def world(store: Scripted) -> OnFake:
    """Its bucket."""
    return OnFake(store)


def _fails(error: BaseException | None = None) -> Callable[[], None]:
    def fail() -> None:
        raise error or TimeoutError("timed out")

    return fail


def test_b_7_a_put_that_times_out_and_had_landed_is_a_success(world: OnFake, store: Scripted) -> None:
    """B-7: the file carries one's own nonce, and nothing is put twice."""
    store.put_fails = "after"
    assert world.writer().create(1, b"body") == KEY
    assert store.calls == [f"put {KEY}", f"get {KEY}", f"get {DEAD}"]


@pytest.mark.parametrize("late", ["before", "late"])
def test_b_7_a_put_that_has_not_landed_is_repeated_under_its_nonce(
    world: OnFake, store: Scripted, late: str
) -> None:
    """B-7: and where the first one lands after all, it meets its own file."""
    store.put_fails = late
    writer = world.writer()
    assert writer.create(1, b"body") == KEY
    store.land()

    assert world.get(KEY) == b"body"
    assert writer.statistics().created == 1
    with pytest.raises(SequencedConflict):
        world.writer().create(1, b"body")


def test_b_7_a_put_that_lands_between_is_a_success(world: OnFake, store: Scripted) -> None:
    """B-7: the second PUT is told that the file is there, and it is the first one's."""
    store.put_fails = "late"
    store.puts = [lambda: None, store.land]
    assert world.writer().create(1, b"body") == KEY
    assert store.calls.count(f"get {KEY}") == 2


@pytest.mark.parametrize("body", [b"body", b"another's"])
def test_b_7_a_put_that_another_one_has_overtaken_is_a_conflict(
    world: OnFake, store: Scripted, body: bytes
) -> None:
    """B-7: with the same bytes, too: the nonce is another one."""
    other = world.writer()
    store.put_fails = "before"

    def overtake() -> None:
        other.create(1, body)

    store.gets[KEY] = [overtake]
    with pytest.raises(SequencedConflict) as caught:
        world.writer().create(1, b"body")
    assert (caught.value.boundary, world.get(KEY)) == (None, body)


def test_b_7_a_file_that_is_gone_below_the_boundary_is_unknown(world: OnFake, store: Scripted) -> None:
    """B-7: it may have landed and been collected: neither success nor conflict, and nothing is repeated."""
    store.put_fails = "before"
    world.set(DEAD, b"1")
    writer = world.writer()
    with pytest.raises(SequencedUnknown, match="may have been collected") as caught:
        writer.create(1, b"body")

    assert caught.value.final
    assert store.calls.count(f"put {KEY}") == 1
    with pytest.raises(UsageError, match="no create"):
        writer.confirm()
    assert writer.create(2, b"body") == MANIFESTS.key(2)


def test_the_boundary_is_read_after_the_file_that_was_not_there(world: OnFake, store: Scripted) -> None:
    """Landed, collected and looked for in this order: it is not put again, as the boundary has risen."""
    store.put_fails = "after"
    store.gets[KEY] = [lambda: world.collect(1)]
    with pytest.raises(SequencedUnknown) as caught:
        world.writer().create(1, b"body")
    assert caught.value.final
    assert world.get(KEY) is None


def test_what_lands_after_its_collection_is_dead(world: OnFake, store: Scripted) -> None:
    """The first PUT arrives when the second one's file was collected: below the boundary nobody looks."""
    store.put_fails = "late"
    writer = world.writer()
    writer.create(1, b"body")
    writer.create(2, b"body")
    world.collect(1)
    store.land()

    assert world.get(KEY) == b"body"
    assert writer.latest() == world.writer().latest() == (2, MANIFESTS.key(2))


def test_a_create_that_cannot_be_settled_is_repeated_by_confirm_alone(world: OnFake, store: Scripted) -> None:
    """Three PUTs, then it is unknown; no other create begins before, and a late one is known as one's own."""
    store.puts = [_fails(), _fails(), lambda: setattr(store, "put_fails", "late")]
    writer = world.writer()
    with pytest.raises(SequencedUnknown, match="not there yet") as caught:
        writer.create(1, b"body")
    assert not caught.value.final
    assert store.calls.count(f"put {KEY}") == 3
    with pytest.raises(SequencedUnknown, match="has not ended"):
        writer.create(2, b"body")
    store.land()

    assert writer.confirm() == KEY
    assert writer.create(2, b"body") == MANIFESTS.key(2)
    counts = writer.statistics()
    assert (counts.created, counts.unknown, counts.taken, counts.stale, counts.refused) == (2, 2, 0, 0, 0)


@pytest.mark.parametrize("what", [KEY, DEAD])
def test_a_check_that_cannot_be_made_is_no_success(world: OnFake, store: Scripted, what: str) -> None:
    """Of the file after a time-out, or of the boundary: the create may stand, and confirm() tells."""
    store.put_fails = "after" if what == KEY else None
    store.gets[what] = [_fails()]
    writer = world.writer()
    with pytest.raises(SequencedUnknown, match="timed out") as caught:
        writer.create(1, b"body")
    assert not caught.value.final
    assert world.get(KEY) == b"body"
    assert isinstance(caught.value.__cause__, StoreUnavailable | TimeoutError)

    assert writer.confirm() == KEY
    assert store.calls.count(f"put {KEY}") == (2 if what == KEY else 1)


def test_a_confirm_after_a_collection_is_told_conflict(world: OnFake, store: Scripted) -> None:
    """The check was not made, and meanwhile the file has died."""
    store.gets[DEAD] = [_fails()]
    writer = world.writer()
    with pytest.raises(SequencedUnknown):
        writer.create(1, b"body")
    world.collect(1)
    with pytest.raises(SequencedConflict) as caught:
        writer.confirm()
    assert caught.value.boundary == 1


def test_a_create_that_was_interrupted_is_not_forgotten(world: OnFake, store: Scripted) -> None:
    """Ctrl-C in the PUT goes through; a refusal of the repeated PUT is then no proof that nothing landed."""
    store.puts = [_fails(KeyboardInterrupt()), _fails(SequencedNotWritten("403"))]
    writer = world.writer()
    with pytest.raises(KeyboardInterrupt):
        writer.create(1, b"body")
    with pytest.raises(SequencedUnknown):
        writer.create(2, b"body")
    assert writer.confirm() == KEY
    assert writer.statistics().refused == 0


def test_what_the_store_refused_at_once_was_not_written(world: OnFake, store: Scripted) -> None:
    """The writer goes on; nothing was checked."""
    store.puts = [_fails(SequencedNotWritten("403"))]
    writer = world.writer()
    with pytest.raises(SequencedNotWritten):
        writer.create(1, b"body")
    assert store.calls == [f"put {KEY}"]
    assert writer.create(1, b"body") == KEY
    assert (writer.statistics().refused, writer.statistics().created) == (1, 1)


def test_an_answer_that_is_neither_true_nor_false_is_no_success(world: OnFake, store: Scripted) -> None:
    """A coroutine, None: nobody knows; where the file is not there, nothing else is believed."""
    store.put_if_absent = lambda *_: None  # type: ignore[method-assign,assignment]
    with pytest.raises(SequencedUnknown, match="must return True or False"):
        world.writer().create(1, b"body")


@pytest.mark.parametrize("unchanged", [KEY, DEAD])
def test_a_body_that_does_not_come_is_no_answer(store: Scripted, unchanged: str) -> None:
    """`UNCHANGED` to a read without a condition: never a success, neither for the file nor the boundary."""
    plain = store.get_if_changed

    def get(bucket: str, key: str, etag: str | None) -> StoredObject | NoObject:
        return NoObject.UNCHANGED if key == unchanged else plain(bucket, key, etag)

    store.get_if_changed = get  # type: ignore[method-assign]
    store.put_fails = "after"
    with pytest.raises(SequencedUnknown) as caught:
        sequenced(store, "bucket", "db", "manifest").create(1, b"body")
    assert not caught.value.final


def test_a_dead_id_is_not_even_written(world: OnFake, store: Scripted) -> None:
    """Once its boundary has been seen."""
    world.set(DEAD, b"5")
    writer = world.writer()
    assert writer.latest() is None
    with pytest.raises(SequencedConflict) as caught:
        writer.create(5, b"body")
    assert caught.value.boundary == 5
    assert not [call for call in store.calls if call.startswith("put")]


def test_a_create_costs_one_conditional_read(world: OnFake, store: Scripted) -> None:
    """One PUT, one GET of the boundary; what they took is counted."""
    writer = world.writer()
    writer.create(1, b"body")
    assert store.calls == [f"put {KEY}", f"get {DEAD}"]
    counts = writer.statistics()
    assert counts.checks == 1
    assert 0 <= counts.longest_check == counts.check_seconds


def test_a_store_that_is_away_is_told_as_such(world: OnFake, store: Scripted) -> None:
    """Listing and reading raise StoreUnavailable, and end nothing."""
    writer = world.writer()
    store.away = True
    for call in (writer.latest, lambda: writer.read(1)):
        with pytest.raises(StoreUnavailable, match="the store is away"):
            call()
    store.away = False
    assert writer.latest() is None


def test_a_listing_that_fails_is_not_an_empty_one(world: OnFake, store: Scripted) -> None:
    """Also when it fails on a later page."""

    def pages(*_: str) -> Iterator[str]:
        yield KEY
        raise TimeoutError("the second page")

    store.list_after = pages  # type: ignore[method-assign,assignment]
    with pytest.raises(StoreUnavailable, match="the second page"):
        world.writer().latest()


def test_latest_leaves_out_what_a_store_lists_below_the_boundary(world: OnFake, store: Scripted) -> None:
    """A store may ignore where a listing is to begin, and list in no order."""
    writer = world.writer()
    for id in (3, 4, 5):
        writer.create(id, b"")
    world.set(DEAD, b"4")
    store.list_after = lambda *_: [MANIFESTS.key(id) for id in (5, 3, 4)]  # type: ignore[method-assign]
    assert writer.latest() == (5, MANIFESTS.key(5))
    world.set(MANIFESTS.key(5), None)
    store.list_after = lambda *_: [MANIFESTS.key(id) for id in (3, 4)]  # type: ignore[method-assign]
    assert writer.latest() is None


@pytest.mark.parametrize("id", [0, -1, 2**63, 2**64, "1", 1.0, None])
def test_b_2_an_id_that_no_intent_could_name_is_refused(world: OnFake, store: Scripted, id: Any) -> None:
    """B-2: 0 is dead from the start, above 2^63 - 1 nothing can be collected."""
    with pytest.raises(UsageError):
        world.writer().create(id, b"")
    assert store.calls == []
    assert world.writer().create(2**63 - 1, b"") == MANIFESTS.key(2**63 - 1)


@pytest.mark.parametrize("body", ["text", None, bytearray(b"x")])
def test_a_body_is_bytes(world: OnFake, body: Any) -> None:
    """Nothing else is guessed at."""
    with pytest.raises(UsageError, match="a body must be bytes"):
        world.writer().create(1, body)


@pytest.mark.parametrize("found", [None, "", 7])
def test_a_nonce_that_is_not_found_is_refused_before_anything_is_sent(
    world: OnFake, store: Scripted, found: Any
) -> None:
    """`nonce_of` has to know the bodies that its own service writes."""
    with pytest.raises(UsageError, match="nonce_of"):
        world.writer(nonce_of=lambda body: found).create(1, b"body")
    assert store.calls == []


@pytest.mark.parametrize("given", [("bucket/", "db", "x"), ("bucket", "db/", "x"), ("bucket", "db", "gc")])
def test_names_that_cannot_be_are_refused_when_a_writer_is_made(given: tuple[str, str, str]) -> None:
    """And so is what is no store."""
    with pytest.raises(UsageError):
        sequenced(FakeStore(), *given)
    with pytest.raises(UsageError, match="neither an S3 client nor a store"):
        sequenced(object(), "bucket", "db", "x")


def test_a_connection_makes_the_same_writer(world: OnFake, store: Scripted) -> None:
    """`Sexton.sequenced` is an alias: nothing is asked of Kafka or the issuer."""
    with FakeSexton("node-7") as sexton:
        writer = sexton.sequenced(store, "bucket", "db", "manifest")
        assert writer.create(1, b"") == KEY
        assert sexton.transport.records == []


def test_p_2_a_forked_child_repeats_no_create_of_its_parent(world: OnFake, store: Scripted) -> None:
    """P-2: it would be reported twice; also when the PUT itself has forked."""
    told: list[int] = []
    read, write = os.pipe()

    def fork() -> None:
        told.append(os.fork())

    store.puts = [fork]
    writer = world.writer()
    try:
        key = writer.create(1, b"body")
    except HandleUnusable:
        os.write(write, b"refused")
        os._exit(0)
    if told[0] == 0:  # pragma: no cover - what a broken writer does
        os._exit(1)
    assert key == KEY
    os.close(write)
    _, status = os.waitpid(told[0], 0)
    answer = os.read(read, 10)
    os.close(read)
    assert (status, answer) == (0, b"refused")


def test_the_fake_collects_as_the_collector_does(world: OnFake) -> None:
    """The boundary is raised, what lies up to it is deleted, what lies above it stays."""
    writer = world.writer()
    for id in (1, 2, 3):
        writer.create(id, b"")
    world.collect(2)
    assert (world.get(DEAD), world.get(MANIFESTS.key(2)), world.get(MANIFESTS.key(3))) == (b"2", None, b"")
