"""What an issuer answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sexton.issuer.state.transactions import Status
from sexton.issuer.subjects.generation import Subject
from sexton.issuer.subjects.transaction import TransactionFact, TransactionSubject
from sexton.schemas.events import GenerationForm, NumberPlace
from sexton.schemas.generations import PackedGeneration
from sexton.schemas.windows import Window

__all__ = [
    "Attachment",
    "BarrierAnswer",
    "NodeState",
    "Registration",
    "Span",
    "TenantState",
    "TransactionGrant",
    "TransactionState",
    "TransactionsState",
    "Validation",
    "packed",
]


@dataclass(frozen=True, slots=True)
class Registration:
    """A node of the first form with its number and the node generation that it was given."""

    node: str
    number: int
    generation: int
    log_offset: int = -1


@dataclass(frozen=True, slots=True)
class Attachment:
    """A tenant that a node was given, with its generation; `log_offset` is where the log proves it.

    `packed` is what keys of a tenant of the first form carry, None for the final form.
    """

    tenant: str
    generation: int
    log_offset: int = -1
    packed: PackedGeneration | None = None


@dataclass(frozen=True, slots=True)
class Validation:
    """Windows as of a log offset: None for a generation without one; unknown tenants are absent.

    Of a subject of the first form `windows` holds what lies in both of its windows; `attachments` and `nodes`
    tell them apart: a stale node must stop, a stale attachment only loses the right to delete.

    A generation without a window was never issued, or was superseded and its window is forgotten. Those that
    are known to be superseded are in `forgotten`, with an offset: every intent at or above it was written
    after the end of the window. Below it nothing is known.
    """

    log_offset: int
    topic_id: str
    windows: Mapping[Subject, Window | None]
    attachments: Mapping[Subject, Window | None] = field(default_factory=dict)
    nodes: Mapping[Subject, Window | None] = field(default_factory=dict)
    forgotten: Mapping[Subject, int] = field(default_factory=dict)
    transactions: Mapping[TransactionSubject, TransactionFact] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BarrierAnswer:
    """A barrier: what stands below `ends` (by partition) was written before the event at `log_offset`."""

    log_offset: int
    topic_id: str
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """One generation of a tenant, where it was issued, and its window; `node` is None where none got it."""

    generation: int
    log_offset: int
    node: str | None
    start: tuple[int, ...]
    until: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class TransactionGrant:
    """A transaction that was started, on top of the last committed one; proven by the log at `log_offset`."""

    tenant: str
    transaction: int
    last_committed: int | None
    number_place: NumberPlace
    log_offset: int = -1


@dataclass(frozen=True, slots=True)
class TransactionState:
    """One transaction: where it started, the event that gave it its status, its window in each partition."""

    tenant: str
    transaction: int
    node: str
    status: Status
    log_offset: int
    changed: int
    base: int | None
    start: tuple[int, ...]
    until: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class TransactionsState:
    """A tenant's transactions as of a log offset, those that are still known, the newest first.

    Numbers up to `imported` are from before its import.
    """

    log_offset: int
    tenant: str
    newest: int | None
    last_committed: int | None
    number_place: NumberPlace
    imported: int
    dropped: bool
    transactions: tuple[TransactionState, ...]


@dataclass(frozen=True, slots=True)
class TenantState:
    """A tenant as of a log offset; `history` starts with the newest generation.

    `imported` is the log offset of its import, None if it came by none. Imported and without a generation it
    is generation-less: its objects have no suffix.
    """

    log_offset: int
    tenant: str
    generation: int | None
    holder: str | None
    dropped: bool
    history: tuple[Span, ...]
    form: GenerationForm = GenerationForm.FINAL
    imported: int | None = None


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node of the first form as of a log offset; `history` starts with its newest generation."""

    log_offset: int
    node: str
    number: int
    generation: int | None
    history: tuple[Span, ...]


def packed(generation: int, form: str | None, registration: Registration | None) -> PackedGeneration | None:
    """Return the packed generation of a tenant of the first form, if it is known whose node's it is."""
    if form != GenerationForm.FIRST or registration is None:
        return None
    return PackedGeneration(generation, registration.number, registration.generation)
