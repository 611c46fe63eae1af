"""The end of waiting: what a bucket held past the age limit is verified once more and gets its final outcome.

A key that is gone is `absent`, one that was seen is a dead letter that says why it waited. While a key may
have been deleted by an earlier attempt and cannot be verified, its intent continues waiting: nobody is
reported that nothing happened to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sexton.schemas import events
from sexton.schemas.errors import EnvironmentFault
from sexton.schemas.events import OutcomeKind
from sexton.storage import MAX_KEYS, Ability, Delete
from sexton.streaming_jobs.reaper.execute.bucket import Bucket
from sexton.streaming_jobs.reaper.execute.execution import Execution, items_of, names_of
from sexton.streaming_jobs.reaper.execute.items import EraseAll, Item, key_of
from sexton.streaming_jobs.reaper.execute.jobs import fault_of_call
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome, Presence, Step
from sexton.streaming_jobs.reaper.execute.verification import Verifier, verify

__all__ = ["EXPIRED", "expire", "expired"]

EXPIRED = "expired"
"""The reason of dead letters that waited longer than the age limit."""


def expired(outcome: ItemOutcome, presence: Presence, *, maybe_sent: bool) -> ItemOutcome:
    """Return the final outcome on a key that was held past the age limit; none while it may be gone
    unseen.
    """
    if presence is Presence.ABSENT:
        return ItemOutcome(OutcomeKind.ABSENT, outcome.reason)
    if presence is Presence.UNKNOWN and maybe_sent:
        return ItemOutcome(
            None, outcome.reason, f"{outcome.detail}; past the age limit, and not to be seen", unknown=True
        )
    return ItemOutcome(
        OutcomeKind.DEAD_LETTERED, EXPIRED, f"held past the age limit: {outcome.detail or outcome.reason}"
    )


def expire(executions: Sequence[Execution], verifier: Verifier) -> None:
    """Decide what of these executions is still held; raises EnvironmentFault."""
    for execution in executions:
        if isinstance(execution.action, events.DeleteObjects):
            _expire_keys(execution, execution.action, verifier)
        else:
            _expire_prefix(execution, execution.action, verifier)


def _expire_keys(execution: Execution, action: events.DeleteObjects, verifier: Verifier) -> None:
    held = execution.blocking()
    if held is None or held.kind is not None:
        return
    bucket = execution.bucket
    assert bucket is not None
    # Nothing more is sent for it, so that phases make no difference any more.
    for phase in execution.left[len(execution.phases) :]:
        items = items_of(execution, phase, bucket) if bucket.abilities else _asked(execution, action, phase)
        execution.phases.append(items)
        execution.final_outcomes.update((item, held) for item in items if item not in bucket.seen)
    execution.held = execution.blocked = None
    waiting = [item for item, outcome in execution.outcomes() if outcome is not None and outcome.kind is None]
    for start in range(0, len(waiting), MAX_KEYS):
        _decide(execution, bucket, waiting[start : start + MAX_KEYS], verifier)


def _asked(execution: Execution, action: events.DeleteObjects, keys: Sequence[str]) -> list[Item]:
    """Return what is to be verified for keys of a bucket that never said what it is."""
    if action.mode is events.DeleteMode.ERASE_ALL_VERSIONS:
        return [EraseAll(key) for key in keys]
    conditions = execution.conditions
    return [Delete(key, version_id=c.version_id) if (c := conditions.get(key)) else key for key in keys]


def _expire_prefix(execution: Execution, action: events.DeletePrefix, verifier: Verifier) -> None:
    step = execution.step
    fault = step.fault if step is not None else None
    held = execution.held or (ItemOutcome(None, fault.code, str(fault)) if fault is not None else None)
    if held is None:
        return
    gone = step.progress.gone if step is not None else execution.progress.gone
    maybe_sent = execution.earlier is not None or gone > 0
    decided = expired(held, _left(verifier, action), maybe_sent=maybe_sent)
    execution.final_outcome = decided if decided.kind is not None else None


def _left(verifier: Verifier, action: events.DeletePrefix) -> Presence:
    """Return whether something is there under a prefix."""
    calls, bucket, prefix = verifier.calls, action.bucket, action.prefix
    if action.mode is events.DeleteMode.ERASE_ALL_VERSIONS:
        return _listed(lambda: bool(calls.version_slice(bucket, prefix, limit=1).versions))
    return _listed(lambda: bool(calls.list_slice(bucket, prefix, limit=1).objects))


def _listed(found: Callable[[], bool]) -> Presence:
    try:
        return Presence.PRESENT if found() else Presence.ABSENT
    except Exception as error:
        step, outcome = fault_of_call(error)
        if step is Step.ENVIRONMENT:
            raise EnvironmentFault(f"what waited too long cannot be verified: {outcome.detail}") from error
        return Presence.UNKNOWN


def _decide(execution: Execution, bucket: Bucket, items: Sequence[Item], verifier: Verifier) -> None:
    whole = [item for item in items if not isinstance(item, EraseAll)]
    keys, versions = names_of(whole)
    found = verify(verifier, bucket.name, keys, versions=versions)
    for item in items:
        outcome = execution.outcome(item)
        assert outcome is not None
        maybe_sent = execution.attempt_at(item) is not None
        if isinstance(item, EraseAll):
            there = _versions_left(verifier, bucket, item.key)
        else:
            there = found[key_of(item)].presence
        execution.final_outcomes[item] = expired(outcome, there, maybe_sent=maybe_sent)


def _versions_left(verifier: Verifier, bucket: Bucket, key: str) -> Presence:
    """Return whether a version or marker of a key is there; a look at the key shows only the newest."""
    known = bucket.abilities
    exact = False

    def found() -> bool:
        nonlocal exact
        page = verifier.calls.versions_of(bucket.name, key)
        exact = page.encoded
        return bool(page.versions)

    left = _listed(found)
    # Where a key need not stand before those that begin with it, one page shows only what is there.
    in_order = known is not None and known.lists_in_order is Ability.YES
    certain = exact and (left is Presence.PRESENT or in_order)
    return left if certain else Presence.UNKNOWN
