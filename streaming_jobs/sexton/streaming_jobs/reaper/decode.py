"""Stage 1, decode: raw records to intents. What is not exactly one intent becomes a dead letter, whole.

A record of the `deferred` topic holds an intent byte for byte, and the position at which it first stood. That
position is accepted there and nowhere else: only Sexton's own jobs write that topic.

No neighbour is harmed: each record is decided by itself. A null value is a tombstone that some tool wrote; it
asks for nothing and is only counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.errors import InvalidEvent, UndecodableRecord
from sexton.schemas.intents import MAX_INTENT_BYTES, check_form
from sexton.streaming_jobs.reaper.broken import INTERNAL, Broken, alone
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.plan import TaskPlan, check_below
from sexton.streaming_jobs.reaper.recovery.key_progress import Before, before_of

__all__ = [
    "OUTCOME_UNKNOWN",
    "DecodeStage",
    "Decoded",
    "Record",
    "Rejected",
    "Skipped",
    "decode",
    "decode_deferred",
    "position_of",
    "with_unknown_keys",
]

OUTCOME_UNKNOWN = "outcome-unknown"
"""The reason of an intent that a new checkpoint meets, and whose outcome may have left its topic."""
_MAX_COPY_BYTES = 2 * MAX_INTENT_BYTES  # of a deferred copy, which says of each key, too


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the intents topic; `written_at_us` is its log-append time in microseconds since 1970."""

    partition: int
    offset: int
    written_at_us: int
    key: bytes | None
    value: bytes | None

    @property
    def size(self) -> int:
        """The bytes of key and value; on the wire they may have been a hundredth of that."""
        return len(self.key or b"") + len(self.value or b"")


@dataclass(frozen=True, slots=True)
class Decoded:
    """A record that is an intent; `waited` is the deferred copy that it came in, None for a first record.

    `before` is what that copy says of the intent's keys, None when it says nothing of single keys.

    `record` holds the intent's own bytes; its partition and offset are those of the topic that was read.
    """

    record: Record
    intent: events.DeletionIntent
    waited: events.DeferredIntent | None = None
    before: Before | None = None

    @property
    def passed_before(self) -> bool:
        """Whether its copy says that all its guards held before it became a dead letter."""
        return self.waited is not None and self.waited.passed_as_of is not None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that can never be processed; `intent` is there when it could at least be read."""

    record: Record
    reason: str
    detail: str
    intent: events.DeletionIntent | None = None
    waited: events.DeferredIntent | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record without a value."""

    record: Record


@dataclass(frozen=True, slots=True)
class DecodeStage:
    """The first stage of one task."""

    codec: Codec
    plan: TaskPlan
    counts: Counts

    def take(self, piece: Iterable[Record]) -> tuple[list[Decoded], list[Rejected]]:
        """Return the intents among these records, and what is none; what asks for nothing is only counted.

        Raises EnvironmentFault for a record that the micro-batch's barrier does not cover.
        """
        found: list[Decoded] = []
        rejected: list[Rejected] = []
        with self.counts.stage("decode"):
            for record in piece:
                result = alone("decode", partial(self._decoded, record))
                if isinstance(result, Broken):
                    result = Rejected(record, INTERNAL, result.detail)
                if isinstance(result, Decoded):
                    found.append(result)
                elif isinstance(result, Rejected):
                    rejected.append(result)
        return found, rejected

    def _decoded(self, record: Record) -> Decoded | Rejected | None:
        plan, counts = self.plan, self.counts
        counts.saw(record.partition, record.offset, record.written_at_us)
        first = plan.topic == records.INTENTS
        if first:
            check_below(plan, record.partition, record.offset)
        settled = plan.earlier.is_settled(record.partition, record.offset)
        if settled or record.offset in plan.duplicates.dropped.get(record.partition, ()):
            # Nothing is written: its outcome is on Kafka, or a later copy of it, which gets the one outcome.
            # Executed again it could delete what was written since, or hide what an operator brought back.
            if not first:
                counts.came_due()
            counts.add("settled-before" if settled else "duplicate")
            return None
        result = decode(self.codec, record) if first else decode_deferred(self.codec, record)
        if isinstance(result, Skipped):
            counts.add("skipped")
            return None
        found = self._returned(result) if isinstance(result, Decoded) and result.waited else result
        return _unknown(found) if settled is None and isinstance(found, Decoded) else found

    def _returned(self, decoded: Decoded) -> Decoded:
        """Take in an intent that waited: its first position is held against the barrier, too."""
        plan, record = self.plan, decoded.record
        self.counts.came_due()
        first = position_of(decoded, plan.topic_id)
        if first.topic_id == plan.topic_id:
            check_below(plan, first.partition, first.offset)
        if record.offset in plan.duplicates.kept.get(record.partition, ()):
            return with_unknown_keys(decoded)
        return decoded


