"""Snapshots on a real broker: the newest good one is used, a broken one is not, the log can be truncated."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.support.issuing import Serve, attach, counter, newest, re_attach

from sexton.deploy.local import Installation
from sexton.issuer import truncation, wire
from sexton.issuer.deadline import Deadline
from sexton.issuer.fold import State, apply
from sexton.issuer.genesis import write_genesis
from sexton.issuer.log import open_reader
from sexton.issuer.maintenance import rebuild_projection
from sexton.issuer.positions import Positions
from sexton.issuer.service import Service
from sexton.issuer.snapshot_format import BadSnapshot
from sexton.issuer.snapshot_keeper import take_snapshot
from sexton.issuer.snapshot_topic import SnapshotTopic, TopicReader
from sexton.issuer.snapshots import LogFacts, Snapshot, Snapshots, manifest_of
from sexton.schemas import records
from sexton.schemas.codec import Codec
from sexton.schemas.errors import LogBroken, SextonError
from sexton.schemas.events import Genesis
from sexton.schemas.settings import Settings
from sexton.schemas.windows import Window

pytestmark = pytest.mark.real
codec = Codec()
Damage = Callable[[Settings, Snapshot], None]


class Place:
    """An installation's snapshots, as the tests look at them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.snapshots = Snapshots(settings, Positions(settings))

    def facts(self) -> LogFacts:
        """The log as it is now."""
        return self.snapshots.facts(Deadline.after(20))

    def start_offset(self) -> int:
        """Where a reader that starts now begins."""
        return self.snapshots.start(self.facts(), Deadline.after(20)).log_offset

    def ids(self) -> list[str]:
        """Every snapshot of which anything stands, the newest first."""
        return [found.snapshot_id for found in SnapshotTopic(self.settings).find(Deadline.after(20))]

    def faults(self) -> str:
        """Why snapshots are not used."""
        return "; ".join(self.snapshots.usable(self.facts(), Deadline.after(20))[1])


def put(settings: Settings, key: str, value: bytes | None) -> None:
    """Write a record to the snapshots topic."""
    producer = Producer(settings.kafka(**{"message.max.bytes": 8_000_000}))
    producer.produce(settings.topic(records.SNAPSHOTS), value, key, partition=0)
    assert producer.flush(10) == 0


def chunk_of(settings: Settings, snapshot: Snapshot) -> bytes:
    """The first chunk of a snapshot."""
    with closing(TopicReader(settings, settings.topic(records.SNAPSHOTS))) as reader:
        place = snapshot.found.chunks[0]
        (message,) = reader.read(place, place + 1, Deadline.after(20))
        return bytes(message.value() or b"")


def cut_chunk(settings: Settings, snapshot: Snapshot) -> None:
    """A chunk loses its end."""
    put(settings, f"{snapshot.found.snapshot_id}/000000", chunk_of(settings, snapshot)[:-3])


def flipped_bit(settings: Settings, snapshot: Snapshot) -> None:
    """A bit of a chunk is another one."""
    chunk = bytearray(chunk_of(settings, snapshot))
    chunk[-2] ^= 1
    put(settings, f"{snapshot.found.snapshot_id}/000000", bytes(chunk))


def missing_chunk(settings: Settings, snapshot: Snapshot) -> None:
    """A chunk is gone."""
    put(settings, f"{snapshot.found.snapshot_id}/000000", None)


def missing_manifest(settings: Settings, snapshot: Snapshot) -> None:
    """The manifest was never written, or is gone."""
    put(settings, f"{snapshot.found.snapshot_id}/manifest", None)


def manifest(settings: Settings, snapshot: Snapshot, **changes: Any) -> None:
    """The manifest says something else."""
    changed = replace(snapshot.manifest, **changes)
    put(settings, f"{changed.snapshot_id}/manifest", codec.encode(changed))


def wrong_checksum(settings: Settings, snapshot: Snapshot) -> None:
    """The checksum in the manifest is wrong."""
    manifest(settings, snapshot, checksum=b"x" * 32)


def another_topic(settings: Settings, snapshot: Snapshot) -> None:
    """The snapshot belongs to another log."""
    manifest(settings, snapshot, genesis=replace(snapshot.manifest.genesis, generations_topic_id="other"))


def another_cluster(settings: Settings, snapshot: Snapshot) -> None:
    """The snapshot belongs to another cluster."""
    manifest(settings, snapshot, genesis=replace(snapshot.manifest.genesis, cluster_id="other"))


