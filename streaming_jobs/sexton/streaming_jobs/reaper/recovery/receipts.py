"""What may have been processed before this start: looked up in what was written back.

After a crash these are the records that were begun and not committed; with a new checkpoint it is all
that is there. What has its final outcome is not executed again: its keys may have been written since, or an
operator may have brought back what it hid. Of the rest deletes may have been sent; where a receipt says that
an object was `changed`, it still is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from confluent_kafka import Message

from sexton.schemas import events, records
from sexton.schemas.errors import UndecodableRecord
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.kafka.reader import NOW, Reader
from sexton.schemas.registry import open_codec
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.reaper.deferred.delay_queue import DelayQueue, Place, parse_begun
from sexton.streaming_jobs.reaper.recovery.attempts import SentBefore
from sexton.streaming_jobs.reaper.recovery.binding import Binding
from sexton.streaming_jobs.reaper.recovery.catch_up import CatchUp
from sexton.streaming_jobs.reaper.recovery.checkpoint import Checkpoint
from sexton.streaming_jobs.reaper.recovery.said import Said

__all__ = ["Earlier", "Unfinished", "catch_up_of", "look_back", "unfinished"]

_MARGIN_S = 60.0  # between the clocks of the checkpoint's file system and of the brokers
_ANSWER_S = 10.0
_CANNOT = "the receipts cannot be read"
_WRITTEN_BACK = (records.OUTCOMES, records.DEAD_LETTERS, records.DEFERRED)
_Ends = dict[int, int]


@dataclass(frozen=True, slots=True)
class Earlier:
    """What is known of first records, and of waiting ones, that may have been processed before."""

    intents: SentBefore
    deferred: SentBefore

    def of(self, topic: str) -> SentBefore:
        """Return what is known of one of the two, by its name without the prefix."""
        return self.intents if topic == records.INTENTS else self.deferred


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Where, by partition, first records end and waiting ones that were begun and not committed, since when.

    Instants are seconds since 1970, None where nothing of them is open. `catch_up` is of a new checkpoint.
    """

    catch_up: CatchUp
    planned: Mapping[int, int] = field(default_factory=dict)
    planned_s: float | None = None
    begun: Mapping[int, int] = field(default_factory=dict)
    begun_s: float | None = None


def catch_up_of(settings: Settings, cluster: Cluster, now: Binding, place: Place) -> CatchUp:
    """Return up to where a new checkpoint may meet what was processed before; raises KafkaUnavailable."""
    if not any(end for topic in _WRITTEN_BACK for end in cluster.latest(settings.topic(topic)).values()):
        return CatchUp()  # a new installation
    return CatchUp(cluster.latest(now.topic), cluster.latest(place.topic))


def unfinished(checkpoint: Checkpoint, delay_queue: DelayQueue) -> Unfinished:
    """Return what a checkpoint says of work that may not be finished; raises CheckpointRefused."""
    ends, since_s = parse_begun(checkpoint.waiting_begun(), delay_queue.place)
    is_open = any(end > delay_queue.done.get(partition, 0) for partition, end in ends.items())
    return Unfinished(
        CatchUp.parse(checkpoint.catch_up()),
        *(checkpoint.planned() or ({}, None)),
        *((ends, since_s) if is_open else ({}, None)),
    )


