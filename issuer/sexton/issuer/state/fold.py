"""The pure rule of the generations log: fold its events, in order, into who holds what and since where.

`apply(state, offset, event)` says whether an event is valid or void. A void event changes no tenant, for
every reader, for ever; all readers agree because the rule looks at nothing but the log. End offsets are the
exception: they are facts about the intents topic, read before the event was appended, so a void event's end
offsets still raise the running maximum that closes windows. How each event counts is in the room of its
operation.
"""

from __future__ import annotations

from sexton.issuer.operations import FOLDS
from sexton.issuer.operations.base import VALID, Valid, Verdict, Void
from sexton.issuer.state.state import State
from sexton.schemas import events
from sexton.schemas.errors import LogBroken

__all__ = ["FORMAT", "VALID", "State", "Valid", "Verdict", "Void", "apply"]

FORMAT = 1


def apply(state: State, offset: int, event: events.GenerationEvent) -> Verdict:
    """Apply the event at `offset`, change the state and say whether the event is valid.

    Raises LogBroken when the log cannot be folded: a gap in the offsets, a first event that is not Genesis,
    a format or a kind of event that this version does not know. Skipping any of them could hand a number out
    twice.
    """
    if offset != state.next_offset:
        raise LogBroken(f"gap in the generations log: expected offset {state.next_offset}, found {offset}")
    if state.genesis is None and not isinstance(event, events.Genesis):
        raise LogBroken(f"the generations log starts with {type(event).__name__}, not with Genesis")
    verdict = _judge(state, offset, event)
    state.next_offset = offset + 1
    return verdict


def _judge(state: State, offset: int, event: events.GenerationEvent) -> Verdict:
    if isinstance(event, events.Genesis):
        return _genesis(state, event)
    operation = FOLDS.get(type(event))
    if operation is None:
        raise LogBroken(f"an event that this version does not know: {type(event).__name__}")
    return operation.apply(state, offset, event)


def _genesis(state: State, event: events.Genesis) -> Verdict:
    if event.format != FORMAT:
        raise LogBroken(f"the log has a format that this version does not know: {event.format}")
    if state.genesis is not None:
        return Void("second-genesis")
    state.genesis = event
    return VALID
