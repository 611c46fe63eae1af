"""The end of waiting: what a bucket held past the age limit is looked at once more and gets its last word.

A key that is gone is `absent`, one that was seen is a dead letter that says why it waited. While a key may
have been deleted by an earlier attempt and cannot be looked at, its intent goes on waiting: nobody is told
that nothing happened to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sexton.schemas import events
from sexton.schemas.errors import EnvironmentFault
from sexton.schemas.events import OutcomeWord
from sexton.storage import MAX_KEYS, Ability, Delete
from sexton.streaming_jobs.reaper.execution import Execution, items_of, names_of
from sexton.streaming_jobs.reaper.fates import Fate, Seen, Step
from sexton.streaming_jobs.reaper.items import EraseAll, Item, key_of
from sexton.streaming_jobs.reaper.jobs import fault_of_call
from sexton.streaming_jobs.reaper.lanes import Lane
from sexton.streaming_jobs.reaper.looking import Looker, look

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
    held = execution.blocking()
    if held is None or held.word is not None:
        return
    lane = execution.lane
    assert lane is not None
    # Nothing more is sent for it, so that phases make no difference any more.
    for phase in execution.left[len(execution.phases) :]:
        items = items_of(execution, phase, lane) if lane.abilities else _asked(execution, action, phase)
        execution.phases.append(items)
        execution.last_words.update((item, held) for item in items if item not in lane.seen)
    execution.held = execution.blocked = None
    waiting = [item for item, fate in execution.fates() if fate is not None and fate.word is None]
    for start in range(0, len(waiting), MAX_KEYS):
        _decide(execution, lane, waiting[start : start + MAX_KEYS], looker)


def _asked(execution: Execution, action: events.DeleteObjects, keys: Sequence[str]) -> list[Item]:
    """Return what is to be looked at for keys of a bucket that never said what it is."""
    if action.mode is events.DeleteMode.ERASE_ALL_VERSIONS:
        return [EraseAll(key) for key in keys]
    conditions = execution.conditions
    return [Delete(key, version_id=c.version_id) if (c := conditions.get(key)) else key for key in keys]


def _expire_prefix(execution: Execution, action: events.DeletePrefix, looker: Looker) -> None:
    step = execution.step
    fault = step.fault if step is not None else None
    held = execution.held or (Fate(None, fault.code, str(fault)) if fault is not None else None)
    if held is None:
        return
    gone = step.progress.gone if step is not None else execution.progress.gone
    maybe_sent = execution.earlier is not None or gone > 0
    decided = expired(held, _left(looker, action), maybe_sent=maybe_sent)
    execution.last_word = decided if decided.word is not None else None


def _left(looker: Looker, action: events.DeletePrefix) -> Seen:
    """Return whether something is there under a prefix."""
    calls, bucket, prefix = looker.calls, action.bucket, action.prefix
    if action.mode is events.DeleteMode.ERASE_ALL_VERSIONS:
        return _listed(lambda: bool(calls.version_slice(bucket, prefix, limit=1).versions))
    return _listed(lambda: bool(calls.list_slice(bucket, prefix, limit=1).objects))


def _listed(found: Callable[[], bool]) -> Seen:
    try:
        return Seen.THERE if found() else Seen.ABSENT
    except Exception as error:
        step, fate = fault_of_call(error)
        if step is Step.ENVIRONMENT:
            raise EnvironmentFault(f"what waited too long cannot be looked at: {fate.detail}") from error
        return Seen.UNKNOWN


def _decide(execution: Execution, lane: Lane, items: Sequence[Item], looker: Looker) -> None:
    whole = [item for item in items if not isinstance(item, EraseAll)]
    keys, versions = names_of(whole)
    found = look(looker, lane.bucket, keys, versions=versions)
    for item in items:
        fate = execution.fate(item)
        assert fate is not None
        maybe_sent = execution.attempt_at(item) is not None
        if isinstance(item, EraseAll):
            there = _versions_left(looker, lane, item.key)
        else:
            there = found[key_of(item)].seen
        execution.last_words[item] = expired(fate, there, maybe_sent=maybe_sent)


def _versions_left(looker: Looker, lane: Lane, key: str) -> Seen:
    """Return whether a version or marker of a key is there; a look at the key shows only the newest."""
    known = lane.abilities
    exact = False

    def found() -> bool:
        nonlocal exact
        page = looker.calls.versions_of(lane.bucket, key)
        exact = page.encoded
        return bool(page.versions)

    left = _listed(found)
    # Where a key need not stand before those that begin with it, one page shows only what is there.
    in_order = known is not None and known.lists_in_order is Ability.YES
    certain = exact and (left is Seen.THERE or in_order)
    return left if certain else Seen.UNKNOWN
