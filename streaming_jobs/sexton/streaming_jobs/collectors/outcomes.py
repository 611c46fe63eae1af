"""Which attempts have a final outcome, read from the topics and filtered while read."""

from __future__ import annotations

from collections.abc import Set

from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.errors import UndecodableRecord
from sexton.schemas.outcomes import OutcomeKind
from sexton.schemas.registry import open_codec
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.collectors.attempts import Ended, better, parse_id
from sexton.streaming_jobs.collectors.topics import Record, read

__all__ = ["ended_attempts"]


def ended_attempts(settings: Settings, bases: Set[str]) -> dict[str, dict[int, Ended]]:
    """Return the attempts with a final outcome, by the shared part of their ids and by number.

    Holds what is about `bases` alone, however long the topics are. Raises KafkaUnavailable, NoSuchTopic.
    """
    found: dict[str, dict[int, Ended]] = {}
    if not bases:
        return found
    codec = open_codec(settings)
    for topic in (records.OUTCOMES, records.DEAD_LETTERS):
        for record in read(settings, topic):
            about = parse_id(record.intent_id or "")
            if record.intent_id is not None and (about is None or about[0] not in bases):
                continue
            said = _said(codec, record)
            about = parse_id(said[0]) if said else None
            if said is None or about is None or about[0] not in bases:
                continue
            attempts = found.setdefault(about[0], {})
            attempts[about[1]] = better(attempts.get(about[1], said[1]), said[1])
    return found


def _said(codec: Codec, record: Record) -> tuple[str, Ended] | None:
    try:
        event = codec.decode(record.value, events.Outcome, events.DeadLetter)
    except UndecodableRecord:
        return None  # nothing that Sexton wrote; `sexton tail` shows it
    if isinstance(event, events.DeadLetter):
        name = event.intent_id
        return None if name is None else (name, Ended(OutcomeKind.DEAD_LETTERED, event.reason))
    assert isinstance(event, events.Outcome)
    return event.intent_id, Ended(event.outcome, event.verdict.reason)
