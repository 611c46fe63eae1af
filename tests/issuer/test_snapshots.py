"""Snapshots on a real broker: the newest is used, taken while calls are answered, old ones removed."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import pytest
from tests.support.issuing import Serve, attach, counter, newest, re_attach
from tests.support.snapshots import Place, changed, flipped_bit, put

from sexton.deploy.local import Installation
from sexton.issuer.deadline import Deadline
from sexton.issuer.log.positions import Positions
from sexton.issuer.log.ranges import RangeReader
from sexton.issuer.log.reader import open_reader
from sexton.issuer.operations.attach import Attach
from sexton.issuer.operations.barrier import Barrier, Ends
from sexton.issuer.operations.validate import Validate
from sexton.issuer.snapshots.format import BadSnapshot
from sexton.issuer.snapshots.keeper import take_snapshot
from sexton.issuer.snapshots.store import Snapshot
from sexton.issuer.snapshots.topic import SnapshotTopic
from sexton.issuer.subjects.generation import Subject
from sexton.schemas import records
from sexton.schemas.windows import Window

pytestmark = pytest.mark.real


def test_a_reader_starts_from_the_newest(filled: tuple[Place, list[Snapshot]], soon: Deadline) -> None:
    """Start = newest good snapshot and the events after it; the state is the one of the whole log."""
    place, (_, second) = filled
    reader = open_reader(place.settings, Positions(place.settings), soon)
    reader.wait_for(place.facts().end - 1, soon)

    assert place.start_offset() == second.log_offset
    with reader.state() as state:
        assert [(t.name, t.newest, t.holder) for t in state] == [
            ("a", 2, "n1"),
            ("b", 2, "n1"),
            ("ü ☃", 2, "n1"),
            ("c", 1, "n9"),
        ]
    reader.stop()


def test_a_manifest_of_a_version_that_made_no_digest(filled: tuple[Place, list[Snapshot]]) -> None:
    """An older version's snapshot is used: its manifest has nothing to be compared with."""
    place, (_, second) = filled
    changed(digest="")(place.settings, second)

    assert place.start_offset() == second.log_offset


def test_a_service_on_a_snapshot_answers_as_before(
    filled: tuple[Place, list[Snapshot]], serve: Serve, soon: Deadline
) -> None:
    """Windows, holders and request ids come through a snapshot: verdicts and retries are the same."""
    place, _ = filled
    first = serve(place.settings)
    number = attach(first, "n5", "a", request_id="r-5", caller="me")
    asked = Validate([Subject("a", g, p) for g in (1, 2, 3, 4) for p in range(3)])
    before = first.authority().answer(asked, soon)
    take_snapshot(place.settings, 30)
    second = serve(place.settings)

    assert second.authority().answer(asked, soon).answers == before.answers
    assert attach(second, "n5", "a", request_id="r-5", caller="me") == number == 3
    assert re_attach(second, "n1") == {"b": 3, "ü ☃": 3}
    assert newest(first, "b", 3)


def test_old_snapshots_are_removed(filled: tuple[Place, list[Snapshot]]) -> None:
    """The newest two good ones stay; older ones and what was cut off go, chunks and all."""
    place, (_, second) = filled
    put(place.settings, f"{1:020d}-{'0' * 12}/000000", b"of a writer that was killed")

    third = take_snapshot(place.settings, 30)

    assert place.ids() == [third.found.snapshot_id, second.found.snapshot_id]
    with closing(RangeReader(place.settings, place.settings.topic(records.SNAPSHOTS))) as reader:
        bounds = reader.bounds(Deadline.after(10))
        assert bounds
        last = {m.key(): m.value() for m in reader.read(*bounds, Deadline.after(10))}
    assert {bytes(key or b"")[:20] for key, value in last.items() if value is not None} == {
        f"{s.log_offset:020d}".encode() for s in (second, third)
    }


def test_a_broken_one_does_not_count_as_kept(filled: tuple[Place, list[Snapshot]]) -> None:
    """A snapshot that is broken pushes out no good one, and a single good one pushes out nothing."""
    place, (first, second) = filled
    flipped_bit(place.settings, second)

    third = take_snapshot(place.settings, 30)

    assert first.found.snapshot_id in place.ids()
    assert third.found.snapshot_id in place.ids()
    for snapshot in (first, third):
        flipped_bit(place.settings, snapshot)
    fourth = take_snapshot(place.settings, 30)
    everything = {snapshot.found.snapshot_id for snapshot in (first, second, third, fourth)}
    assert set(place.ids()) == everything


def test_what_is_not_what_was_written_removes_nothing(
    filled: tuple[Place, list[Snapshot]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot is read back before it counts: broken on its way it is reported, and the older ones stay."""
    place, taken = filled
    write = SnapshotTopic.write_manifest

    def after_damage(topic: SnapshotTopic, snapshot_id: str, manifest: bytes, deadline: Deadline) -> None:
        put(place.settings, f"{snapshot_id}/000000", b"what another writer had under this key")
        write(topic, snapshot_id, manifest, deadline)

    monkeypatch.setattr(SnapshotTopic, "write_manifest", after_damage)

    with pytest.raises(BadSnapshot, match="checksum is wrong"):
        take_snapshot(place.settings, 30)
    assert {snapshot.found.snapshot_id for snapshot in taken} < set(place.ids())


def test_a_snapshot_in_many_chunks(
    fresh: Installation, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state larger than one chunk is written in many and read back whole."""
    service = serve(fresh.settings)
    names = [f"tenant-{number:05d}" for number in range(3000)]
    service.authority().answer(Attach(node="n", tenants=names), Deadline.after(20))
    monkeypatch.setattr("sexton.issuer.snapshots.format._CELLS", 1000)

    taken = take_snapshot(fresh.settings, 30)
    place = Place(fresh.settings)

    assert len(taken.manifest.sizes) > 10
    state = place.snapshots.load(taken, Deadline.after(20))
    assert state.held_by("n") == names


def test_taken_while_serving(fresh: Installation, serve: Serve) -> None:
    """A serving issuer takes one each time so many events were folded, and says so in its metrics."""
    service = serve(fresh.settings.model_copy(update={"issuer_snapshot_events": 20}))
    for number in range(25):
        attach(service, "n", f"t{number}")
    until = Deadline.after(40)
    while not counter(service, "snapshots") and until.left():
        time.sleep(0.2)
    offset = service.metrics.registry.get_sample_value("sexton_issuer_snapshot_log_offset")

    assert counter(service, "snapshots") == 1
    assert Place(fresh.settings).start_offset() == offset
    assert offset is not None
    assert offset >= 20


def test_windows_cut_by_a_barrier(fresh: Installation, serve: Serve, write: Any, soon: Deadline) -> None:
    """Settled positions that a barrier carries cut history for every reader, also through a snapshot."""
    service = serve(fresh.settings)
    attach(service, "n", "t")
    write(fresh.settings, 0, 3)
    attach(service, "m", "t")
    with service.reader.state() as state:
        assert state.window("t", 1, 0) == Window(0, 3)
        assert state.genesis is not None
        topic_id = state.genesis.intents_topic_id
    service.authority().answer(Barrier(unsettled=Ends(topic_id, [3, 0, 0])), soon)
    take_snapshot(fresh.settings, 30)

    for reader in (service, serve(fresh.settings)):
        with reader.reader.state() as state:
            assert state.window("t", 1, 0) is None
            assert state.window("t", 2, 0) == Window(3)
