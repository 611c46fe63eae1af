"""Stage 1, decode: raw records to intents. What is not exactly one intent becomes a dead letter, whole.

A record of the `deferred` topic holds an intent byte for byte, and the position at which it first stood. That
position is accepted there and nowhere else: only Sexton's own jobs write that topic.

No neighbour is harmed: each record is decided by itself. A null value is a tombstone that some tool wrote; it
asks for nothing and is only counted.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from itertools import chain

from sexton.schemas import events
from sexton.schemas.codec import Codec
from sexton.schemas.errors import InvalidEvent, UndecodableRecord
from sexton.schemas.intents import MAX_INTENT_BYTES, check_form
from sexton.streaming_jobs.reaper.recovery.key_progress import Before, before_of

__all__ = ["Decoded", "Record", "Rejected", "Skipped", "decode", "decode_deferred", "doubted"]

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


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that can never be worked on; `intent` is there when it could at least be read."""

    record: Record
    reason: str
    detail: str
    intent: events.DeletionIntent | None = None
    waited: events.DeferredIntent | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record without a value."""

    record: Record


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
        return Rejected(record, "invalid-intent", str(error), intent)
    return Decoded(record, intent)


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


def doubted(decoded: Decoded) -> Decoded:
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
