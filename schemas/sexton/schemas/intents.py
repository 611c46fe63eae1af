"""Deletion intents, and what one must be before it is written and again before it is executed.

The same rules at both ends: the SDK gives a typed error at the call, the reaper a dead letter for what was
written by other means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sexton.schemas.actions import Action
from sexton.schemas.checks import MAX_TENANT_BYTES, check_tenant
from sexton.schemas.errors import InvalidEvent
from sexton.schemas.guards import Guard, conditions_of
from sexton.schemas.vetoes import Veto

__all__ = ["MAX_INTENT_BYTES", "DeletionIntent", "ReplayOf", "check_form", "check_intent"]

MAX_INTENT_BYTES = 1_500_000
"""Of a record's key and value, unpacked: its deferred copy and its dead letter have to fit into topics."""


@dataclass(frozen=True, slots=True)
class ReplayOf:
    """Where the record stood that became a dead letter, and its intent id where it had a readable one."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    intent_id: str | None = None


@dataclass(frozen=True, slots=True)
class DeletionIntent:
    """A request to delete: the guards say why it will be safe, the action says what to do.

    `replay_of` links a replay to the record that became a dead letter. It gives no rights: a replay is judged
    at its own position, or at the first one if Sexton itself has written it to `deferred`.
    """

    intent_id: str
    tenant: str
    emitted_at: datetime
    emitter: str
    guards: Sequence[Guard]
    action: Action
    replay_of: ReplayOf | None = None
    vetoes: Sequence[Veto] = field(default_factory=list)


def check_intent(intent: DeletionIntent) -> None:
    """Raise InvalidEvent unless a reaper may execute the intent once its guards hold."""
    check_form(intent)
    refusal = intent.action.refusal()
    if refusal is not None:
        raise InvalidEvent(refusal.detail)


def check_form(intent: DeletionIntent) -> None:
    """Raise InvalidEvent unless every value of the intent is within its rules.

    What the action as it stands rules out (a prefix that names a whole bucket) is not in this: it is well
    written, and refused with an outcome (X-16).
    """
    if not intent.intent_id or len(intent.intent_id) > MAX_TENANT_BYTES:
        raise InvalidEvent("intent_id must have 1 to 512 characters")
    check_tenant(intent.tenant)
    if not intent.guards:
        raise InvalidEvent("an intent needs a guard: without one nothing says why the delete is safe")
    for guard in intent.guards:
        guard.check()
    intent.action.check()
    for veto in intent.vetoes:
        veto.check(max(len(intent.action.key_phases), 1))
        veto.check_action(intent.action)
    if any(guard.names_keys for guard in intent.guards):
        intent.action.check_conditions(conditions_of(intent.guards).keys())
