"""Actions say what is to be done; each has a room of its own.

A new one is a class in a module here, its branch in the intent's schema, and its place in `Action`; how it is
executed is the reaper's room for it.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence

from sexton.schemas.actions.advance_horizon import AdvanceHorizon
from sexton.schemas.actions.delete_objects import DeleteObjects
from sexton.schemas.actions.delete_prefix import DeletePrefix
from sexton.schemas.actions.room import ActionRoom, DeleteMode, Refusal

__all__ = [
    "ACTIONS",
    "Action",
    "ActionRoom",
    "AdvanceHorizon",
    "DeleteMode",
    "DeleteObjects",
    "DeletePrefix",
    "Refusal",
]

Action = DeleteObjects | DeletePrefix | AdvanceHorizon
ACTIONS: Sequence[type[ActionRoom]] = typing.get_args(Action)
