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
from sexton.streaming_jobs.reaper.actions.delete_prefix.progress import PrefixProgress
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
    return ObjectsExecution(intent.action, conditions=conditions_of(intent.guards), before=before)


def _prefix(intent: DeletionIntent, waited: DeferredIntent | None, before: Before | None) -> Execution:
    assert isinstance(intent.action, DeletePrefix)
    progress = PrefixProgress(waited.gone, waited.after) if waited else PrefixProgress()
    return PrefixExecution(intent.action, progress=progress)


ROOMS: Mapping[type[ActionRoom], Executing] = {
    DeleteObjects: Executing(_objects, results.untried),
    DeletePrefix: Executing(_prefix, prefix.untried),
}
