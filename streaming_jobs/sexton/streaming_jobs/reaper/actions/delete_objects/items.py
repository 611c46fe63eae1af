"""What is sent for a key: in which form, or why not at all.

A guard that the store cannot check in the delete itself has not passed.
"""

from __future__ import annotations

from sexton.schemas.actions import DeleteMode
from sexton.schemas.events import OutcomeKind
from sexton.schemas.guards import KeyCondition
from sexton.storage import Delete
from sexton.streaming_jobs.reaper.execute.bucket import Bucket
from sexton.streaming_jobs.reaper.execute.items import EraseAll, Item
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome

__all__ = ["item_of"]

_NO_VERSION = "null"  # of every object that was written while versioning was off or suspended


def item_of(key: str, condition: KeyCondition | None, mode: DeleteMode, bucket: Bucket) -> Item | ItemOutcome:
    """Return what is sent for a key, or why nothing is: each condition needs a store that checks it."""
    if bucket.creates_markers and mode is DeleteMode.ERASE_ALL_VERSIONS:
        if condition is not None:
            return _refuse("no store checks a condition while all versions are erased")
        return EraseAll(key)
    is_permanent = bucket.creates_markers and mode is DeleteMode.ERASE_VERSION
    if condition is None or (is_permanent and condition.version_id is None):
        return _refuse("a version id is needed to erase one") if is_permanent else key
    if condition.version_id is None:
        return Delete(key, condition.etag)
    if condition.etag is not None:
        return _refuse("no store is known to check an ETag and a version id together: give one of them")
    if not bucket.creates_markers:
        return _refuse("the bucket keeps no versions, so that no id tells one object from the next")
    if not is_permanent:
        return _refuse("no store checks a version id when it hides; give the ETag, or erase the version")
    if condition.version_id == _NO_VERSION:
        return _refuse("what is written without a version id takes the place of this one: it says nothing")
    if not bucket.has_versions:
        return _refuse("nobody knows whether the bucket keeps versions")
    return Delete(key, version_id=condition.version_id)


def _refuse(why: str) -> ItemOutcome:
    return ItemOutcome(OutcomeKind.REFUSED, "ConditionNotChecked", why)
