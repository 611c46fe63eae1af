"""Typed events of the generations log, which `events` hands on: one frozen class for each Avro record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sexton.schemas.offsets import PartitionOffsets
from sexton.schemas.transaction_events import TransactionEvent

__all__ = [
    "Barrier",
    "Detached",
    "Dropped",
    "Fenced",
    "GenerationEvent",
    "GenerationForm",
    "Genesis",
    "Grant",
    "Imported",
    "ImportedNode",
    "ImportedTenant",
    "IssueOperation",
    "Issued",
    "IssuedFirstForm",
    "NodeRegistered",
    "PartitionOffsets",
]


class IssueOperation(StrEnum):
    """The call that handed generations out."""

    ATTACH = "attach"
    RE_ATTACH = "re_attach"


class GenerationForm(StrEnum):
    """The form of a tenant's numbers, fixed at its first use.

    Generations of one u32, or attachment and node generation packed in a u64, or numbered transactions.
    """

    FINAL = "final"
    FIRST = "first"
    TRANSACTIONS = "transactions"


@dataclass(frozen=True, slots=True)
class Genesis:
    """First event of the generations log: names the cluster and the topics it belongs to."""

    format: int
    cluster_id: str
    generations_topic_id: str
    intents_topic_id: str
    written_at: datetime


@dataclass(frozen=True, slots=True)
class Grant:
    """One tenant's new generation and the one that it supersedes (None for the first)."""

    tenant: str
    generation: int
    supersedes: int | None


@dataclass(frozen=True, slots=True)
class Issued:
    """Generations handed out in one call: valid with all grants or void with all."""

    request_id: str
    caller: str
    operation: IssueOperation
    node: str
    part: int
    parts: int
    grants: Sequence[Grant]
    ends: PartitionOffsets
    issued_at: datetime


@dataclass(frozen=True, slots=True)
class IssuedFirstForm:
    """Generations handed out to a registered node, while `node_generation` is its newest.

    A tenant that is new takes the first form; a re-attach grants all that the node holds, of either form.
    """

    request_id: str
    caller: str
    operation: IssueOperation
    node: str
    node_generation: int
    part: int
    parts: int
    grants: Sequence[Grant]
    ends: PartitionOffsets
    issued_at: datetime


@dataclass(frozen=True, slots=True)
class NodeRegistered:
    """A node of the first form gets its next node generation; its number is fixed by the first one."""

    request_id: str
    caller: str
    node: str
    number: int
    generation: int
    supersedes: int | None
    ends: PartitionOffsets
    registered_at: datetime


@dataclass(frozen=True, slots=True)
class Barrier:
    """End offsets of the intents topic, read before this event was appended."""

    request_id: str
    ends: PartitionOffsets
    unsettled: PartitionOffsets | None
    raised_at: datetime


@dataclass(frozen=True, slots=True)
class Detached:
    """A node gives a tenant back; the generation stays the newest until it is superseded."""

    request_id: str
    caller: str
    node: str
    tenant: str
    generation: int
    detached_at: datetime


@dataclass(frozen=True, slots=True)
class Dropped:
    """A tenant ends: nothing is issued for it afterwards."""

    request_id: str
    caller: str
    tenant: str
    dropped_at: datetime


@dataclass(frozen=True, slots=True)
class Fenced:
    """A tenant's generation is superseded by one that no node holds: nobody deletes under either."""

    request_id: str
    caller: str
    tenant: str
    generation: int
    supersedes: int | None
    ends: PartitionOffsets
    fenced_at: datetime


@dataclass(frozen=True, slots=True)
class ImportedTenant:
    """A tenant at the generation that it has; None is generation-less, which is below 0."""

    tenant: str
    form: GenerationForm
    generation: int | None
    node: str | None


@dataclass(frozen=True, slots=True)
class ImportedNode:
    """A node of the first form with its number and the node generation that it has."""

    node: str
    number: int
    generation: int


@dataclass(frozen=True, slots=True)
class Imported:
    """Tenants and nodes that had generations before this log knew them; valid with all or void with all."""

    request_id: str
    caller: str
    part: int
    parts: int
    tenants: Sequence[ImportedTenant]
    nodes: Sequence[ImportedNode]
    ends: PartitionOffsets
    imported_at: datetime


GenerationEvent = (
    Genesis
    | Issued
    | IssuedFirstForm
    | NodeRegistered
    | Barrier
    | Detached
    | Fenced
    | Imported
    | Dropped
    | TransactionEvent
)
