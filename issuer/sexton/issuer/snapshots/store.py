"""Snapshots of the folded state: taken, verified on load, the newest good one found, old ones removed.

Nothing here is accepted because it is there. A snapshot is used only if every byte is what its manifest says,
and the log still is the one that was folded: the same cluster and topics, its offset within the log, and at
that offset the very record that the writer had read. Else an older one is taken, or the log from its start.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import cast

from sexton.issuer.deadline import Deadline
from sexton.issuer.log.positions import Positions
from sexton.issuer.log.ranges import RangeReader
from sexton.issuer.snapshots.format import READABLE, BadSnapshot, Restorer, encode
from sexton.issuer.snapshots.manifest import digest_of, manifest_of
from sexton.issuer.snapshots.topic import Found, SnapshotTopic
from sexton.issuer.state.fold import FORMAT
from sexton.issuer.state.state import State
from sexton.schemas.codec import Codec
from sexton.schemas.errors import LogBroken, UndecodableRecord
from sexton.schemas.events import Genesis, SnapshotChunk, SnapshotManifest
from sexton.schemas.settings import Settings

__all__ = ["KEPT", "LogFacts", "Snapshot", "Snapshots"]

KEPT = 2
_codec = Codec()  # always single-object encoding, like the log
_log = logging.getLogger("sexton.issuer.snapshots")


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The log as it is now: what it belongs to, its first offset and its end."""

    cluster_id: str
    generations_topic_id: str
    intents_topic_id: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot whose manifest fits the log; its chunks are verified when they are read."""

    found: Found
    manifest: SnapshotManifest

    @property
    def log_offset(self) -> int:
        """The last event that is in the state."""
        return self.manifest.log_offset


class Snapshots:
    """The snapshots of one installation.

    Whatever looks for snapshots raises LogBroken when one of them proves that the log was set back, and
    KafkaUnavailable and WrongTopic beside what methods name.
    """

    def __init__(self, settings: Settings, positions: Positions) -> None:
        self._settings = settings
        self._positions = positions
        self._topic = SnapshotTopic(settings)

    # --- finding and loading --------------------------------------------------------------------------------

    def facts(self, deadline: Deadline) -> LogFacts:
        """Return the log as it is now."""
        topics = self._positions.describe(deadline)
        with closing(RangeReader(self._settings, self._positions.log)) as reader:
            start, end = reader.bounds(deadline) or (0, 0)
        return LogFacts(
            self._positions.cluster.cluster_id(deadline.require("cluster id")),
            topics[self._positions.log].topic_id,
            topics[self._positions.intents].topic_id,
            start,
            end,
        )

    def usable(self, facts: LogFacts, deadline: Deadline) -> tuple[list[Snapshot], list[str]]:
        """Return the snapshots whose manifests fit the log, the newest first, and why others do not."""
        good, faults = [], []
        for found in self._topic.find(deadline):
            try:
                good.append(Snapshot(found, self._checked(found, facts, deadline)))
            except BadSnapshot as bad:
                faults.append(_told(found, bad))
        return good, faults

    def start(self, facts: LogFacts, deadline: Deadline) -> State:
        """Return the state of the newest good snapshot, or an empty one to fold the whole log into.

        Raises LogBroken when there is no good one and the log does not begin at its start any more.
        """
        usable, faults = self.usable(facts, deadline)
        for snapshot in usable:
            try:
                state = self.load(snapshot, deadline)
            except BadSnapshot as bad:
                faults.append(_told(snapshot.found, bad))
                continue
            _log.info("starting from snapshot %s", snapshot.found.snapshot_id)
            return state
        if facts.start > 0:
            raise _lost(facts, faults)
        return State()

    def genesis(self, facts: LogFacts, deadline: Deadline) -> Genesis:
        """Return the Genesis of a truncated log; raises LogBroken when no snapshot tells it."""
        usable, faults = self.usable(facts, deadline)
        if not usable:
            raise _lost(facts, faults)
        return usable[0].manifest.genesis

    def load(self, snapshot: Snapshot, deadline: Deadline) -> State:
        """Return the state in a snapshot; raises BadSnapshot unless every byte of it is as written."""
        sizes, restorer = list(snapshot.manifest.sizes), Restorer()
        checksum, number = hashlib.sha256(), 0
        with _no_collection():
            for number, chunk in enumerate(self._topic.chunks(snapshot.found, len(sizes), deadline), 1):
                if len(chunk) != sizes[number - 1]:
                    raise BadSnapshot(f"chunk {number - 1} has {len(chunk)} bytes, not {sizes[number - 1]}")
                checksum.update(chunk)
                restorer.add(_decoded(chunk, number - 1))
            if number != len(sizes):
                raise BadSnapshot(f"chunks are missing: {number} of {len(sizes)} in a row are there")
            if checksum.digest() != snapshot.manifest.checksum:
                raise BadSnapshot("its checksum is wrong")
            return restorer.finish(snapshot.manifest)

    def _checked(self, found: Found, facts: LogFacts, deadline: Deadline) -> SnapshotManifest:
        if found.manifest is None:
            raise BadSnapshot("it has no manifest: it was cut off or is being written")
        try:
            manifest = _codec.decode(found.manifest, SnapshotManifest)
        except UndecodableRecord as error:
            raise BadSnapshot(f"its manifest cannot be read: {error}") from error
        if manifest.digest and manifest.digest != digest_of(manifest):
            raise BadSnapshot("its manifest is not as it was written: its digest is wrong")
        self._check_place(manifest, found, facts)
        if manifest.log_offset >= facts.end:
            # Another issuer may have written it, and the events below it, after the end was read.
            facts = self.facts(deadline)
            self._check_place(manifest, found, facts)
        if manifest.log_offset >= facts.end:
            raise _set_back(found, f"the log ends at offset {facts.end}")
        seal = self.seal(manifest.log_offset, deadline)
        if not seal:  # cut off meanwhile?
            self._check_place(manifest, found, self.facts(deadline))
        if seal != manifest.seal:
            raise _set_back(found, f"the log has another record at offset {manifest.log_offset}")
        return manifest

    @staticmethod
    def _check_place(manifest: SnapshotManifest, found: Found, facts: LogFacts) -> None:
        genesis = manifest.genesis
        if manifest.format not in READABLE or genesis.format != FORMAT:
            raise BadSnapshot(f"it has a format of another version: {manifest.format}, log {genesis.format}")
        if (manifest.snapshot_id, manifest.log_offset) != (found.snapshot_id, found.log_offset):
            raise BadSnapshot(f"its manifest belongs to another snapshot: {manifest.snapshot_id}")
        for what, named, is_ in (
            ("Kafka cluster", genesis.cluster_id, facts.cluster_id),
            ("generations log", genesis.generations_topic_id, facts.generations_topic_id),
            ("intents topic", genesis.intents_topic_id, facts.intents_topic_id),
        ):
            if named != is_:
                raise BadSnapshot(f"it belongs to another {what}: {named}, found {is_}")
        if manifest.log_offset < facts.start:
            raise BadSnapshot(f"the log after it is cut off: {manifest.log_offset}, starts at {facts.start}")

    def seal(self, log_offset: int, deadline: Deadline) -> bytes:
        """Return the SHA-256 of the log's record at an offset, which ties a snapshot to this very log."""
        with closing(RangeReader(self._settings, self._positions.log)) as reader:
            for message in reader.read(log_offset, log_offset + 1, deadline):
                if message.offset() == log_offset:
                    return hashlib.sha256(cast(bytes, message.value())).digest()
        return b""

    # --- taking and removing --------------------------------------------------------------------------------

    def take(self, state: State, deadline: Deadline) -> Snapshot:
        """Write a snapshot of a state that does not change meanwhile, read it back, remove what it replaces.

        Raises BadSnapshot when what was read back is not what was written: then nothing is removed.
        """
        seal = self.seal(state.log_offset, deadline)
        snapshot_id = f"{state.log_offset:020d}-{uuid.uuid4().hex[:12]}"
        sizes, checksum = [], hashlib.sha256()

        def chunks() -> Iterator[bytes]:
            for chunk in encode(state):
                value = _codec.encode(chunk)
                sizes.append(len(value))
                checksum.update(value)
                yield value

        # The manifest last: chunks without one are nobody's, and go with what later snapshots replace.
        self._topic.write(snapshot_id, chunks(), deadline)
        manifest = manifest_of(state, snapshot_id, seal, sizes, checksum.digest())
        self._topic.write_manifest(snapshot_id, _codec.encode(manifest), deadline)
        # Read back before anything is removed: of a truncated log the older ones may be all that is left.
        facts = self.facts(deadline)
        usable, _ = self.usable(facts, deadline)
        written = next((s for s in usable if s.found.snapshot_id == snapshot_id), None)
        if written is None:
            raise BadSnapshot(f"the snapshot that was written cannot be found: {snapshot_id}")
        self.verify(written, deadline)
        self._remove_old(usable, deadline)
        return written

    def verify(self, snapshot: Snapshot, deadline: Deadline) -> None:
        """Raise BadSnapshot unless the chunks that stand in the topic are those of the manifest."""
        checksum = hashlib.sha256()
        for chunk in self._topic.chunks(snapshot.found, len(snapshot.manifest.sizes), deadline):
            checksum.update(chunk)
        if checksum.digest() != snapshot.manifest.checksum:
            raise BadSnapshot("its checksum is wrong, or chunks are missing")

    def _remove_old(self, usable: list[Snapshot], deadline: Deadline) -> None:
        """Keep the newest good ones; what lies below the last of them goes, cut-off ones too."""
        kept: list[Snapshot] = []
        for snapshot in usable:
            if len(kept) == KEPT:
                break
            try:
                self.verify(snapshot, deadline)
                kept.append(snapshot)
            except BadSnapshot as bad:
                _log.warning("%s", _told(snapshot.found, bad))
        if len(kept) == KEPT:
            oldest = kept[-1].found.snapshot_id
            doomed = [found for found in self._topic.find(deadline) if found.snapshot_id < oldest]
            self._topic.remove(doomed, deadline)


def _decoded(chunk: bytes, number: int) -> SnapshotChunk:
    try:
        decoded = _codec.decode(chunk, SnapshotChunk)
    except UndecodableRecord as error:
        raise BadSnapshot(f"chunk {number} cannot be read: {error}") from error
    if decoded.number != number:
        raise BadSnapshot(f"chunk {number} says that it is chunk {decoded.number}")
    return decoded


def _lost(facts: LogFacts, faults: Sequence[str]) -> LogBroken:
    why = "; ".join(faults) or "there is none"
    return LogBroken(
        f"the generations log begins at offset {facts.start} and no snapshot is good: {why}",
        hint="restore the snapshots topic, or the log: without either the state is not known",
    )


def _set_back(found: Found, why: str) -> LogBroken:
    return LogBroken(
        f"the generations log was set back, snapshot {found.snapshot_id} knows of lost events: {why}",
        hint="restore the log from where it is whole; going on from what is left would use numbers twice",
    )


def _told(found: Found, bad: BadSnapshot) -> str:
    message = f"snapshot {found.snapshot_id} is not used: {bad}"
    _log.warning("%s", message)
    return message


@contextmanager
def _no_collection() -> Iterator[None]:
    """Millions of objects are about to be made and none of them is garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
