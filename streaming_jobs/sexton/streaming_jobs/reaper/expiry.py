"""The end of waiting: what a bucket held past the age limit is looked at once more and gets its last word.

A key that is gone is `absent`, one that was seen is a dead letter that says why it waited. While a key may
have been deleted by an earlier attempt and cannot be looked at, its intent goes on waiting: nobody is told
that nothing happened to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sexton.schemas import events
from sexton.schemas.errors import EnvironmentFault
from sexton.schemas.events import OutcomeWord
from sexton.storage import MAX_KEYS, Kind, StoreRefused
from sexton.streaming_jobs.reaper.execution import Execution, names_of
from sexton.streaming_jobs.reaper.fates import Fate, Seen
from sexton.streaming_jobs.reaper.items import Item, key_of
from sexton.streaming_jobs.reaper.lanes import Lane
from sexton.streaming_jobs.reaper.looking import Looker, look, state_of

__all__ = ["EXPIRED", "expire", "expired"]

EXPIRED = "expired"
"""The reason of dead letters that waited longer than the age limit."""


def expired(fate: Fate, seen: Seen, *, maybe_sent: bool) -> Fate:
    """Return the last word on a key that was held past the age limit; none while it may be gone unseen."""
    if seen is Seen.ABSENT:
        return Fate(OutcomeWord.ABSENT, fate.reason)
    if seen is Seen.UNKNOWN and maybe_sent:
        return Fate(None, fate.reason, f"{fate.detail}; past the age limit, and not to be seen", unknown=True)
    return Fate(OutcomeWord.DEAD_LETTERED, EXPIRED, f"held past the age limit: {fate.detail or fate.reason}")


def expire(executions: Sequence[Execution], looker: Looker) -> None:
    """Decide what of these executions is still held; raises EnvironmentFault."""
    for execution in executions:
        if isinstance(execution.action, events.DeleteObjects):
            _expire_keys(execution, execution.action, looker)
        else:
            _expire_prefix(execution, execution.action, looker)


def _expire_keys(execution: Execution, action: events.DeleteObjects, looker: Looker) -> None:
    lane = execution.lane
    assert lane is not None
    held = execution.blocking()
    if held is None or held.word is not None:
        return
    # Nothing more is sent for it, so that phases make no difference any more.
    for phase in action.phases[len(execution.phases) :]:
        execution.phases.append(phase)
        lane.fates.update((key, held) for key in phase if key not in lane.seen)
        lane.seen.update(phase)
    execution.held = execution.blocked = None
    waiting = [item for item, fate in execution.fates() if fate is not None and fate.word is None]
    for start in range(0, len(waiting), MAX_KEYS):
        _decide(lane, waiting[start : start + MAX_KEYS], execution.sent_before, looker)


def _expire_prefix(execution: Execution, action: events.DeletePrefix, looker: Looker) -> None:
    step = execution.step
    fault = step.fault if step is not None else None
    held = execution.held or (Fate(None, fault.code, str(fault)) if fault is not None else None)
    if held is None:
        return
    gone = step.progress.gone if step is not None else execution.progress.gone
    maybe_sent = execution.sent_before or gone > 0
    decided = expired(held, _left(looker, action), maybe_sent=maybe_sent)
    execution.last_word = decided if decided.word is not None else None


def _left(looker: Looker, action: events.DeletePrefix) -> Seen:
    """Return whether something is there under a prefix."""
    try:
        if action.mode is events.DeleteMode.ERASE_ALL_VERSIONS:
            found = bool(looker.calls.version_slice(action.bucket, action.prefix, limit=1).versions)
        else:
            found = bool(looker.calls.list_slice(action.bucket, action.prefix, limit=1).objects)
    except (StoreRefused, EnvironmentFault) as error:
        state = state_of(error)
        if state.kind is Kind.ENVIRONMENT:
            raise EnvironmentFault(f"a prefix cannot be looked at: {state}") from error
        return Seen.UNKNOWN
    return Seen.THERE if found else Seen.ABSENT


def _decide(lane: Lane, items: Sequence[Item], sent_before: bool, looker: Looker) -> None:
    keys, versions = names_of(items)
    seen = look(looker, lane.bucket, keys, versions=versions)
    for item in items:
        fate = lane.fates[item]
        maybe_sent = sent_before or fate.unknown or item in lane.sent_before
        lane.fates[item] = expired(fate, seen[key_of(item)], maybe_sent=maybe_sent)
