"""What waits now: where each intent first stood, and which records are copies of one and the same.

History above the oldest first position is kept. A summary for each few hundred records errs to the safe side:
it goes when all its records are done. Beside it 48 bytes for each record tell its intent, so that a million
waiting intents cost some tens of megabytes.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sexton.schemas import events

__all__ = [
    "Copy",
    "Duplicates",
    "Origin",
    "Pending",
    "digest_of",
    "named",
    "origin_of",
    "place_of",
    "position_at",
]

_PER_ENTRY = 256
_UNKNOWN = -1
_PLACE_BITS = 48  # of an offset, beside 15 bits of a partition


@dataclass(frozen=True, slots=True)
class Origin:
    """Which intent a copy is of: where it first stood, and a digest of that topic's id and of its bytes.

    The position alone does not say it: a replay of a dead letter keeps the first one, and names other keys.
    `named` is the digest of its id as receipts have it, 0 for a copy that does not tell it, `topic` that of
    the id of the topic in which it first stood. `since_s` is when it was written there, seconds since 1970.
    """

    partition: int
    offset: int
    digest: int = 0
    named: int = 0
    topic: int = 0
    since_s: float = math.inf

    @property
    def place(self) -> int:
        """Where it first stood, as one number."""
        return place_of(self.partition, self.offset)


@dataclass(frozen=True, slots=True)
class Copy:
    """A record of `deferred`: where it stands, of which intent it is (as in `Origin`), and its age.

    `at_ms` is its log-append time in milliseconds since 1970.
    """

    partition: int
    offset: int
    place: int
    named: int
    at_ms: int
    topic: int


def place_of(partition: int, offset: int) -> int:
    """Return a position in `intents` as one number."""
    return partition << _PLACE_BITS | offset


def position_at(place: int) -> tuple[int, int]:
    """Return partition and offset of such a number."""
    return place >> _PLACE_BITS, place & (1 << _PLACE_BITS) - 1


def named(topic_id: str, intent_id: str) -> int:
    """Return the digest of an intent's id, of one that first stood in the topic of this id."""
    return _digest(topic_id, intent_id.encode())


def digest_of(topic_id: str) -> int:
    """Return the digest of a topic's id."""
    return _digest(topic_id, b"")


def _digest(topic_id: str, of: bytes) -> int:
    digest = hashlib.blake2b(topic_id.encode() + b"/", digest_size=8)
    digest.update(of)
    return int.from_bytes(digest.digest(), "big", signed=True)


def origin_of(copy: events.DeferredIntent, intent_id: str | None = None) -> Origin:
    """Return which intent a copy is of; `intent_id` is what its headers say, or its bytes."""
    topic_id = copy.first.topic_id
    return Origin(
        copy.first.partition,
        copy.first.offset,
        _digest(topic_id, copy.raw_value),
        0 if intent_id is None else named(topic_id, intent_id),
        digest_of(topic_id),
        copy.first_written_at.timestamp(),
    )


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Copies of one intent in one partition of `deferred`, by partition: all but the last are `dropped`.

    The last one continues, `kept`: what the others knew of its keys is lost, so that each of them may be
    gone.
    """

    dropped: Mapping[int, frozenset[int]] = field(default_factory=dict)
    kept: Mapping[int, frozenset[int]] = field(default_factory=dict)


@dataclass(slots=True)
class _Entry:
    """Records of one partition up to `last`; `oldest` maps an intents partition to its lowest offset.

    `since_s` is when the first of their intents was written.
    """

    last: int
    oldest: dict[int, int] = field(default_factory=dict)
    since_s: float = math.inf
    offsets: array[int] = field(default_factory=lambda: array("q"))
    places: array[int] = field(default_factory=lambda: array("q"))
    digests: array[int] = field(default_factory=lambda: array("q"))
    named: array[int] = field(default_factory=lambda: array("q"))
    times: array[int] = field(default_factory=lambda: array("q"))
    topics: array[int] = field(default_factory=lambda: array("q"))

    def note(self, offset: int, origin: Origin | None, at_ms: int) -> None:
        self.last = offset
        self.offsets.append(offset)
        self.places.append(_UNKNOWN if origin is None else origin.place)
        self.digests.append(0 if origin is None else origin.digest)
        self.named.append(0 if origin is None else origin.named)
        self.times.append(at_ms)
        self.topics.append(0 if origin is None else origin.topic)
        if origin is not None:
            place, at = origin.partition, origin.offset
            self.oldest[place] = min(at, self.oldest.get(place, at))
            self.since_s = min(self.since_s, origin.since_s)

    def intents(self) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield each readable record's offset and which intent it is of."""
        for offset, place, digest in zip(self.offsets, self.places, self.digests, strict=True):
            if place != _UNKNOWN:
                yield offset, (place, digest)


