"""Writers of sequenced metadata: the same behaviour on the fake, and through boto3 on real stores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from tests.support.s3_stores import Running, binary_of
from tests.support.sequenced import MANIFESTS, SERVERS, OnFake, OnS3

from sexton.producers import (
    BoundaryLowered,
    BoundaryUnreadable,
    BoundaryVanished,
    HandleUnusable,
    SequencedConflict,
    SequencedUnknown,
    SequencedWriter,
)
from sexton.producers.testing import FakeStore

KINDS = [
    "fake",
    *(
        pytest.param(name, marks=[pytest.mark.stores] * (build is not None))
        for name, (_, build) in SERVERS.items()
    ),
]
DEAD = MANIFESTS.boundary_key
THREADS = 8


@pytest.fixture(scope="module", params=KINDS)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running | None]:
    """Each store in turn, started once; None for the fake. Skipped where it has not been built."""
    if request.param == "fake":
        yield None
        return
    start, build = SERVERS[request.param]
    if build is not None and binary_of(build) is None:
        pytest.skip(f"{request.param} is not built: make stores")
    with ExitStack() as stack:
        yield stack.enter_context(start(tmp_path_factory.mktemp(request.param)))


@pytest.fixture
def world(running: Running | None) -> OnFake | OnS3:
    """An empty bucket."""
    return OnFake(FakeStore()) if running is None else OnS3.on(running)


def _stands(world: OnFake | OnS3, *ids: int) -> list[bool]:
    return [world.get(MANIFESTS.key(id)) is not None for id in ids]


def test_a_file_is_created_once_and_found(world: OnFake | OnS3) -> None:
    """It lies at its key, is the latest, and nobody creates it again."""
    writer = world.writer()
    assert writer.latest() is None
    assert [writer.create(id, b"body %d" % id) for id in (1, 2)] == [MANIFESTS.key(1), MANIFESTS.key(2)]
    with pytest.raises(SequencedConflict) as caught:
        world.writer().create(2, b"another")

    assert caught.value.boundary is None
    assert writer.latest() == (2, MANIFESTS.key(2))
    assert [writer.read(id) for id in (1, 2, 3)] == [b"body 1", b"body 2", None]


def test_the_same_bytes_of_another_writer_are_a_conflict(world: OnFake | OnS3) -> None:
    """The nonce tells them apart, and it is none of the body's bytes."""
    world.writer().create(1, b"same")
    with pytest.raises(SequencedConflict):
        world.writer().create(1, b"same")
    assert world.get(MANIFESTS.key(1)) == b"same"


def test_b_1_who_stalled_across_a_collection_is_told_conflict(world: OnFake | OnS3) -> None:
    """B-1: A prepares 8 and stalls; B creates 8 to 12; 8 is collected; the create of A succeeds nowhere."""
    a, b = world.writer(), world.writer()
    a.create(7, b"by a")
    prepared = (a.latest() or (0, ""))[0] + 1
    for id in range(8, 13):
        b.create(id, b"by b")
    world.collect(8)
    with pytest.raises(SequencedConflict) as caught:
        a.create(prepared, b"by a, late")

    assert caught.value.boundary == 8
    assert a.statistics().stale == 1
    assert a.latest() == b.latest() == (12, MANIFESTS.key(12))
    assert a.create(13, b"by a") == MANIFESTS.key(13)


def test_b_3_the_check_sees_a_boundary_that_has_just_risen(world: OnFake | OnS3) -> None:
    """B-3, the writer's side: each check reads it anew, whatever was cached; the boundary itself is dead."""
    writer, reader = world.writer(), world.writer()
    world.set(DEAD, b"3")
    writer.create(4, b"")
    world.set(DEAD, b"5")
    with pytest.raises(SequencedConflict) as caught:
        writer.create(5, b"")
    assert caught.value.boundary == 5
    world.set(DEAD, b"6\n")

    assert writer.create(7, b"") == MANIFESTS.key(7)
    assert reader.create(8, b"") == MANIFESTS.key(8)


