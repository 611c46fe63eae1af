"""Typed events of MVCC transactions in the generations log, which `events` hands on (designs: transactions).

A tenant of the form `transactions` has numbered transactions: Open → Committed, or Open → RejectPending →
RejectAcknowledged → Collected. Only the last committed one is visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sexton.schemas.offsets import PartitionOffsets

__all__ = [
    "ImportedTransactions",
    "NodeDecommissioned",
    "NumberPlace",
    "TransactionAcknowledged",
    "TransactionCollected",
    "TransactionCommitted",
    "TransactionEvent",
    "TransactionStarted",
    "TransactionsImported",
]


class NumberPlace(StrEnum):
    """Where keys carry the number: in the first segment below the tenant's prefix, or as the final `.23`."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class TransactionStarted:
    """A tenant's next transaction begins; every other open one of the tenant is rejected by it."""

    request_id: str
    caller: str
    node: str
    tenant: str
    transaction: int
    previous: int | None
    last_committed: int | None
    number_place: NumberPlace
    ends: PartitionOffsets
    started_at: datetime


@dataclass(frozen=True, slots=True)
class TransactionCommitted:
    """A transaction becomes the visible one; its deadlist is closed at `ends`.

    `deadlist` has the offset behind its last deadlist intent in each partition, None where it has none.
    """

    request_id: str
    caller: str
    node: str
    tenant: str
    transaction: int
    deadlist: PartitionOffsets | None
    ends: PartitionOffsets
    committed_at: datetime


@dataclass(frozen=True, slots=True)
class TransactionAcknowledged:
    """Every upload in its name has ceased: its node says so, or somebody (`forced_by`) in its place."""

    request_id: str
    caller: str
    node: str | None
    tenant: str
    transaction: int
    forced_by: str | None
    why: str | None
    acknowledged_at: datetime


@dataclass(frozen=True, slots=True)
class NodeDecommissioned:
    """A node is gone for good: its unfinished transactions are rejected and acknowledged."""

    request_id: str
    caller: str
    node: str
    credentials_revoked_at: datetime
    decommissioned_at: datetime


@dataclass(frozen=True, slots=True)
class TransactionCollected:
    """A whole, exact listing found nothing of a rejected transaction."""

    request_id: str
    caller: str
    tenant: str
    transaction: int
    ends: PartitionOffsets
    collected_at: datetime


@dataclass(frozen=True, slots=True)
class ImportedTransactions:
    """A tenant's numbers elsewhere: `newest` is at least every number in its keys."""

    tenant: str
    newest: int
    last_committed: int | None
    number_place: NumberPlace


@dataclass(frozen=True, slots=True)
class TransactionsImported:
    """Tenants that had transactions before this log knew them; valid with all or void with all."""

    request_id: str
    caller: str
    tenants: Sequence[ImportedTransactions]
    ends: PartitionOffsets
    imported_at: datetime


TransactionEvent = (
    TransactionStarted
    | TransactionCommitted
    | TransactionAcknowledged
    | NodeDecommissioned
    | TransactionCollected
    | TransactionsImported
)
