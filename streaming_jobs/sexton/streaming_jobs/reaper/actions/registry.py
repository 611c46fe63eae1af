"""How each action is executed: one room for each, and `ROOMS` names them all.

An action without a room here is *not yet*: a newer reaper may know it. To add one, write its module and its
line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sexton.schemas.actions import ActionRoom, DeleteObjects, DeletePrefix
from sexton.schemas.events import DeferredIntent, DeletionIntent, OutcomeKind
from sexton.schemas.guards import conditions_of
from sexton.storage import Deleter
from sexton.streaming_jobs.reaper.actions.delete_objects import results
from sexton.streaming_jobs.reaper.actions.delete_objects.execution import ObjectsExecution
from sexton.streaming_jobs.reaper.actions.delete_prefix import execution as prefix
from sexton.streaming_jobs.reaper.actions.delete_prefix.execution import PrefixExecution
from sexton.streaming_jobs.reaper.actions.delete_prefix.progress import progress_of
from sexton.streaming_jobs.reaper.execute.execution import Execution
from sexton.streaming_jobs.reaper.execute.result import Result
from sexton.streaming_jobs.reaper.recovery.key_progress import Before

__all__ = ["ROOMS", "Executing"]


@dataclass(frozen=True, slots=True)
class Executing:
    """An action's room.

    `begin` returns the execution of an intent, as far as its deferred copy says that it has come. `untried`
    says what became of one that waited and is not executed any more, with the outcome of what is not gone; it
    raises EnvironmentFault where nothing can be verified.
    """

    begin: Callable[[DeletionIntent, DeferredIntent | None, Before | None], Execution]
    untried: Callable[[Any, DeferredIntent, Before | None, OutcomeKind, Deleter], Result]


def _objects(intent: DeletionIntent, waited: DeferredIntent | None, before: Before | None) -> Execution:
    assert isinstance(intent.action, DeleteObjects)
    resumes_at = waited.resumes_at if waited else None
    conditions = conditions_of(intent.guards)
    return ObjectsExecution(intent.action, conditions=conditions, before=before, resumes_at=resumes_at)


def _prefix(intent: DeletionIntent, waited: DeferredIntent | None, before: Before | None) -> Execution:
    assert isinstance(intent.action, DeletePrefix)
    ends_writes = any(guard.ends_writes for guard in intent.guards)
    return PrefixExecution(intent.action, progress=progress_of(waited), ends_writes=ends_writes)


ROOMS: Mapping[type[ActionRoom], Executing] = {
    DeleteObjects: Executing(_objects, results.untried),
    DeletePrefix: Executing(_prefix, prefix.untried),
}