@pytest.mark.parametrize("body", [b"", b"12x", b"-1", b"9" * 30])
def test_b_4_a_boundary_that_cannot_be_read_stops_the_writer(world: OnFake | OnS3, body: bytes) -> None:
    """B-4: no success is reported, and every later call raises it, also once it is mended."""
    writer = world.writer()
    world.set(DEAD, body)
    with pytest.raises(BoundaryUnreadable, match=DEAD):
        writer.create(1, b"")
    world.set(DEAD, b"1")

    _is_stopped(writer, BoundaryUnreadable)
    assert not any(_stands(world, 2))


@pytest.mark.parametrize(("now", "error"), [(None, BoundaryVanished), (b"4", BoundaryLowered)])
def test_b_4_a_boundary_that_goes_back_stops_the_writer(
    world: OnFake | OnS3, now: bytes | None, error: type[HandleUnusable]
) -> None:
    """B-4: gone after it was seen, or lower; absent from the start is 0."""
    writer = world.writer()
    writer.create(1, b"")
    world.set(DEAD, b"5")
    writer.create(6, b"")
    world.set(DEAD, now)
    with pytest.raises(error, match=DEAD):
        writer.create(7, b"")
    world.set(DEAD, b"5")

    _is_stopped(writer, error)
    assert not any(_stands(world, 8))
    assert world.writer().latest() == (7, MANIFESTS.key(7))


def _is_stopped(writer: SequencedWriter, error: type[HandleUnusable]) -> None:
    calls = (lambda: writer.create(8, b""), writer.confirm, writer.latest, lambda: writer.read(1))
    for call in calls:
        with pytest.raises(error):
            call()


def test_of_eight_writers_that_race_for_an_id_one_succeeds(world: OnFake | OnS3) -> None:
    """Round after round, with the same bytes; the file is the winner's."""
    writers = [world.writer() for _ in range(THREADS)]
    start = threading.Barrier(THREADS)

    def race(which: int, id: int) -> bool:
        start.wait(30)
        try:
            writers[which].create(id, b"same")
        except SequencedConflict:
            return False
        return True

    with ThreadPoolExecutor(THREADS) as threads:
        for id in range(1, 6):
            won = [*threads.map(race, range(THREADS), [id] * THREADS)]
            assert won.count(True) == 1


def test_of_eight_threads_that_share_a_writer_one_succeeds(world: OnFake | OnS3) -> None:
    """A create is a create of its own, with the same bytes by the same writer too."""
    writer = world.writer()

    def race(_: int) -> bool:
        try:
            writer.create(1, b"same")
        except SequencedConflict:
            return False
        return True

    with ThreadPoolExecutor(THREADS) as threads:
        assert [*threads.map(race, range(THREADS))].count(True) == 1


def test_a_nonce_in_the_body_does_as_well(world: OnFake | OnS3) -> None:
    """It is found by the service's own function, and tells whose file it is."""

    def nonce_of(body: bytes) -> str | None:
        return body.partition(b":")[0].decode() or None

    writer, other = world.writer(nonce_of=nonce_of), world.writer(nonce_of=nonce_of)
    writer.create(1, b"n1:body")
    assert writer.create(1, b"n1:body") == MANIFESTS.key(1)  # that very body, which no other writer can have
    with pytest.raises(SequencedConflict):
        other.create(1, b"n2:body")


def test_without_any_nonce_equal_bytes_prove_nothing(world: OnFake | OnS3) -> None:
    """A file without one: other bytes are another's, the same may be anybody's."""
    world.set(MANIFESTS.key(1), b"body")
    writer = world.writer()
    with pytest.raises(SequencedUnknown, match="without a nonce") as caught:
        writer.create(1, b"body")
    assert caught.value.final
    with pytest.raises(SequencedConflict):
        writer.create(1, b"other")


def test_latest_is_the_newest_file_of_the_namespace_alone(world: OnFake | OnS3) -> None:
    """Other names are left out, and so is a file at or below the boundary that nobody has collected yet."""
    writer = world.writer()
    others = ("db/manifest/x", "db/manifest2/y", "db/manifest/00000000000000000009.manifest.bak")
    digits = "00000000000000000008.compactions"
    for key in (*others, f"db/manifest/{digits}", f"db/compactions/{digits}"):
        world.set(key, b"")
    assert writer.latest() is None
    writer.create(3, b"")
    writer.create(4, b"")
    assert writer.latest() == (4, MANIFESTS.key(4))
    world.set(DEAD, b"4")
    assert writer.latest() is None
