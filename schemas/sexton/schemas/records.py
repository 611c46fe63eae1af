"""How an event stands in a Kafka record: key and headers that a console reads without a decoder."""

from __future__ import annotations

from sexton.schemas import events

__all__ = [
    "CONTROL",
    "DEAD_LETTERS",
    "DEFERRED",
    "GENERATIONS",
    "HORIZONS",
    "INTENTS",
    "OUTCOMES",
    "SNAPSHOTS",
]
__all__ += ["headers", "key"]

INTENTS = "intents"
DEFERRED = "deferred"
GENERATIONS = "generations"
SNAPSHOTS = "generations.snapshots"
OUTCOMES = "outcomes"
DEAD_LETTERS = "dead-letters"
HORIZONS = "horizons"
CONTROL = "control"


def key(event: events.Event) -> bytes | None:
    """Return the record key: the tenant of an intent, the intent id of an outcome, else none."""
    match event:
        case events.DeletionIntent():
            return event.tenant.encode()
        case events.Outcome():
            return event.intent_id.encode()
        case events.DeferredIntent():
            return event.raw_key
        case _:
            return None


def headers(event: events.Event) -> list[tuple[str, bytes]]:
    """Return the headers: `sexton-type` always, `intent-id` and `tenant` where the event has them.

    A replay has `replay-of` too: topic, partition and offset of the record that became a dead letter.
    """
    found = [("sexton-type", type(event).__name__.encode())]
    for header, attribute in (("intent-id", "intent_id"), ("tenant", "tenant")):
        value = getattr(event, attribute, None)
        if value:
            found.append((header, value.encode()))
    if isinstance(event, events.DeletionIntent) and (of := event.replay_of) is not None:
        found.append(("replay-of", f"{of.topic}/{of.partition}/{of.offset}".encode()))
    return found