def position_of(found: Decoded | Rejected, topic_id: str) -> events.Position:
    """Return where an intent first stood; `topic_id` is that of the intents topic."""
    if found.waited is not None:
        return found.waited.first
    return events.Position(topic_id, found.record.partition, found.record.offset)


def decode(codec: Codec, record: Record) -> Decoded | Rejected | Skipped:
    """Return the intent in a record, or why there is none.

    Raises EnvironmentFault when a schema registry is needed and away: nobody knows yet what the record says.
    """
    if record.value is None:
        return Skipped(record)
    if (size := record.size) > MAX_INTENT_BYTES:
        return Rejected(record, "too-large", _too_large(record, size, MAX_INTENT_BYTES))
    try:
        intent = codec.decode(record.value, events.DeletionIntent)
    except UndecodableRecord as error:
        return Rejected(record, error.reason, str(error))
    try:
        check_form(intent)
    except InvalidEvent as error:
        return Rejected(record, "invalid-intent", error.with_hint, intent)
    return Decoded(record, intent)


def _unknown(decoded: Decoded) -> Rejected:
    """Return an intent of which nobody knows whether it was executed: an unknown is never a yes."""
    detail = "it may have been executed before: the outcomes of that time have left their topic"
    return Rejected(decoded.record, OUTCOME_UNKNOWN, detail, decoded.intent, decoded.waited)


def _too_large(record: Record, size: int, most: int) -> str:
    digest = hashlib.sha256(record.value or b"").hexdigest()
    return f"key and value have {size} bytes, at most {most} may be; the value's SHA-256 is {digest}"


def decode_deferred(codec: Codec, record: Record) -> Decoded | Rejected | Skipped:
    """Return the intent that waited in a record of the `deferred` topic, or why there is none.

    Raises what `decode` raises.
    """
    if record.value is None:
        return Skipped(record)
    if (size := record.size) > _MAX_COPY_BYTES:
        return Rejected(record, "too-large", _too_large(record, size, _MAX_COPY_BYTES))
    try:
        waited = codec.decode(record.value, events.DeferredIntent)
    except UndecodableRecord as error:
        return Rejected(record, error.reason, str(error))
    inner = Record(record.partition, record.offset, record.written_at_us, waited.raw_key, waited.raw_value)
    found = decode(codec, inner)
    if isinstance(found, Skipped):
        return found
    if isinstance(found, Rejected) or waited.keys is None:
        return replace(found, waited=waited)
    try:
        return replace(found, waited=waited, before=before_of(found.intent.action, waited.keys))
    except ValueError as error:
        return Rejected(
            inner, "malformed", f"the copy does not fit its intent: {error}", found.intent, waited
        )


def with_unknown_keys(decoded: Decoded) -> Decoded:
    """Return an intent that waited as one of which any key may have been sent, by nobody knows whom.

    Its copies were several, and what the others knew of its keys is gone with them: no outcome of no effect
    is written without verification. What this copy knows to be gone stays gone.
    """
    assert decoded.waited is not None
    waited = replace(decoded.waited, effect_unknown=True, keys=None)
    action, known = decoded.intent.action, decoded.before
    if not action.key_phases:
        return replace(decoded, waited=waited)
    before = known or Before(action.key_phases)
    every = frozenset(chain.from_iterable(before.left))
    return replace(decoded, waited=waited, before=replace(before, unknown=every, sent_since=None))
