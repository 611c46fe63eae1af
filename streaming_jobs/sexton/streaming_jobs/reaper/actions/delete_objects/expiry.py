"""Named keys that their bucket held past the age limit: each is verified once more and decided about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sexton.schemas.actions import DeleteMode
from sexton.storage import MAX_KEYS, Ability, Delete, Deleter
from sexton.streaming_jobs.reaper.execute.bucket import Bucket
from sexton.streaming_jobs.reaper.execute.expiry import expired, listed
from sexton.streaming_jobs.reaper.execute.items import EraseAll, Item, key_of, names_of
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome, Presence
from sexton.streaming_jobs.reaper.execute.verification import verify

if TYPE_CHECKING:
    from sexton.streaming_jobs.reaper.actions.delete_objects.execution import ObjectsExecution

__all__ = ["expire", "give_up", "seen"]


def expire(execution: ObjectsExecution, deleter: Deleter) -> None:
    """Decide what of an execution is still held; raises EnvironmentFault."""
    if execution.gated is not None:
        return  # not for its bucket: it grows no older
    held = execution.blocking()
    if held is None or held.kind is not None:
        return
    _take_unqueued(execution, held)
    waiting = [item for item, outcome in execution.outcomes() if outcome is not None and outcome.kind is None]
    for start in range(0, len(waiting), MAX_KEYS):
        _decide(execution, waiting[start : start + MAX_KEYS], deleter)


def give_up(execution: ObjectsExecution) -> None:
    """Decide what was not queued for a bucket that was given up; what may have been sent before waits on."""
    held = execution.held
    assert held is not None
    _take_unqueued(execution, held)
    for item in [item for item in execution.final_outcomes if execution.attempt_at(item) is not None]:
        execution.final_outcomes[item] = ItemOutcome(None, held.reason, held.detail, unknown=True)


def _take_unqueued(execution: ObjectsExecution, outcome: ItemOutcome) -> None:
    """Give the keys that were not queued an outcome.

    Nothing more is sent for them, so that phases make no difference any more.
    """
    bucket = execution.bucket
    for phase in execution.left[len(execution.phases) :]:
        items = execution.items(phase) if bucket.abilities else _asked(execution, phase)
        execution.phases.append(items)
        execution.final_outcomes.update((item, outcome) for item in items if item not in bucket.seen)
    execution.held = execution.blocked = None


def _asked(execution: ObjectsExecution, keys: Sequence[str]) -> list[Item]:
    """Return what is to be verified for keys of a bucket that never said what it is."""
    if execution.action.mode is DeleteMode.ERASE_ALL_VERSIONS:
        return [EraseAll(key) for key in keys]
    conditions = execution.conditions
    return [Delete(key, version_id=c.version_id) if (c := conditions.get(key)) else key for key in keys]


def _decide(execution: ObjectsExecution, items: Sequence[Item], deleter: Deleter) -> None:
    there = seen(items, execution.bucket, deleter)
    for item in items:
        outcome = execution.outcome(item)
        assert outcome is not None
        maybe_sent = execution.attempt_at(item) is not None
        execution.final_outcomes[item] = expired(outcome, there[item], maybe_sent=maybe_sent)


def seen(items: Sequence[Item], bucket: Bucket, deleter: Deleter) -> Mapping[Item, Presence]:
    """Return whether that is there what each item is about: an object, one version, or any of all versions.

    Raises EnvironmentFault.
    """
    keys, versions = names_of([item for item in items if not isinstance(item, EraseAll)])
    found = verify(deleter, bucket.name, keys, versions=versions)
    return {
        item: _versions_left(deleter, bucket, item.key)
        if isinstance(item, EraseAll)
        else found[key_of(item)].presence
        for item in items
    }


def _versions_left(deleter: Deleter, bucket: Bucket, key: str) -> Presence:
    """Return whether a version or marker of a key is there; a HEAD of the key shows only the newest."""
    known = bucket.abilities
    exact = False

    def found() -> bool:
        nonlocal exact
        page = deleter.calls.versions_of(bucket.name, key)
        exact = page.encoded
        return bool(page.versions)

    left = listed(found)
    # Where a key need not stand before those that begin with it, one page shows only what is there.
    in_order = known is not None and known.lists_in_order is Ability.YES
    # And where names are not listed as they are, what is listed or not may be another key's.
    exact = exact and deleter.abilities(bucket.name).lists(key)
    certain = exact and (left is Presence.PRESENT or in_order)
    return left if certain else Presence.UNKNOWN
