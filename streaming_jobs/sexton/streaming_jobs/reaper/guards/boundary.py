"""Judging boundary files by what stands in the intent alone: it may delete files that its boundary covers.

The rest hangs on the store, and is done for all intents of a namespace at once, just before the first request
(`execute.boundaries`): by then every other guard and every veto has passed.
"""

from __future__ import annotations

from sexton.schemas.actions import DeleteObjects
from sexton.schemas.events import VerdictResult
from sexton.schemas.guards import BoundaryGuard
from sexton.streaming_jobs.reaper.guards.room import MET, Case, Never, Said

__all__ = ["verdict"]

_SHOWN = 200


def verdict(guard: BoundaryGuard, case: Case) -> Said:
    """Return whether every key is a file of the namespace with an id that its boundary will cover.

    Of another object the boundary says nothing; a file above it could be one that a writer has just made.
    """
    space, action = guard.space, case.action
    if not isinstance(action, DeleteObjects):
        return _refused("not-in-namespace", f"{action.text[:_SHOWN]} is no list of files of {space.text!r}")
    for key in action.keys:
        id = space.id_of(key)
        if id is None:
            return _refused("not-in-namespace", f"no file of {space.text!r}: {key[:_SHOWN]!r}")
        if id > guard.id:
            return _refused("above-boundary", f"the boundary is to be {guard.id}, below {key[:_SHOWN]!r}")
    return MET


def _refused(reason: str, detail: str) -> Never:
    return Never(reason, detail, VerdictResult.REFUSED)
