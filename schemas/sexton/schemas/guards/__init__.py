"""Guards say why a deletion will be safe; each has a room of its own, and `GUARDS` names them all.

Every guard is stable: once true, true for ever. A new one is a class in a module here, its branch in the
intent's schema, and its place in `Guard`; how it is judged is the reaper's room for it.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence

from sexton.schemas.guards.boundary import BoundaryGuard
from sexton.schemas.guards.generation import GenerationGuard
from sexton.schemas.guards.not_before import NotBeforeGuard
from sexton.schemas.guards.promise import PromiseGuard
from sexton.schemas.guards.room import GuardRoom
from sexton.schemas.guards.transaction import TransactionGuard, TransactionState
from sexton.schemas.guards.unchanged import KeyCondition, UnchangedGuard, conditions_of

__all__ = [
    "GUARDS",
    "BoundaryGuard",
    "GenerationGuard",
    "Guard",
    "GuardRoom",
    "KeyCondition",
    "NotBeforeGuard",
    "PromiseGuard",
    "TransactionGuard",
    "TransactionState",
    "UnchangedGuard",
    "conditions_of",
]

Guard = GenerationGuard | TransactionGuard | NotBeforeGuard | BoundaryGuard | UnchangedGuard | PromiseGuard
GUARDS: Sequence[type[GuardRoom]] = typing.get_args(Guard)
