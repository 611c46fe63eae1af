"""The topic `generations.snapshots`: which snapshots stand there, their bytes, writing and removing them.

Keys are `<snapshot id>/<chunk number>` and `<snapshot id>/manifest`. The manifest is written last and removed
first, so chunks with a manifest were whole once.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from sexton.issuer.deadline import Deadline
from sexton.issuer.json_lines import KAFKA
from sexton.issuer.log.ranges import RangeReader
from sexton.schemas import records
from sexton.schemas.errors import KafkaUnavailable
from sexton.schemas.kafka import refusals
from sexton.schemas.settings import Settings

__all__ = ["MAX_CHUNK_BYTES", "Found", "SnapshotTopic"]

MAX_CHUNK_BYTES = 8 * 1024 * 1024  # half of what the topic takes
_KEY = re.compile(r"(\d{20}-[0-9a-f]{12})/(\d{6}|manifest)\Z", re.ASCII)
_MANIFEST = "manifest"
_log = logging.getLogger("sexton.issuer.snapshots")


@dataclass(slots=True)
class Found:
    """What stands of one snapshot: topic offsets of its chunks by number, and its manifest's bytes."""

    snapshot_id: str
    chunks: dict[int, int] = field(default_factory=dict)
    manifest: bytes | None = None

    @property
    def log_offset(self) -> int:
        """The place of the log that its id names."""
        return int(self.snapshot_id[:20])


class SnapshotTopic:
    """Snapshots as bytes. Every method raises KafkaUnavailable when Kafka does not do it in time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic = settings.topic(records.SNAPSHOTS)

    def find(self, deadline: Deadline) -> list[Found]:
        """Return every snapshot of which anything stands in the topic, the newest first."""
        found: dict[str, Found] = {}
        with closing(RangeReader(self._settings, self._topic)) as reader:
            bounds = reader.bounds(deadline)
            for message in reader.read(*bounds, deadline) if bounds else ():
                _note(found, message)
        left = [each for each in found.values() if each.chunks or each.manifest is not None]
        return sorted(left, key=lambda each: each.snapshot_id, reverse=True)

    def chunks(self, found: Found, count: int, deadline: Deadline) -> Iterator[bytes]:
        """Yield the chunks 0 to `count` - 1 in order, as far as they are there."""
        places = [found.chunks.get(number) for number in range(count)]
        there = [place for place in places if place is not None]
        if not there:
            return
        waiting: dict[int, bytes] = {}
        turn = 0
        with closing(RangeReader(self._settings, self._topic)) as reader:
            for message in reader.read(min(there), max(there) + 1, deadline):
                offset = cast(int, message.offset())
                if turn < count and offset == places[turn]:
                    yield cast(bytes, message.value())
                    turn += 1
                elif offset in there:
                    waiting[offset] = cast(bytes, message.value())
                while turn < count and places[turn] in waiting:
                    yield waiting.pop(cast(int, places[turn]))
                    turn += 1

    def write(self, snapshot_id: str, chunks: Iterable[bytes], deadline: Deadline) -> None:
        """Write chunks; they count for nothing until `write_manifest`."""
        with _Writer(self._settings, self._topic) as writer:
            for number, chunk in enumerate(chunks):
                writer.put(f"{snapshot_id}/{number:06d}", chunk, deadline)
            writer.flush(deadline)

    def write_manifest(self, snapshot_id: str, manifest: bytes, deadline: Deadline) -> None:
        """Write the manifest, which makes the chunks written before it a snapshot."""
        with _Writer(self._settings, self._topic) as writer:
            writer.put(f"{snapshot_id}/{_MANIFEST}", manifest, deadline)
            writer.flush(deadline)

    def remove(self, doomed: Sequence[Found], deadline: Deadline) -> None:
        """Write tombstones, the manifests' first: what is cut off then leaves chunks that nobody reads."""
        with _Writer(self._settings, self._topic) as writer:
            for found in doomed:
                if found.manifest is not None:
                    writer.put(f"{found.snapshot_id}/{_MANIFEST}", None, deadline)
            writer.flush(deadline)
            for found in doomed:
                for number in found.chunks:
                    writer.put(f"{found.snapshot_id}/{number:06d}", None, deadline)
            writer.flush(deadline)


def _note(found: dict[str, Found], message: Message) -> None:
    match = _KEY.match((message.key() or b"").decode("utf-8", "replace"))
    if match is None:
        _log.warning("a record that is no part of a snapshot: offset %s", message.offset())
        return
    snapshot = found.setdefault(match[1], Found(match[1]))
    value = message.value()
    if match[2] == _MANIFEST:
        snapshot.manifest = value
    elif value is None:
        snapshot.chunks.pop(int(match[2]), None)
    else:
        snapshot.chunks[int(match[2])] = cast(int, message.offset())


class _Writer:
    def __init__(self, settings: Settings, topic: str) -> None:
        self._topic = topic
        self._failed: list[str] = []
        self._producer = Producer(
            settings.kafka(
                **{
                    "client.id": "sexton-issuer-snapshots",
                    "acks": "all",
                    "linger.ms": 5,
                    "compression.type": "lz4",
                    "message.max.bytes": MAX_CHUNK_BYTES,
                }
            ),
            logger=KAFKA,
        )

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.purge()

    def put(self, key: str, value: bytes | None, deadline: Deadline) -> None:
        """Hand over one record; raises KafkaUnavailable when there is no room for it in time."""
        headers: Any = [("sexton-type", b"SnapshotManifest" if key.endswith(_MANIFEST) else b"SnapshotChunk")]
        while True:
            try:
                self._producer.produce(
                    self._topic, value, key, partition=0, headers=headers, on_delivery=self._delivered
                )
                self._producer.poll(0)
                return
            except BufferError:
                self._look(min(0.1, deadline.require("writing a snapshot")))
            except KafkaException as error:
                raise _not_written(error) from error

    def flush(self, deadline: Deadline) -> None:
        """Return when all is acknowledged."""
        try:
            left = self._producer.flush(deadline.require("writing a snapshot"))
        except KafkaException as error:
            raise _not_written(error) from error
        if self._failed or left:
            raise KafkaUnavailable(f"writing a snapshot: {(self._failed or ['no time left'])[0]}")

    def _look(self, seconds: float) -> None:
        try:
            self._producer.poll(seconds)
        except KafkaException as error:  # a fatal one
            raise _not_written(error) from error

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error.str())


def _not_written(error: KafkaException) -> KafkaUnavailable:
    kafka = error.args[0]
    return KafkaUnavailable(f"writing a snapshot: {kafka.str()}", hint=refusals.hint(kafka))
