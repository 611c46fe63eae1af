"""The SDK that services embed: attach a tenant, write an index, and ask for what it no longer names.

from sexton.producers import Sexton

with Sexton.connect(node="node-7") as sexton:
    tenant = sexton.attach("tenant-42")
    receipt = tenant.replace_index(put_index, unlinked=keys, bucket="bucket")
    receipt.wait(timeout=30)
"""

from __future__ import annotations

from sexton.producers._async import AsyncSexton, AsyncTenant
from sexton.producers._async_receipt import AsyncReceipt
from sexton.producers._async_transaction import AsyncSave, AsyncTransaction
from sexton.producers._client import Sexton
from sexton.producers._emitter import Statistics
from sexton.producers._errors import (
    BoundaryLowered,
    BoundaryUnreadable,
    BoundaryVanished,
    CommitBegun,
    CommitRejected,
    ConnectionClosed,
    DeliveryFailed,
    DeliveryPending,
    Detached,
    HandleUnusable,
    IndexFateUnknown,
    IndexNotWritten,
    KeyReused,
    ProducerFailed,
    QueueFull,
    SequencedConflict,
    SequencedNotWritten,
    SequencedUnknown,
    StateNotSaved,
    Superseded,
    TransactionLost,
    TransactionOver,
)
from sexton.producers._handle import Tenant
from sexton.producers._intents import KeyTerms, PrefixTerms
from sexton.producers._limits import Limits
from sexton.producers._receipt import Receipt
from sexton.producers._sequenced import SequencedWriter, sequenced
from sexton.producers._sequenced_counts import SequencedStatistics
from sexton.producers._sequenced_store import NoObject, SequencedStore, StoredObject
from sexton.producers._transaction import Committed, Transaction
from sexton.producers._transaction_kept import Save
from sexton.producers._transport import Delivered
from sexton.schemas.errors import (
    EnvironmentFault,
    InvalidEvent,
    InvalidSettings,
    IssuerUnavailable,
    KafkaUnavailable,
    RequestRefused,
    SextonError,
    StoreUnavailable,
    UsageError,
)
from sexton.schemas.events import ExpiresAt, KeyCondition, OnlyWhileExists, UnlessWhole, Veto

__all__ = [
    "AsyncReceipt",
    "AsyncSave",
    "AsyncSexton",
    "AsyncTenant",
    "AsyncTransaction",
    "BoundaryLowered",
    "BoundaryUnreadable",
    "BoundaryVanished",
    "CommitBegun",
    "CommitRejected",
    "Committed",
    "ConnectionClosed",
    "Delivered",
    "DeliveryFailed",
    "DeliveryPending",
    "Detached",
    "EnvironmentFault",
    "ExpiresAt",
    "HandleUnusable",
    "IndexFateUnknown",
    "IndexNotWritten",
    "InvalidEvent",
    "InvalidSettings",
    "IssuerUnavailable",
    "KafkaUnavailable",
    "KeyCondition",
    "KeyReused",
    "KeyTerms",
    "Limits",
    "NoObject",
    "OnlyWhileExists",
    "PrefixTerms",
    "ProducerFailed",
    "QueueFull",
    "Receipt",
    "RequestRefused",
    "Save",
    "SequencedConflict",
    "SequencedNotWritten",
    "SequencedStatistics",
    "SequencedStore",
    "SequencedUnknown",
    "SequencedWriter",
    "Sexton",
    "SextonError",
    "StateNotSaved",
    "Statistics",
    "StoreUnavailable",
    "StoredObject",
    "Superseded",
    "Tenant",
    "Transaction",
    "TransactionLost",
    "TransactionOver",
    "UnlessWhole",
    "UsageError",
    "Veto",
    "sequenced",
]
