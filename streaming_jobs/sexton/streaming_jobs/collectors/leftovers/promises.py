"""Which promises left something behind: outcomes that count objects as written later, and their intents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sexton.schemas import events, records
from sexton.schemas.actions import DeletePrefix
from sexton.schemas.errors import UndecodableRecord
from sexton.schemas.registry import open_codec
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.collectors.room import Scope, Unresolved
from sexton.streaming_jobs.collectors.topics import Records, read

__all__ = ["WRITTEN_LATER", "FoundPromise", "find_promises"]

WRITTEN_LATER = "written-later"
"""The effect under which a reaper counts what it left because it was written after `written_before`."""
_CAUSE = "written-after-promise"


@dataclass(frozen=True, slots=True)
class FoundPromise:
    """An intent whose outcome counts objects as written later."""

    intent: events.DeletionIntent
    action: DeletePrefix
    written_later: int


def find_promises(scope: Scope, settings: Settings) -> Iterator[FoundPromise | Unresolved]:
    """Yield the promises of a bucket under a prefix; those whose intent nobody can read any more, too.

    Outcomes are filtered while they are read. Raises KafkaUnavailable, NoSuchTopic.
    """
    left = _outcomes(scope, settings)
    if not left:
        return
    with Records(settings, records.INTENTS) as intents:
        for outcome in left.values():
            found = _resolve(outcome, intents, scope, settings)
            if found is not None:
                yield found


def _outcomes(scope: Scope, settings: Settings) -> dict[str, events.Outcome]:
    codec = open_codec(settings)
    found: dict[str, events.Outcome] = {}
    for record in read(settings, records.OUTCOMES):
        # The name stands in the bytes as it is: nearly all outcomes are passed over undecoded.
        if record.value is None or WRITTEN_LATER.encode() not in record.value:
            continue
        try:
            outcome = codec.decode(record.value, events.Outcome)
        except UndecodableRecord:
            continue  # nothing that Sexton wrote; `sexton tail` shows it
        if outcome.bucket == scope.bucket and outcome.effects.get(WRITTEN_LATER, 0) > 0:
            found[outcome.intent_id] = outcome
    return found


def _resolve(
    outcome: events.Outcome, intents: Records, scope: Scope, settings: Settings
) -> FoundPromise | Unresolved | None:
    at = outcome.position
    where = f"partition {at.partition}, offset {at.offset}"
    if at.topic_id != intents.topic_id:
        return _unresolved(outcome, f"its intents topic is another one: {where}")
    value = intents.at(at.partition, at.offset)
    if value is None:
        return _unresolved(outcome, f"the intents topic does not hold it any more: {where}")
    try:
        intent = open_codec(settings).decode(value, events.DeletionIntent)
    except UndecodableRecord as error:
        return _unresolved(outcome, f"it cannot be read: {where}: {error}")
    if intent.intent_id != outcome.intent_id:
        return _unresolved(outcome, f"another intent stands there: {where}: {intent.intent_id}")
    match intent.action:
        case DeletePrefix() as action if action.bucket == scope.bucket:
            if action.prefix.startswith(scope.prefix):
                return FoundPromise(intent, action, outcome.effects[WRITTEN_LATER])
            return None
        case _:
            return _unresolved(outcome, f"its intent deletes no prefix of the bucket: {where}")


def _unresolved(outcome: events.Outcome, why: str) -> Unresolved:
    later = outcome.effects[WRITTEN_LATER]
    return Unresolved(_CAUSE, outcome.tenant, f"{later} left by {outcome.intent_id}: {why}")
