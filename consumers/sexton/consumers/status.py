"""Everything the topics hold about one intent, and what became of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from sexton.consumers.fold import Counts, Folded, count, fold
from sexton.consumers.topics import Raw, read, read_if_there
from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.errors import UndecodableRecord
from sexton.schemas.registry import open_codec
from sexton.schemas.settings import Settings

__all__ = ["Status", "count_all", "look_up"]


@dataclass(slots=True)
class Status:
    """An intent as the topics tell it; `positions` is where each copy of it stands in the intents topic.

    `replays` are the intents that were made of its dead letters, by id.
    """

    intent_id: str
    intent: events.DeletionIntent | None = None
    positions: list[str] = field(default_factory=list)
    deferred: list[events.DeferredIntent] = field(default_factory=list)
    said: list[events.Outcome | events.DeadLetter] = field(default_factory=list)
    replays: dict[str, Status] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        """Return whether any record names the intent."""
        return self.intent is not None or bool(self.said)

    def folded(self) -> Folded:
        """Return the folded outcome on it."""
        return fold(self.intent_id, self.intent, self.said)


def look_up(settings: Settings, intent_id: str, timeout: float = 30.0) -> Status:
    """Read the topics up to their ends and return what they say about an intent and its replays.

    `timeout` bounds, in seconds, each topic's time without progress. Raises KafkaUnavailable, and
    TopicMissing for the intents topic; of the others a missing one holds nothing.
    """
    codec, status = open_codec(settings), Status(intent_id)
    for record in read(settings, records.INTENTS, timeout=timeout):
        if _may_name(record, intent_id):
            _stands(status, _intent(codec, record.value), f"{record.partition}/{record.offset}", None)
    for record in read_if_there(settings, records.DEFERRED, timeout):
        if _may_name(record, intent_id) and (deferred := _deferred(codec, record)) is not None:
            _stands(status, _intent(codec, deferred.raw_value), None, deferred)
    about = {intent_id: status, **status.replays}
    for topic in (records.OUTCOMES, records.DEAD_LETTERS):
        for record in read_if_there(settings, topic, timeout):
            if (named := record.header("intent-id")) is None or named in about:
                _said(codec, record, about)
    return status


def count_all(settings: Settings, timeout: float = 30.0) -> Counts:
    """Read the topics up to their ends and count what became of every intent.

    Intents that stand only in `deferred` count as submitted too: replays, which are written there, and those
    whose first record is older than the intents topic's retention. Raises what `look_up` raises.
    """
    codec = open_codec(settings)
    return count(_submitted(codec, settings, timeout), _all_said(codec, settings, timeout))


def _submitted(codec: Codec, settings: Settings, timeout: float) -> Iterator[events.DeletionIntent]:
    for record in read(settings, records.INTENTS, timeout=timeout):
        if (intent := _intent(codec, record.value)) is not None:
            yield intent
    for record in read_if_there(settings, records.DEFERRED, timeout):
        deferred = _deferred(codec, record)
        if deferred is not None and (intent := _intent(codec, deferred.raw_value)) is not None:
            yield intent


def _all_said(
    codec: Codec, settings: Settings, timeout: float
) -> Iterator[events.Outcome | events.DeadLetter]:
    for topic in (records.OUTCOMES, records.DEAD_LETTERS):
        for record in read_if_there(settings, topic, timeout):
            if (event := _word(codec, record)) is not None:
                yield event


def _may_name(record: Raw, intent_id: str) -> bool:
    # The headers spare decoding; who writes without them is decoded, and so are the few replays.
    return record.header("intent-id") in (None, intent_id) or record.header("replay-of") is not None


def _intent(codec: Codec, value: bytes | None) -> events.DeletionIntent | None:
    try:
        return codec.decode(value, events.DeletionIntent)
    except UndecodableRecord:
        return None  # a dead letter will say so


def _deferred(codec: Codec, record: Raw) -> events.DeferredIntent | None:
    try:
        return codec.decode(record.value, events.DeferredIntent)
    except UndecodableRecord:
        return None  # not one of ours: the reaper reports what stands there and cannot be read


def _stands(
    status: Status,
    intent: events.DeletionIntent | None,
    position: str | None,
    deferred: events.DeferredIntent | None,
) -> None:
    """Take in a copy of the intent or of a replay of it."""
    if intent is None:
        return
    if intent.intent_id != status.intent_id:
        if intent.replay_of is None or intent.replay_of.intent_id != status.intent_id:
            return
        status = status.replays.setdefault(intent.intent_id, Status(intent.intent_id))
    status.intent = status.intent or intent
    if position is not None:
        status.positions.append(position)
    if deferred is not None:
        status.deferred.append(deferred)


def _said(codec: Codec, record: Raw, about: Mapping[str, Status]) -> None:
    event = _word(codec, record)
    if event is not None and event.intent_id is not None and event.intent_id in about:
        about[event.intent_id].said.append(event)


def _word(codec: Codec, record: Raw) -> events.Outcome | events.DeadLetter | None:
    try:
        event = codec.decode(record.value, events.Outcome, events.DeadLetter)
    except UndecodableRecord:
        return None  # nothing that Sexton wrote; `sexton tail` shows it
    assert isinstance(event, events.Outcome | events.DeadLetter)
    if isinstance(event, events.DeadLetter) and event.intent_id is None:
        # Whoever wrote the letter could not read the record; this process may know its schema.
        intent = _intent(codec, event.raw_value)
        return event if intent is None else replace(event, intent_id=intent.intent_id)
    return event