def another_format(settings: Settings, snapshot: Snapshot) -> None:
    """A version that this one does not know wrote the snapshot."""
    manifest(settings, snapshot, format=2)


def garbage(settings: Settings, snapshot: Snapshot) -> None:
    """The manifest is no manifest."""
    put(settings, f"{snapshot.found.snapshot_id}/manifest", b"garbage")


DAMAGES: list[tuple[Damage, str]] = [
    (cut_chunk, "bytes, not"),
    (flipped_bit, "cannot be read|checksum|does not fit|other numbers"),
    (missing_chunk, "chunks are missing"),
    (missing_manifest, "no manifest"),
    (wrong_checksum, "checksum"),
    (another_topic, "another generations log"),
    (another_cluster, "another Kafka cluster"),
    (another_format, "another version"),
    (garbage, "cannot be read"),
]


@pytest.fixture
def filled(fresh: Installation, serve: Serve) -> tuple[Place, list[Snapshot]]:
    """An installation with two snapshots, each after some events, and events after the newer one."""
    service, taken = serve(fresh.settings), []
    for number in range(2):
        for tenant in ("a", "b", "ü ☃"):
            attach(service, f"n{number}", tenant)
        taken.append(take_snapshot(fresh.settings, 30))
    attach(service, "n9", "c")
    return Place(fresh.settings), taken


def truncated(settings: Settings, until: int) -> None:
    """Delete records of the log with Kafka's own tool, as somebody in a hurry would."""
    place = TopicPartition(settings.topic(records.GENERATIONS), 0, until)
    admin = AdminClient(settings.kafka())
    admin.delete_records([place])[place].result(10)


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


def test_a_service_on_a_snapshot_answers_as_before(
    filled: tuple[Place, list[Snapshot]], serve: Serve, soon: Deadline
) -> None:
    """Windows, holders and request ids come through a snapshot: verdicts and retries are the same."""
    place, _ = filled
    first = serve(place.settings)
    number = attach(first, "n5", "a", request_id="r-5", caller="me")
    asked = wire.Validate([wire.Subject("a", g, p) for g in (1, 2, 3, 4) for p in range(3)])
    before = first.authority().validate(asked, soon)
    take_snapshot(place.settings, 30)
    second = serve(place.settings)

    assert second.authority().validate(asked, soon).answers == before.answers
    assert attach(second, "n5", "a", request_id="r-5", caller="me") == number == 3
    assert re_attach(second, "n1") == {"b": 3, "ü ☃": 3}
    assert newest(first, "b", 3)


