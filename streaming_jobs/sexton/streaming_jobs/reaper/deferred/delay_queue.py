"""The delay queue: which records of the `deferred` topic are due, and how far they are processed.

Nothing is rewritten while it waits: each partition is one delay, and what was written that long ago is due.
How far each partition is done stands in the reaper's checkpoint, bound to the topic's id; it is written after
Kafka has acknowledged every row, so that a crash works the same records off again.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Message

from sexton.schemas import events
from sexton.schemas.codec import Codec
from sexton.schemas.errors import KafkaUnavailable, UndecodableRecord
from sexton.schemas.kafka.reader import Reader, place
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.reaper.deferred.pending import Copy, Duplicates, Origin, Pending, origin_of
from sexton.streaming_jobs.reaper.recovery.binding import CheckpointRefused, check_retention

__all__ = [
    "DelayQueue",
    "Place",
    "begun_text",
    "due_ranges",
    "parse_begun",
    "parse_uncertain",
    "parse_waiting",
    "waiting_text",
]

_FORMAT = 2
_FORMATS = (1, 2)  # that are read; the first one says nothing of uncertain copies
_ANSWER_S = 10.0
MOST_RECORDS = 2_000
"""So many records of one partition are processed at a time."""

_HINT = "docs/operating.md, 'The delay queue does not fit the checkpoint': look, then start with a new one"


@dataclass(frozen=True, slots=True)
class Place:
    """The deferred topic as it is now."""

    topic: str
    topic_id: str
    partitions: int


def waiting_text(
    place: Place, done: Mapping[int, int], uncertain: Mapping[int, frozenset[int]] | None = None
) -> str:
    """Return what is stored: up to where each partition is done, and which copies are uncertain."""
    offsets = {str(partition): offset for partition, offset in sorted(done.items())}
    doubts = {str(p): sorted(found) for p, found in sorted((uncertain or {}).items()) if found}
    return json.dumps({"format": _FORMAT, "topic_id": place.topic_id, "done": offsets, "doubted": doubts})


def parse_uncertain(text: str | None) -> dict[int, frozenset[int]]:
    """Return the copies that are uncertain, of a text that `parse_waiting` has read."""
    try:
        raw = json.loads(text).get("doubted", {}) if text else {}
        return {int(p): frozenset(map(int, offsets)) for p, offsets in raw.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise CheckpointRefused(f"the checkpoint is damaged: sexton-waiting: {error}", hint=_HINT) from error


def begun_text(place: Place, ends: Mapping[int, int], since_s: float) -> str:
    """Return what is stored before a range is processed: its ends, and since when it may have been."""
    return json.dumps({**json.loads(waiting_text(place, ends)), "since": since_s})


def parse_begun(text: str | None, place: Place) -> tuple[dict[int, int], float]:
    """Return the ends and the time in such a text; raises what `parse_waiting` raises."""
    ends = parse_waiting(text, place)
    try:
        return ends, float(json.loads(text)["since"]) if text else 0.0
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointRefused(f"the checkpoint is damaged: {error!r}", hint=_HINT) from error


def parse_waiting(text: str | None, place: Place) -> dict[int, int]:
    """Return up to where each partition is done; raises CheckpointRefused for damage or another topic."""
    if text is None:
        return {}
    try:
        raw = json.loads(text)
        if raw["format"] not in _FORMATS:
            raise CheckpointRefused(
                f"the delay queue has a format of another version: {raw['format']}", hint=_HINT
            )
        topic_id, done = str(raw["topic_id"]), {int(p): int(offset) for p, offset in raw["done"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointRefused(f"the checkpoint is damaged: sexton-waiting: {error}", hint=_HINT) from error
    if topic_id != place.topic_id:
        raise CheckpointRefused(
            f"the deferred topic was re-created: {place.topic} has id {place.topic_id}, bound to {topic_id}",
            hint=_HINT,
        )
    return done


def due_ranges(
    done: Mapping[int, int], due: Mapping[int, int], most: int = MOST_RECORDS
) -> dict[int, tuple[int, int]]:
    """Return the range to process by partition, from where it is done to where the first is not due."""
    return {
        partition: (start, min(end, start + most))
        for partition, end in sorted(due.items())
        if (start := done.get(partition, 0)) < end
    }


@dataclass(slots=True)
class DelayQueue:
    """Reads the deferred topic; safe for two threads. `done` and `uncertain` are what the checkpoint says.

    An uncertain copy is one in favour of which another of the same intent was dropped: each of its keys may
    have been sent by the attempt that wrote the other one.
    """

    settings: Settings
    place: Place
    delays: Sequence[float]
    done: dict[int, int]
    codec: Codec = field(default_factory=Codec)
    uncertain: dict[int, frozenset[int]] = field(default_factory=dict)
    _pending: Pending = field(default_factory=Pending)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _reader: Reader | None = None

    def open(self, earliest: Mapping[int, int]) -> None:
        """Start; `earliest` are the first offsets that are still there.

        Raises CheckpointRefused when retention has passed what waits.
        """
        self.check(earliest)
        self.done = {**earliest, **self.done}
        what = f"the delay queue cannot be read: {self.place.topic}"
        group = f"{self.settings.topic_prefix}waiting-room"
        self._reader = Reader(self.settings, self.place.topic, group, what)
        self._reader.positions = dict(self.done)

    def check(self, earliest: Mapping[int, int]) -> None:
        """Raise CheckpointRefused when retention has passed what waits."""
        check_retention(self.done, earliest, self.place.topic, _HINT)

    def close(self) -> None:
        """Leave."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def due(self, now_s: float | None = None) -> dict[int, tuple[int, int]]:
        """Return the range of each partition that is due, empty when nothing is; raises KafkaUnavailable."""
        now = time.time() if now_s is None else now_s
        with self._lock:
            ends = self._ends()
            asked = {
                p: now - self.delays[p]
                for p in ends
                if p < len(self.delays) and ends[p] > self.done.get(p, 0)
            }
            due = {p: ends[p] for p in ends if p >= len(self.delays)}  # of a longer list of delays, once
            if asked:
                found = self._open_reader().since(asked, _ANSWER_S)
                due.update({p: found.get(p, ends[p]) for p in asked})
        return due_ranges(self.done, due)

    def duplicates(self, ranges: Mapping[int, tuple[int, int]]) -> Duplicates:
        """Return which records of these ranges are dropped in favour of a later copy, and the uncertain ones.

        Reads what was written since the last call; raises KafkaUnavailable.
        """
        with self._lock:
            self._scan(self._ends())
            found = self._pending.duplicates(ranges)
            return Duplicates(found.dropped, _union(self.uncertain, found.kept))

    def still_uncertain(self, duplicates: Duplicates, ends: Mapping[int, int]) -> dict[int, frozenset[int]]:
        """Return those of the uncertain copies that wait on once everything below these offsets is done."""
        kept = _union(duplicates.kept, self.uncertain)  # some came to be while the range was processed
        left = {p: frozenset(o for o in found if o >= ends.get(p, 0)) for p, found in kept.items()}
        return {partition: found for partition, found in left.items() if found}

    def committed(self, ends: Mapping[int, int], uncertain: Mapping[int, frozenset[int]]) -> None:
        """Note that everything below these offsets is done, and what is uncertain, as the checkpoint says."""
        with self._lock:
            self.done.update(ends)
            self.uncertain = dict(uncertain)
            for partition, end in ends.items():
                self._pending.done(partition, end)

    def copies(self) -> list[Copy]:
        """Return all that waits now, or is done and not committed.

        Reads what was written since the last call; raises KafkaUnavailable.
        """
        with self._lock:
            self._scan(self._ends())
            return list(self._pending.copies())

    def doubt(self, uncertain: Mapping[int, frozenset[int]]) -> None:
        """Note copies as uncertain, on top of what the checkpoint says."""
        with self._lock:
            self.uncertain = _union(self.uncertain, uncertain)

    def oldest(self) -> dict[int, int]:
        """Return the oldest first position of all that waits now, by intents partition.

        Reads what was written since the last call; raises KafkaUnavailable.
        """
        with self._lock:
            self._scan(self._ends())
            return self._pending.oldest()

    def since_s(self) -> float | None:
        """Return since when the oldest intent waits, seconds since 1970, as of what was read last."""
        with self._lock:
            return self._pending.since_s()

    def _ends(self) -> dict[int, int]:
        reader = self._open_reader()
        return {p: reader.bounds(p, _ANSWER_S)[1] for p in range(self.place.partitions)}

    def _scan(self, ends: Mapping[int, int]) -> None:
        for message in self._open_reader().read(ends, answer_s=_ANSWER_S):
            self._pending.note(*place(message), self._origin(message), message.timestamp()[1])

    def _origin(self, message: Message) -> Origin | None:
        try:
            copy = self.codec.decode(message.value() or b"", events.DeferredIntent)
        except UndecodableRecord:
            return None  # the reaper makes a dead letter of it: nothing of it is pending
        # Not of its bytes: to decode each intent that waits would take a start minutes. Bytes that were sent
        # again as they are say it themselves.
        said = dict(message.headers() or ()).get("intent-id")
        try:
            if isinstance(said, bytes):
                return origin_of(copy, said.decode())
            return origin_of(copy, self.codec.decode(copy.raw_value, events.DeletionIntent).intent_id)
        except (UndecodableRecord, UnicodeDecodeError):
            return origin_of(copy)

    def _open_reader(self) -> Reader:
        if self._reader is None:
            raise KafkaUnavailable("the delay queue is closed")
        return self._reader


def _union(
    one: Mapping[int, frozenset[int]], other: Mapping[int, frozenset[int]]
) -> dict[int, frozenset[int]]:
    return {p: one.get(p, frozenset()) | other.get(p, frozenset()) for p in {*one, *other}}
