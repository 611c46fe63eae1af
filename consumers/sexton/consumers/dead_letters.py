"""Dead letters, opened: what their bytes say, and which of them are meant."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from sexton.schemas import events
from sexton.schemas.codec import Codec
from sexton.schemas.errors import UndecodableRecord, UsageError

__all__ = ["Filters", "Letter", "Place", "instant_of", "open_letter"]

_RELATIVE = re.compile(r"(\d{1,9})([smhdw])\Z")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PLACE = re.compile(r"(\d{1,9})[/:](\d{1,18})\Z")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a record stands in its topic."""

    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """Return the place that `PARTITION/OFFSET` names, with a colon too; None for any other text."""
        found = _PLACE.match(text)
        return None if found is None else cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter, opened.

    `value` is the intent's own bytes, `first` where they first stood, also when the letter is about a record
    of the `deferred` topic; `first` is None when that record cannot be read. `intent` is what the bytes say,
    else `trouble` says why they say nothing.
    """

    place: Place
    event: events.DeadLetter
    first: events.Position | None
    value: bytes | None
    intent: events.DeletionIntent | None
    trouble: UndecodableRecord | None
    waited: events.DeferredIntent | None = None

    @property
    def intent_id(self) -> str | None:
        """Return the intent's id, if it could be read, then or now."""
        return self.event.intent_id or (self.intent.intent_id if self.intent else None)

    @property
    def tenant(self) -> str | None:
        """Return the tenant; that of the record's key where the record could not be read."""
        if self.event.tenant or self.intent:
            return self.event.tenant or (self.intent.tenant if self.intent else None)
        return self.event.raw_key.decode("utf-8", "backslashreplace") if self.event.raw_key else None

    @property
    def bucket(self) -> str | None:
        """Return the bucket, if it could be read."""
        action = self.intent.action if self.intent else None
        return self.event.bucket or getattr(action, "bucket", None)

    @property
    def keys(self) -> int | None:
        """Return how many keys failed; None where nobody knows."""
        if self.event.keys:
            return len(self.event.keys)
        return None if self.intent is None else self.intent.action.key_count or None

    @property
    def source(self) -> events.ReplayOf:
        """Return what a replay links to: the record that became this dead letter."""
        at = self.event.position
        return events.ReplayOf(self.event.topic, at.topic_id, at.partition, at.offset, self.intent_id)


@dataclass(frozen=True, slots=True)
class Filters:
    """Which dead letters are meant; an empty filter takes all, several must all agree."""

    reasons: frozenset[str] = frozenset()
    tenants: frozenset[str] = frozenset()
    buckets: frozenset[str] = frozenset()
    since: datetime | None = None
    until: datetime | None = None

    def __bool__(self) -> bool:
        return bool(self.reasons or self.tenants or self.buckets or self.since or self.until)

    def take(self, letter: Letter) -> bool:
        """Return whether a letter is meant; it died at `since` or later, and before `until`."""
        died = letter.event.dead_at
        return (
            (not self.reasons or letter.event.reason in self.reasons)
            and (not self.tenants or letter.tenant in self.tenants)
            and (not self.buckets or letter.bucket in self.buckets)
            and (self.since is None or died >= self.since)
            and (self.until is None or died < self.until)
        )


def instant_of(text: str, now: datetime) -> datetime:
    """Return the instant of an ISO 8601 text with a zone, or of `2h` (s, m, h, d, w): so long ago.

    Raises UsageError for anything else.
    """
    try:
        if found := _RELATIVE.match(text):
            return now - timedelta(**{_UNITS[found[2]]: int(found[1])})
        instant = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        hint = "ISO 8601 with a zone (2026-03-01T12:00:00Z), or 30m, 2h, 7d for so long ago"
        raise UsageError(f"not an instant: {text}", hint=hint) from error
    if instant.tzinfo is None:
        raise UsageError(f"an instant needs a time zone: {text}", hint=f"for UTC write {text}Z")
    return instant


def open_letter(codec: Codec, place: Place, event: events.DeadLetter, deferred_topic: str) -> Letter:
    """Return a dead letter with what its bytes say; `deferred_topic` is the full name of that topic.

    Raises EnvironmentFault when a schema registry is needed and away.
    """
    first: events.Position | None = event.position
    value, waited = event.raw_value, None
    if event.topic == deferred_topic:  # nowhere else is the position inside a record believed
        first = None
        try:
            waited = codec.decode(event.raw_value, events.DeferredIntent)
        except UndecodableRecord as error:
            return Letter(place, event, None, value, None, error)
        first, value = waited.first, waited.raw_value
    try:
        intent = codec.decode(value, events.DeletionIntent)
    except UndecodableRecord as error:
        return Letter(place, event, first, value, None, error, waited)
    return Letter(place, event, first, value, intent, None, waited)
