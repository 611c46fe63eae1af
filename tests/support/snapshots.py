"""Snapshots of an installation as tests look at them, and ways to break one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from sexton.issuer.deadline import Deadline
from sexton.issuer.log.positions import Positions
from sexton.issuer.log.ranges import RangeReader
from sexton.issuer.snapshots.manifest import digest_of
from sexton.issuer.snapshots.store import LogFacts, Snapshot, Snapshots
from sexton.issuer.snapshots.topic import SnapshotTopic
from sexton.schemas import records
from sexton.schemas.codec import Codec
from sexton.schemas.settings import Settings

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
    with closing(RangeReader(settings, settings.topic(records.SNAPSHOTS))) as reader:
        place = snapshot.found.chunks[0]
        (message,) = reader.read(place, place + 1, Deadline.after(20))
        return bytes(message.value() or b"")


@contextmanager
def mended(settings: Settings, *snapshots: Snapshot) -> Iterator[None]:
    """Write snapshots of one chunk again when the block ends, as they were."""
    chunks = [chunk_of(settings, snapshot) for snapshot in snapshots]
    yield
    for snapshot, chunk in zip(snapshots, chunks, strict=True):
        put(settings, f"{snapshot.found.snapshot_id}/000000", chunk)
        put(settings, f"{snapshot.found.snapshot_id}/manifest", codec.encode(snapshot.manifest))


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
    """The manifest says something else, and its digest fits."""
    changed = replace(snapshot.manifest, **changes)
    changed = replace(changed, digest=digest_of(changed))
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
    manifest(settings, snapshot, format=99)


def changed(**changes: Any) -> Damage:
    """The manifest says something else than what was written."""

    def damage(settings: Settings, snapshot: Snapshot) -> None:
        said = replace(snapshot.manifest, **changes)
        put(settings, f"{snapshot.found.snapshot_id}/manifest", codec.encode(said))

    return damage


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
    (changed(high=[10**6] * 3), "digest is wrong"),
    (changed(floor=[10**6] * 3), "digest is wrong"),
    (changed(request_mark=2**60), "digest is wrong"),
    (changed(seal=b"x" * 32), "digest is wrong"),
]


def truncated(settings: Settings, until: int) -> None:
    """Delete records of the log with Kafka's own tool, as somebody in a hurry would."""
    place = TopicPartition(settings.topic(records.GENERATIONS), 0, until)
    admin = AdminClient(settings.kafka())
    admin.delete_records([place])[place].result(10)
