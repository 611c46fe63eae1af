"""What earlier attempts may have done to an intent's keys, from all that is known of them.

A key that may have been sent before is verified before anything is said of it: its object may have gone by
our own hand. What is known comes from the checkpoint (records that were begun and not committed), from Spark
(a task that runs once more), from replays that copies know nothing of, and from the copies themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sexton.schemas import events
from sexton.streaming_jobs.reaper.recovery.offsets import Offsets

if TYPE_CHECKING:
    from sexton.streaming_jobs.reaper.decode import Decoded

__all__ = ["Attempt", "Replayed", "SentBefore", "attempt_of"]

_EVERYTHING = 2**63 - 1
_MOST_PARTITIONS = 4096  # of a topic, those added since the start, too
_MARGIN_S = 60.0  # between the clocks of workers and of brokers


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that may have deleted a key, and of which nobody knows what became.

    It was not made before `since`, seconds since 1970 (None: nobody knows). `was_changed`: a receipt says so
    (None: nobody knows).
    """

    since: float | None = None
    was_changed: bool | None = False

    def beside(self, other: Attempt | None) -> Attempt:
        """Return what is known of a key where an attempt of another intent was about it, too: the worst."""
        if other is None:
            return self
        known = [each.since for each in (self, other) if each.since is not None]
        said = {self.was_changed, other.was_changed}
        changed = None if None in said else True
        return Attempt(min(known) if len(known) == 2 else None, False if False in said else changed)


@dataclass(frozen=True, slots=True)
class SentBefore:
    """Offsets by partition below which a record of a topic may have been processed, and what is known of it.

    `since_s` is when the work was begun, seconds since 1970, None where nobody knows. `said_changed` holds
    (partition, offset) of intents of which a receipt says `changed`, None where receipts may be missing.
    `settled` are records that ask for nothing any more: their final outcome is on Kafka, or a later copy of
    their intent waits. Of those below `unknown_below` that are not among them nobody knows it: the outcomes
    of their time are gone.
    """

    below: Mapping[int, int] = field(default_factory=dict)
    said_changed: frozenset[tuple[int, int]] | None = frozenset()
    since_s: float | None = None
    settled: tuple[Offsets, ...] = ()
    unknown_below: Mapping[int, int] = field(default_factory=dict)

    def is_settled(self, partition: int, offset: int) -> bool | None:
        """Return whether a record asks for nothing any more, None where nobody knows."""
        if any(found.has(partition, offset) for found in self.settled):
            return True
        return None if offset < self.unknown_below.get(partition, 0) else False

    def again(self, since_s: float, settled: tuple[Offsets, ...]) -> SentBefore:
        """Return what is known once a try has failed: all may have been sent, some is settled on top.

        Of what was tried and is not settled no receipt was written, so that none says `changed`.
        """
        below = dict.fromkeys(range(_MOST_PARTITIONS), _EVERYTHING)
        since = self.since_s if self.below else since_s
        return replace(self, below=below, since_s=since, settled=(*self.settled, *settled))

    def past(self, reached: Mapping[int, int]) -> SentBefore:
        """Return what is known of records from these offsets on."""
        left = any(reached.get(partition, 0) < end for partition, end in self.below.items())
        return self if left else SentBefore()


@dataclass(frozen=True, slots=True)
class Replayed:
    """First records that were processed once more: at or above `first`, by intents partition.

    An attempt before may have written copies to the delay queue that know nothing of it; `at_s` is when the
    last replay began, seconds since 1970.
    """

    first: Mapping[int, int]
    at_s: float

    def beside(self, other: Replayed | None) -> Replayed:
        """Return both replays as one."""
        if other is None:
            return self
        partitions = {*self.first, *other.first}
        lowest = {p: min(self.first.get(p, 0), other.first.get(p, 0)) for p in partitions}
        return Replayed(lowest, max(self.at_s, other.at_s))

    def covers(self, place: events.Position, written_at_us: int) -> bool:
        """Return whether a copy of the record at a place, written then, may be older than what became of
        it.
        """
        old = written_at_us / 1e6 <= self.at_s + _MARGIN_S
        return old and place.offset >= self.first.get(place.partition, 0)


def attempt_of(
    decoded: Decoded, first: events.Position, earlier: SentBefore, replayed: Replayed | None, *, retried: bool
) -> Attempt | None:
    """Return the attempt that may have sent any key of an intent; nothing of it is known key by key.

    `first` is where the intent first stood; `retried` tells of a task that Spark runs once more, and that may
    have sent everything before.
    """
    record, waited, before = decoded.record, decoded.waited, decoded.before
    if retried or record.offset < earlier.below.get(record.partition, 0):
        said = earlier.said_changed
        was_changed = None if said is None else (first.partition, first.offset) in said
        since = None if retried else earlier.since_s
        if before is not None and before.unknown and since is not None:
            since = None if before.sent_since is None else min(before.sent_since, since)
        return Attempt(since, was_changed)
    if waited is None:
        return None
    if replayed is not None and replayed.covers(waited.first, record.written_at_us):
        return Attempt(was_changed=None)  # by the first record: this copy may know nothing of it
    if waited.effect_unknown and before is None:
        return Attempt(was_changed=None)  # of some key, nobody knows which: `changed` is accepted
    return None