def look_back(
    settings: Settings,
    cluster: Cluster,
    binding: Binding,
    left: Unfinished,
    start: Mapping[int, int],
    delay_queue: DelayQueue,
) -> Earlier:
    """Return what may have been processed before, and note copies of the delay queue that are uncertain.

    `start` is where work starts, by partition; `left` is what of it may have been processed. Raises
    KafkaUnavailable.
    """
    catch_up, planned, begun = left.catch_up, left.planned, left.begun
    planned_s, begun_s = left.planned_s, left.begun_s
    anew = not catch_up.is_done(start, delay_queue.done)
    instants = [at_s for at_s in (planned_s, begun_s) if at_s is not None]
    if not anew and not instants:
        return Earlier(SentBefore(), SentBefore())
    if anew:
        planned, begun = _furthest(planned, catch_up.intents), _furthest(begun, catch_up.deferred)
    copies = delay_queue.copies()
    said = Said(
        binding.topic_id,
        delay_queue.place.topic_id,
        {p: (start.get(p, 0), end) for p, end in planned.items()},
        {p: (delay_queue.done.get(p, 0), end) for p, end in begun.items()},
        copies,
        anew,
    )
    gone_s = _take_in(settings, cluster, said, None if anew else min(instants) - _MARGIN_S)
    first, waiting, uncertain = said.settled()
    delay_queue.doubt(uncertain)
    if anew:
        intents, deferred = binding.topic, delay_queue.place.topic
        return Earlier(
            SentBefore(planned, None, None, (first,), _below(settings, intents, gone_s, catch_up.intents)),
            SentBefore(begun, None, None, (waiting,), _below(settings, deferred, gone_s, catch_up.deferred)),
        )
    changed = frozenset(said.changed)
    return Earlier(
        SentBefore() if planned_s is None else SentBefore(planned, changed, planned_s, (first,)),
        SentBefore() if begun_s is None else SentBefore(begun, changed, begun_s, (waiting,)),
    )


def _furthest(one: Mapping[int, int], other: Mapping[int, int]) -> _Ends:
    return {p: max(one.get(p, 0), other.get(p, 0)) for p in {*one, *other}}


def _take_in(settings: Settings, cluster: Cluster, said: Said, since_s: float | None) -> float:
    """Read what was written back since an instant, or all; return since when all outcomes are there."""
    codec = open_codec(settings)

    def letter(message: Message) -> None:
        said.dead_letter(
            codec.decode(message.value() or b"", events.DeadLetter), message.timestamp()[1] / 1000
        )

    # First: an outcome that names keys that failed is whole only together with its dead letter.
    letters_s = _read(settings, cluster, records.DEAD_LETTERS, since_s, letter)

    def outcome(message: Message) -> None:
        kept = message.timestamp()[1] / 1000 >= letters_s
        said.outcome(codec.decode(message.value() or b"", events.Outcome), letters_kept=kept)

    outcomes_s = _read(settings, cluster, records.OUTCOMES, since_s, outcome)
    said.outcomes_kept_since(outcomes_s)
    return outcomes_s


def _read(
    settings: Settings, cluster: Cluster, topic: str, since_s: float | None, take: Callable[[Message], None]
) -> float:
    """Give out the records of a topic, and return since when all of them are there (0: always)."""
    name, first_s = settings.topic(topic), dict[int, float]()
    with closing(Reader(settings, name, f"{settings.topic_prefix}receipts", _CANNOT)) as reader:
        partitions = reader.partitions(_ANSWER_S)
        earliest = {p: reader.bounds(p, _ANSWER_S)[0] for p in partitions}
        if since_s is None:
            reader.positions = dict(earliest)
        else:
            reader.positions = reader.since(dict.fromkeys(partitions, since_s), _ANSWER_S)
        for message in reader.read(dict.fromkeys(reader.positions, NOW), answer_s=_ANSWER_S):
            first_s.setdefault(message.partition() or 0, message.timestamp()[1] / 1000)
            try:
                take(message)
            except UndecodableRecord:
                continue  # not ours: it says nothing of any intent
    if since_s is not None:
        return 0.0  # retention is far behind the work that a reaper has begun last
    cut = [p for p, first in earliest.items() if first > 0]
    return max((first_s.get(p) or _left_since(cluster, name) for p in cut), default=0.0)


def _left_since(cluster: Cluster, name: str) -> float:
    """Return since when a topic keeps its records, by its setting; now where that says nothing."""
    kept_ms = cluster.topics([name])[name].found.config.get("retention.ms", "")
    return time.time() - (int(kept_ms) / 1000 if kept_ms.isdecimal() else 0)


def _below(settings: Settings, topic: str, since_s: float, ends: Mapping[int, int]) -> _Ends:
    """Return the first offset by partition that is not older than an instant, at most these ends."""
    if not since_s or not ends:
        return {}
    with closing(Reader(settings, topic, f"{settings.topic_prefix}receipts", _CANNOT)) as reader:
        found = reader.since(dict.fromkeys(ends, since_s), _ANSWER_S)
    return {p: min(end, found.get(p, end)) for p, end in ends.items()}