@pytest.mark.parametrize(("damage", "why"), DAMAGES, ids=[damage.__name__ for damage, _ in DAMAGES])
def test_a_broken_snapshot_falls_back(
    filled: tuple[Place, list[Snapshot]],
    serve: Serve,
    damage: Damage,
    why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broken snapshot is told of and the older one is used; with that broken too, the whole log."""
    place, (first, second) = filled

    damage(place.settings, second)
    assert place.start_offset() == first.log_offset
    damage(place.settings, first)
    assert place.start_offset() == -1

    assert any(re.search(why, record.getMessage()) for record in caplog.records)
    service = serve(place.settings)
    assert attach(service, "n", "a") == 3


@pytest.mark.parametrize(("damage", "why"), DAMAGES, ids=[damage.__name__ for damage, _ in DAMAGES])
def test_a_truncated_log_without_a_good_snapshot_is_not_served(
    filled: tuple[Place, list[Snapshot]], serve: Serve, damage: Damage, why: str
) -> None:
    """What neither the log nor a snapshot holds any more is not guessed: nothing starts, and says why."""
    place, taken = filled
    truncated(place.settings, taken[0].log_offset)
    for snapshot in taken:
        damage(place.settings, snapshot)

    with pytest.raises(LogBroken, match=why) as refused:
        serve(place.settings)

    assert "no snapshot is good" in str(refused.value)
    assert "restore" in str(refused.value.hint)
    with pytest.raises(LogBroken):
        rebuild_projection(place.settings)


def test_a_server_that_finds_no_good_snapshot_ends(
    fresh: Installation, filled: tuple[Place, list[Snapshot]], cli: Callable[..., Any]
) -> None:
    """What is found broken only while it loads ends the server too, with the reason."""
    place, taken = filled
    truncated(place.settings, taken[0].log_offset)
    for snapshot in taken:
        flipped_bit(place.settings, snapshot)

    done = cli("issuer", "serve", "--port", "0", env=fresh.env)

    assert done.returncode == 1
    assert "no snapshot is good" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_log_truncated_above_every_snapshot_is_not_served(filled: tuple[Place, list[Snapshot]]) -> None:
    """A hole between a snapshot and the log's first record is no state."""
    place, (_, second) = filled
    truncated(place.settings, second.log_offset + 1)

    with pytest.raises(LogBroken, match="is cut off"):
        Service(place.settings)


def ahead(settings: Settings, snapshot: Snapshot) -> None:
    """A snapshot stands for events that the log does not have."""
    name = f"{10**6:020d}-{snapshot.found.snapshot_id[-12:]}"
    manifest(settings, snapshot, snapshot_id=name, log_offset=10**6)


def contradicted(settings: Settings, snapshot: Snapshot) -> None:
    """The log has another record at a snapshot's place: it was lost and written anew."""
    manifest(settings, snapshot, seal=b"x" * 32)


@pytest.mark.parametrize(
    ("proof", "why"), [(ahead, "ends at offset 8"), (contradicted, "another record at offset 6")]
)
def test_a_log_that_was_set_back_is_not_served(
    filled: tuple[Place, list[Snapshot]], proof: Damage, why: str
) -> None:
    """The log contradicts a snapshot of its own: nothing starts, older snapshots are no way out."""
    place, (_, second) = filled
    proof(place.settings, second)

    refused: list[Callable[[], object]] = [
        lambda: Service(place.settings),
        lambda: take_snapshot(place.settings, 30),
        lambda: rebuild_projection(place.settings),
    ]
    for start in refused:
        with pytest.raises(LogBroken, match=f"was set back.*{why}") as broken:
            start()
        assert "restore the log" in str(broken.value.hint)


def test_a_snapshot_newer_than_the_end_that_was_read(filled: tuple[Place, list[Snapshot]]) -> None:
    """Another issuer's snapshot may be newer than one's reading of the log's end: the end is read again."""
    place, (_, second) = filled
    early = replace(place.facts(), end=second.log_offset)

    assert place.snapshots.start(early, Deadline.after(20)).log_offset == second.log_offset


def test_an_emptied_log_is_not_started_again(bare: Installation) -> None:
    """A log that lost everything, and of which a snapshot tells, gets no second Genesis."""
    place = Place(bare.settings)
    facts = place.facts()
    genesis = Genesis(
        1, facts.cluster_id, facts.generations_topic_id, facts.intents_topic_id, datetime.now(UTC)
    )
    state = State()
    apply(state, 0, genesis)
    made = manifest_of(state, f"{0:020d}-{'a' * 12}", b"x" * 32, [], b"")
    put(bare.settings, f"{made.snapshot_id}/manifest", codec.encode(made))

    with pytest.raises(LogBroken, match="was set back"):
        write_genesis(bare.settings)


def test_a_running_reader_below_the_cut_stops(filled: tuple[Place, list[Snapshot]]) -> None:
    """A reader that had not come as far as the cut does not skip what is gone."""
    place, (_, second) = filled
    truncated(place.settings, second.log_offset)
    from sexton.issuer.log import LogReader

    reader = LogReader(place.settings)
    reader.start()
    with pytest.raises(LogBroken, match="truncated or re-created"):
        reader.wait_for(0, Deadline.after(15))
    reader.stop()


def test_old_snapshots_are_removed(filled: tuple[Place, list[Snapshot]]) -> None:
    """The newest two good ones stay; older ones and what was cut off go, chunks and all."""
    place, (_, second) = filled
    put(place.settings, f"{1:020d}-{'0' * 12}/000000", b"of a writer that was killed")

    third = take_snapshot(place.settings, 30)

    assert place.ids() == [third.found.snapshot_id, second.found.snapshot_id]
    with closing(TopicReader(place.settings, place.settings.topic(records.SNAPSHOTS))) as reader:
        bounds = reader.bounds(Deadline.after(10))
        assert bounds
        last = {m.key(): m.value() for m in reader.read(*bounds, Deadline.after(10))}
    assert {bytes(key or b"")[:20] for key, value in last.items() if value is not None} == {
        f"{s.log_offset:020d}".encode() for s in (second, third)
    }


def test_a_broken_one_does_not_count_as_kept(filled: tuple[Place, list[Snapshot]]) -> None:
    """A snapshot that is broken does not push out the last good one."""
    place, (first, second) = filled
    flipped_bit(place.settings, second)

    third = take_snapshot(place.settings, 30)

    assert first.found.snapshot_id in place.ids()
    assert third.found.snapshot_id in place.ids()


def test_a_snapshot_in_many_chunks(
    fresh: Installation, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state larger than one chunk is written in many and read back whole."""
    service = serve(fresh.settings)
    names = [f"tenant-{number:05d}" for number in range(3000)]
    service.authority().attach(wire.Attach(node="n", tenants=names), Deadline.after(20))
    monkeypatch.setattr("sexton.issuer.snapshot_format._CELLS", 1000)

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


class TestTruncate:
    def test_plan_deletes_nothing(self, filled: tuple[Place, list[Snapshot]], soon: Deadline) -> None:
        """Without --execute the log stays; the cut lies below the older of the two that are kept."""
        place, (first, second) = filled

        plan = truncation.plan(place.settings, soon)

        assert (plan.start, plan.until) == (0, first.log_offset)
        assert plan.snapshots == (second.found.snapshot_id, first.found.snapshot_id)
        assert place.facts().start == 0

    def test_the_truncated_log_is_served(
        self, filled: tuple[Place, list[Snapshot]], serve: Serve, soon: Deadline
    ) -> None:
        """After the cut everything that reads the log starts from a snapshot, on either of the two."""
        place, (first, second) = filled
        plan = truncation.plan(place.settings, soon)

        assert truncation.execute(place.settings, plan, soon) == first.log_offset
        assert place.start_offset() == second.log_offset
        assert attach(serve(place.settings), "n", "a") == 3
        flipped_bit(place.settings, second)
        assert place.start_offset() == first.log_offset
        assert attach(serve(place.settings), "n", "a") == 4
        assert write_genesis(place.settings) == first.manifest.genesis
        assert rebuild_projection(place.settings) == 4

    def test_again_after_later_snapshots(
        self, filled: tuple[Place, list[Snapshot]], serve: Serve, soon: Deadline
    ) -> None:
        """A log that was truncated can be truncated again, proven from the older snapshot on."""
        place, (_, second) = filled
        truncation.execute(place.settings, truncation.plan(place.settings, soon), soon)
        attach(serve(place.settings), "n", "d")
        take_snapshot(place.settings, 30)

        plan = truncation.plan(place.settings, soon)

        assert plan.until == second.log_offset
        assert truncation.execute(place.settings, plan, soon) == second.log_offset

    def test_refused_without_a_snapshot(self, fresh: Installation, soon: Deadline) -> None:
        """Nothing is deleted below nothing."""
        with pytest.raises(SextonError, match="no verified snapshot"):
            truncation.plan(fresh.settings, soon)

    def test_refused_with_broken_ones(self, filled: tuple[Place, list[Snapshot]], soon: Deadline) -> None:
        """Broken snapshots do not count."""
        place, taken = filled
        for snapshot in taken:
            flipped_bit(place.settings, snapshot)

        with pytest.raises(SextonError, match="no verified snapshot: snapshot"):
            truncation.plan(place.settings, soon)

    def test_refused_when_the_log_says_otherwise(
        self, filled: tuple[Place, list[Snapshot]], soon: Deadline
    ) -> None:
        """A snapshot that is whole but not what the log says is never what a log is cut below."""
        place, (_, second) = filled
        state = place.snapshots.load(second, soon)
        tenant = state.tenant("a")
        assert tenant is not None
        tenant.dropped = True
        put(place.settings, f"{second.found.snapshot_id}/manifest", None)
        place.snapshots.take(state, soon)

        with pytest.raises(BadSnapshot, match="not what the log says"):
            truncation.plan(place.settings, soon)


def test_the_commands(filled: tuple[Place, list[Snapshot]], cli: Any) -> None:
    """`snapshot` writes one, `truncate` prints its plan, `truncate --execute` deletes."""
    place, (_, second) = filled
    env = place.settings.environment()
    taken = json.loads(cli("issuer", "snapshot", "--format", "json", env=env).stdout)
    planned = cli("issuer", "truncate", env=env)
    done = json.loads(cli("issuer", "truncate", "--execute", "--format", "json", env=env).stdout)

    assert taken["log_offset"] == place.facts().end - 1
    assert f"records below {second.log_offset}" in planned.stdout
    assert "--execute" in planned.stderr
    assert (done["executed"], done["start"]) == (True, second.log_offset)
    assert place.facts().start == second.log_offset


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
    service.authority().barrier(wire.Barrier(unsettled=wire.Ends(topic_id, [3, 0, 0])), soon)
    take_snapshot(fresh.settings, 30)

    for reader in (service, serve(fresh.settings)):
        with reader.reader.state() as state:
            assert state.window("t", 1, 0) is None
            assert state.window("t", 2, 0) == Window(3)