@dataclass(slots=True)
class Pending:
    """The waiting records, by partition of the `deferred` topic, in the order of their offsets."""

    _entries: dict[int, deque[_Entry]] = field(default_factory=dict)

    def note(self, partition: int, offset: int, origin: Origin | None, at_ms: int = 0) -> None:
        """Note a record, which intent it is of (None if it is unreadable), and when it was written."""
        entries = self._entries.setdefault(partition, deque())
        if not entries or len(entries[-1].offsets) >= _PER_ENTRY:
            entries.append(_Entry(offset))
        entries[-1].note(offset, origin, at_ms)

    def copies(self) -> Iterator[Copy]:
        """Yield each readable record."""
        for partition, entries in self._entries.items():
            for e in entries:
                for record in zip(e.offsets, e.places, e.named, e.times, e.topics, strict=True):
                    if record[1] != _UNKNOWN:
                        yield Copy(partition, *record)

    def done(self, partition: int, end: int) -> None:
        """Note that everything of a partition below `end` is settled or was written again."""
        entries = self._entries.get(partition, deque())
        while entries and entries[0].last < end:
            entries.popleft()

    def oldest(self) -> dict[int, int]:
        """Return the lowest first offset by intents partition."""
        found: dict[int, int] = {}
        for entries in self._entries.values():
            for entry in entries:
                for place, at in entry.oldest.items():
                    found[place] = min(at, found.get(place, at))
        return found

    def since_s(self) -> float | None:
        """Return when the intent that waits longest was written, seconds since 1970; None where none waits.

        Errs to the earlier side, as `oldest` does.
        """
        found = min((e.since_s for entries in self._entries.values() for e in entries), default=math.inf)
        return None if found == math.inf else found

    def duplicates(self, ranges: Mapping[int, tuple[int, int]]) -> Duplicates:
        """Return which records of these ranges are copies of an intent of which a later copy waits, too.

        Two come to be when a micro-batch is processed again whose copies were written already. Later is by
        offset, so only within a partition: the last delay, in which all that continues waiting ends up, is
        one.
        """
        dropped: dict[int, frozenset[int]] = {}
        kept: dict[int, frozenset[int]] = {}
        for partition, (start, end) in ranges.items():
            last, repeated = _latest(self._entries.get(partition, ()), start, end)
            out = frozenset(offset for offset, intent in repeated if offset != last[intent])
            if out:
                dropped[partition] = out
                kept[partition] = frozenset(last[intent] for offset, intent in repeated if offset in out)
        return Duplicates(dropped, kept)


def _latest(
    entries: Iterable[_Entry], start: int, end: int
) -> tuple[dict[tuple[int, int], int], list[tuple[int, tuple[int, int]]]]:
    """Return the last offset of each intent of a range, and the range's records."""
    within: list[tuple[int, tuple[int, int]]] = []
    last: dict[tuple[int, int], int] = {}
    places: set[int] = set()
    for entry in entries:
        if entry.last >= start and entry.offsets[0] < end:
            found = [(offset, intent) for offset, intent in entry.intents() if start <= offset < end]
            within += found
            last.update((intent, offset) for offset, intent in found)
            places.update(intent[0] for _, intent in found)
        # Of a million records that wait behind the range this looks at each, and makes no object of any.
        if entry.last >= end and not places.isdisjoint(entry.places):
            last.update((i, offset) for offset, i in entry.intents() if offset >= end and i in last)
    return last, within
