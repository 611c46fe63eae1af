"""Everything the topics hold about one intent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sexton.consumers.fold import Folded, fold
from sexton.consumers.topics import Raw, TopicMissing, read
from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.errors import UndecodableRecord
from sexton.schemas.registry import open_codec
from sexton.schemas.settings import Settings

__all__ = ["Status", "look_up"]


@dataclass(slots=True)
class Status:
    """An intent as the topics tell it; `positions` is where each copy of it stands in the intents topic."""

    intent_id: str
    intent: events.DeletionIntent | None = None
    positions: list[str] = field(default_factory=list)
    deferred: list[events.DeferredIntent] = field(default_factory=list)
    said: list[events.Outcome | events.DeadLetter] = field(default_factory=list)

    @property
    def known(self) -> bool:
        """Tell whether any record names the intent."""
        return self.intent is not None or bool(self.said)

    def folded(self) -> Folded:
        """Return the folded word on it."""
        return fold(self.intent_id, self.intent, self.said)


def look_up(settings: Settings, intent_id: str, timeout: float = 30.0) -> Status:
    """Read the topics up to their ends and return what they say about an intent.

    `timeout` bounds, in seconds, each topic's time without progress. Raises KafkaUnavailable, and
    TopicMissing for the intents topic; of the others a missing one holds nothing.
    """
    codec, status = open_codec(settings), Status(intent_id)
    for record in read(settings, records.INTENTS, timeout=timeout):
        if (intent := _intent(codec, record, intent_id)) is not None:
            status.intent = status.intent or intent
            status.positions.append(f"{record.partition}/{record.offset}")
    for record in _if_there(settings, records.DEFERRED, timeout):
        _deferred(codec, record, status)
    for topic in (records.OUTCOMES, records.DEAD_LETTERS):
        for record in _if_there(settings, topic, timeout):
            _said(codec, record, status)
    return status


def _if_there(settings: Settings, topic: str, timeout: float) -> Iterator[Raw]:
    try:
        yield from read(settings, topic, timeout=timeout)
    except TopicMissing:
        return


def _may_name(record: Raw, intent_id: str) -> bool:
    # The header spares decoding; who writes without it is decoded.
    return record.header("intent-id") in (None, intent_id)


def _intent(codec: Codec, record: Raw, intent_id: str) -> events.DeletionIntent | None:
    if not _may_name(record, intent_id):
        return None
    try:
        intent = codec.decode(record.value, events.DeletionIntent)
    except UndecodableRecord:
        return None  # a dead letter will say so
    return intent if intent.intent_id == intent_id else None


def _deferred(codec: Codec, record: Raw, status: Status) -> None:
    if not _may_name(record, status.intent_id):
        return
    try:
        deferred = codec.decode(record.value, events.DeferredIntent)
        intent = codec.decode(deferred.raw_value, events.DeletionIntent)
    except UndecodableRecord:
        return  # not one of ours: the reaper reports what stands there and cannot be read
    if intent.intent_id == status.intent_id:
        status.intent = status.intent or intent
        status.deferred.append(deferred)


def _said(codec: Codec, record: Raw, status: Status) -> None:
    if not _may_name(record, status.intent_id):
        return
    try:
        event = codec.decode(record.value, events.Outcome, events.DeadLetter)
    except UndecodableRecord:
        return  # nothing that Sexton wrote; `sexton tail` shows it
    if isinstance(event, events.Outcome | events.DeadLetter) and event.intent_id == status.intent_id:
        status.said.append(event)
