"""What an issuer answers, and what services and jobs may ask of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sexton.schemas.events import GenerationForm, ImportedNode, ImportedTenant, PartitionOffsets
from sexton.schemas.generations import PackedGeneration
from sexton.schemas.windows import Window

__all__ = [
    "Attachment",
    "BarrierAnswer",
    "Gathered",
    "Issuer",
    "NodeState",
    "Registration",
    "Span",
    "Subject",
    "TenantState",
    "Validation",
    "both",
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
class Subject:
    """A generation whose window in one intents partition is asked for."""

    tenant: str
    generation: int
    partition: int
    node: str | None = None
    node_generation: int | None = None


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


@dataclass(slots=True)
class Gathered:
    """What a `Validation` holds about subjects, put together one by one."""

    windows: dict[Subject, Window | None] = field(default_factory=dict)
    attachments: dict[Subject, Window | None] = field(default_factory=dict)
    nodes: dict[Subject, Window | None] = field(default_factory=dict)
    forgotten: dict[Subject, int] = field(default_factory=dict)

    def put(
        self,
        subject: Subject,
        attachment: Window | None,
        node: Window | None,
        until: int | None,
        node_until: int | None,
    ) -> None:
        """Take in a subject's windows; of one that is None `until` says where it ended at the latest."""
        if subject.node is None and subject.node_generation is None:
            self.windows[subject] = attachment
            ended = until if attachment is None else None
        else:
            self.attachments[subject], self.nodes[subject] = attachment, node
            self.windows[subject] = both(attachment, node)
            ended = _both_ended(attachment, node, until, node_until)
        if ended is not None:
            self.forgotten[subject] = ended

    def validation(self, log_offset: int, topic_id: str) -> Validation:
        """Return all of it, as of a log offset."""
        return Validation(log_offset, topic_id, self.windows, self.attachments, self.nodes, self.forgotten)


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


class Issuer(Protocol):
    """What services and jobs ask of an issuer; `deadline` is the time a call may take, seconds."""

    def attach(
        self,
        node: str,
        tenant: str,
        request_id: str | None = None,
        deadline: float | None = None,
        *,
        generation: int | None = None,
        registration: Registration | None = None,
    ) -> Attachment:
        """Give a node a tenant under a new generation."""

    def re_attach(
        self,
        node: str,
        request_id: str | None = None,
        deadline: float | None = None,
        *,
        registration: Registration | None = None,
    ) -> dict[str, int]:
        """Give a node new generations of all that it holds."""

    def register_node(
        self,
        node: str,
        number: int | None = None,
        request_id: str | None = None,
        deadline: float | None = None,
    ) -> Registration:
        """Give a node of the first form its next node generation."""

    def fence_tenant(self, tenant: str, request_id: str | None = None, deadline: float | None = None) -> int:
        """Supersede a tenant's generation by one that no node holds, and return it."""

    def import_tenants(
        self,
        tenants: Sequence[ImportedTenant],
        nodes: Sequence[ImportedNode] = (),
        request_id: str | None = None,
        deadline: float | None = None,
    ) -> int:
        """Start tenants and nodes at the numbers that they have elsewhere; return the log offset."""

    def detach(
        self,
        node: str,
        tenant: str,
        request_id: str | None = None,
        deadline: float | None = None,
        *,
        registration: Registration | None = None,
    ) -> int:
        """Take a tenant from the node that holds it and return its generation."""

    def drop(self, tenant: str, request_id: str | None = None, deadline: float | None = None) -> int:
        """End a tenant for good and return the log offset that says so."""

    def validate(
        self, subjects: Sequence[Subject], at_least: int | None = None, deadline: float | None = None
    ) -> Validation:
        """Return the windows of generations, as of a log offset of at least `at_least`."""

    def barrier(
        self, unsettled: PartitionOffsets | None = None, deadline: float | None = None
    ) -> BarrierAnswer:
        """Make a barrier."""

    def tenant(self, name: str, deadline: float | None = None) -> TenantState | None:
        """Return a tenant and its history, None when the log does not know it."""

    def node(self, name: str, deadline: float | None = None) -> NodeState | None:
        """Return a node of the first form and its history, None if it never registered."""

    def close(self) -> None:
        """Free what the client holds."""


def packed(generation: int, form: str | None, registration: Registration | None) -> PackedGeneration | None:
    """Return the packed generation of a tenant of the first form, if it is known whose node's it is."""
    if form != GenerationForm.FIRST or registration is None:
        return None
    return PackedGeneration(generation, registration.number, registration.generation)


def both(attachment: Window | None, node: Window | None) -> Window | None:
    """Return where a guard of the first form holds: in both windows, nowhere if one is missing."""
    return None if attachment is None or node is None else attachment.intersect(node)


def _both_ended(
    attachment: Window | None, node: Window | None, until: int | None, node_until: int | None
) -> int | None:
    """Return from where on a guard of the first form is superseded, None unless a window is forgotten.

    Below the start of the other window it would be claimed early, and where the other number was never issued
    nobody was given such a pair.
    """
    if attachment is not None and node is not None:
        return None
    one = until if attachment is None else attachment.start
    other = node_until if node is None else node.start
    return None if one is None or other is None else max(one, other)
