"""Typed events: one frozen class for each Avro record, with the same field names.

Times are aware datetimes in UTC with microseconds. `codec` turns events into bytes and back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sexton.schemas.actions import Action, AdvanceHorizon, DeleteMode, DeleteObjects, DeletePrefix
from sexton.schemas.guards import (
    BoundaryGuard,
    GenerationGuard,
    Guard,
    KeyCondition,
    NotBeforeGuard,
    PromiseGuard,
    TransactionGuard,
    TransactionState,
    UnchangedGuard,
)
from sexton.schemas.intents import DeletionIntent, ReplayOf
from sexton.schemas.log_events import (
    Barrier,
    Detached,
    Dropped,
    Fenced,
    GenerationEvent,
    GenerationForm,
    Genesis,
    Grant,
    Imported,
    ImportedNode,
    ImportedTenant,
    Issued,
    IssuedFirstForm,
    IssueOperation,
    NodeRegistered,
)
from sexton.schemas.offsets import PartitionOffsets
from sexton.schemas.outcomes import OutcomeKind, VerdictResult
from sexton.schemas.snapshot_records import SnapshotChunk, SnapshotManifest
from sexton.schemas.transaction_events import (
    ImportedTransactions,
    NodeDecommissioned,
    NumberPlace,
    TransactionAcknowledged,
    TransactionCollected,
    TransactionCommitted,
    TransactionsImported,
    TransactionStarted,
)
from sexton.schemas.vetoes import ExpiresAt, OnlyWhileExists, UnlessWhole, Veto

__all__ = [
    "Action",
    "AdvanceHorizon",
    "Barrier",
    "BoundaryGuard",
    "DeadLetter",
    "DeferredIntent",
    "DeleteMode",
    "DeleteObjects",
    "DeletePrefix",
    "DeletionIntent",
    "Detached",
    "DoneKeys",
    "Dropped",
    "Event",
    "ExpiresAt",
    "Fenced",
    "GenerationEvent",
    "GenerationForm",
    "GenerationGuard",
    "Genesis",
    "Grant",
    "Guard",
    "Imported",
    "ImportedNode",
    "ImportedTenant",
    "ImportedTransactions",
    "IssueOperation",
    "Issued",
    "IssuedFirstForm",
    "KeyCondition",
    "KeyOutcome",
    "KeyProgress",
    "NodeDecommissioned",
    "NodeRegistered",
    "NotBeforeGuard",
    "NumberPlace",
    "OnlyWhileExists",
    "Outcome",
    "OutcomeKind",
    "PartitionOffsets",
    "Position",
    "PromiseGuard",
    "ReplayOf",
    "SnapshotChunk",
    "SnapshotManifest",
    "TransactionAcknowledged",
    "TransactionCollected",
    "TransactionCommitted",
    "TransactionGuard",
    "TransactionStarted",
    "TransactionState",
    "TransactionsImported",
    "UnchangedGuard",
    "UnlessWhole",
    "Verdict",
    "VerdictResult",
    "Veto",
]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a record stands; `topic_id` is Kafka's own id, which a re-created topic does not share."""

    topic_id: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class DoneKeys:
    """Keys of an intent that have their final outcome: `deleted` or `absent`, with what the store did."""

    outcome: OutcomeKind
    effect: str
    ranges: Sequence[int]


@dataclass(frozen=True, slots=True)
class KeyProgress:
    """What is known of the keys of a `DeleteObjects` that waits: all others were not sent, or had no effect.

    Keys are counted from 0 through all phases; `ranges` are first, end, first, end …, each end exclusive.
    `unknown` were sent, not before `sent_since` (None when nobody knows), and nobody knows what became of
    them. `request_ids` are the store's, so far.
    """

    done: Sequence[DoneKeys]
    unknown: Sequence[int]
    sent_since: datetime | None
    request_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class DeferredIntent:
    """An intent that waits, byte for byte, with the position at which it first stood.

    `waiting_since` is when its bucket held it for the first time. `effect_unknown`: a key was sent, and is
    gone or nobody knows what became of it; `keys` says which, where it is known key by key. `gone` and
    `after` are how far a `DeletePrefix` has come: how many objects are gone, and the key after which its
    listing continues; `written_before` is up to when its objects were written, by the store's clock, once
    that is fixed. `resumes_at`: the next phase of a `DeleteObjects` begins no sooner. `passed_as_of` is that
    of the dead letter which is replayed by it.
    """

    first: Position
    first_written_at: datetime
    reason: str
    detail: str
    attempt: int
    retry_at: datetime | None
    raw_key: bytes | None
    raw_value: bytes
    waiting_since: datetime | None = None
    effect_unknown: bool = False
    gone: int = 0
    after: str | None = None
    keys: KeyProgress | None = None
    resumes_at: datetime | None = None
    written_before: datetime | None = None
    passed_as_of: int | None = None


@dataclass(frozen=True, slots=True)
class KeyOutcome:
    """A key whose outcome is not the one that the intent's counts make plain."""

    key: str
    outcome: OutcomeKind
    detail: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the guards were judged, as of the barrier at `log_offset` (None where no log was needed)."""

    result: VerdictResult
    reason: str
    detail: str
    log_offset: int | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an intent; `outcome` is the outcome of its worst key.

    `effects` counts keys by what the store did: `hidden`, `erased` or `absent`, and `deleted` on a bucket
    without versions. Empty where nothing was sent, and in records of version 1.
    """

    intent_id: str
    tenant: str
    bucket: str
    outcome: OutcomeKind
    keys: int
    counts: Mapping[str, int]
    exceptions: Sequence[KeyOutcome]
    verdict: Verdict
    position: Position
    store_request_ids: Sequence[str]
    settled_at: datetime
    effects: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be processed, with its raw bytes and where it stood.

    `passed_as_of` is the offset of the generations log as of which all its guards held. A letter holds no
    history back: once the log has forgotten what a guard claims, this alone says that it held.
    """

    topic: str
    position: Position
    written_at: datetime
    reason: str
    detail: str
    intent_id: str | None
    tenant: str | None
    bucket: str | None
    keys: Sequence[str]
    raw_key: bytes | None
    raw_value: bytes | None
    dead_at: datetime
    passed_as_of: int | None = None


Event = (
    DeletionIntent
    | DeferredIntent
    | Outcome
    | DeadLetter
    | GenerationEvent
    | SnapshotChunk
    | SnapshotManifest
)
