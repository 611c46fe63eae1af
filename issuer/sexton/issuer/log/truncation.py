"""Truncating the log: records below a verified snapshot are deleted, by hand only, and after a last proof.

What is deleted cannot be folded again, so this is where snapshots are checked against the log itself. Each
event is folded once more from the start of what is there, and at each snapshot's place the state must have
the bytes that the snapshot has. Only then is the log cut, below the older of the snapshots that are kept: if
the newer one breaks later, the older one and the events after it still give the state.
"""

from __future__ import annotations

import hashlib
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import TopicPartition

from sexton.issuer.deadline import Deadline
from sexton.issuer.log.positions import REACH_S, Positions
from sexton.issuer.log.ranges import RangeReader
from sexton.issuer.log.reader import decode_event
from sexton.issuer.snapshots.format import BadSnapshot, encode
from sexton.issuer.snapshots.store import KEPT, LogFacts, Snapshot, Snapshots
from sexton.issuer.state.fold import apply
from sexton.issuer.state.state import State
from sexton.schemas.codec import Codec
from sexton.schemas.errors import KafkaUnavailable, SextonError
from sexton.schemas.kafka.admin import result
from sexton.schemas.settings import Settings

__all__ = ["Plan", "execute", "plan"]

_codec = Codec()


@dataclass(frozen=True, slots=True)
class Plan:
    """What a truncation deletes, [`start`, `until`) of the log, and the verified snapshots above that."""

    start: int
    until: int
    end: int
    snapshots: tuple[str, ...]

    @property
    def records(self) -> int:
        """How many records go."""
        return max(0, self.until - self.start)


def plan(settings: Settings, deadline: Deadline) -> Plan:
    """Verify the newest snapshots against the log and return what could be deleted below them.

    Raises SextonError when no snapshot is good, BadSnapshot when one does not say what the log says,
    KafkaUnavailable, LogBroken.
    """
    positions = Positions(settings)
    snapshots = Snapshots(settings, positions)
    facts = snapshots.facts(Deadline.after(REACH_S))
    good, faults = _loadable(snapshots, facts, deadline)
    if not good:
        why = "; ".join(faults) or "there is none"
        raise SextonError(f"no verified snapshot: {why}", hint="`sexton issuer snapshot` takes one")
    oldest, state = good[-1]
    if facts.start == 0:
        _prove(settings, positions, State(), [s for s, _ in reversed(good)], deadline)
    else:  # the events below are gone: the older snapshot was proven when they were cut off
        _prove(settings, positions, state, [s for s, _ in reversed(good[:-1])], deadline)
    ids = tuple(snapshot.found.snapshot_id for snapshot, _ in good)
    # The last event that is in the state stays: its bytes tie the snapshot to this log.
    return Plan(facts.start, max(facts.start, oldest.log_offset), facts.end, ids)


def execute(settings: Settings, made: Plan, deadline: Deadline) -> int:
    """Delete what the plan says and return the log's new first offset; raises KafkaUnavailable."""
    positions = Positions(settings)
    place = TopicPartition(positions.log, 0, made.until)
    what = f"deleting records of {positions.log}"
    left = deadline.require(what)
    # Nobody brings these events back. The snapshots that were proven are not below the cut, and go only
    # for newer ones. Where the answer is lost it may be done: a new plan says where the log starts.
    deleted = positions.cluster.admin.delete_records([place], request_timeout=left, operation_timeout=left)
    return int(result(deleted[place], what, left).low_watermark)


def _loadable(
    snapshots: Snapshots, facts: LogFacts, deadline: Deadline
) -> tuple[list[tuple[Snapshot, State]], list[str]]:
    usable, faults = snapshots.usable(facts, deadline)
    good: list[tuple[Snapshot, State]] = []
    for snapshot in usable:
        if len(good) == KEPT:
            break
        try:
            good.append((snapshot, snapshots.load(snapshot, deadline)))
        except BadSnapshot as bad:
            faults.append(f"snapshot {snapshot.found.snapshot_id} is not used: {bad}")
    return good, faults


def _prove(
    settings: Settings, positions: Positions, state: State, proven: list[Snapshot], deadline: Deadline
) -> None:
    """Fold the log on from `state`; at the place of each snapshot, in order, the state must be its bytes."""
    with closing(RangeReader(settings, positions.log)) as reader:
        for snapshot in proven:
            for message in reader.read(state.next_offset, snapshot.log_offset + 1, deadline):
                apply(state, int(message.offset() or 0), decode_event(message))
            if state.log_offset != snapshot.log_offset:
                raise KafkaUnavailable(f"the log cannot be read up to offset {snapshot.log_offset}")
            checksum = hashlib.sha256()
            for chunk in encode(state):
                checksum.update(_codec.encode(chunk))
            if checksum.digest() != snapshot.manifest.checksum:
                raise BadSnapshot(
                    f"snapshot {snapshot.found.snapshot_id} is not what the log says",
                    hint="take a new one with this version; if that differs too, the fold has changed",
                )
