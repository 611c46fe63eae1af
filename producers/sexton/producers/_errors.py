"""What the SDK raises; each class says by its place what the caller can do.

SextonError
├── UsageError
│   ├── InvalidEvent          a key, bucket or tenant that may not be written; nothing was sent
│   ├── InvalidSettings       a setting is unknown or would make deletion unsafe
│   ├── KeyReused             a name was given to an intent before, in this attachment
│   └── ConnectionClosed      the call came after `close`
├── HandleUnusable            this handle emits nothing more: attach or re-attach, and use the new one
│   ├── Superseded            a newer handle of the tenant was given out here, or the tenant moved away
│   ├── Detached              `detach` was called, or the tenant was dropped
│   ├── IndexFateUnknown      an index PUT may or may not have happened, or may still land
│   ├── CommitBegun           the deadlist may be out: repeat that very commit, or acknowledge
│   ├── CommitRejected        a newer transaction has doomed this one: end its uploads, then acknowledge
│   ├── TransactionLost       nobody knows how far it got: end its uploads, then acknowledge
│   ├── TransactionOver       it is committed, or acknowledged
│   ├── StateNotSaved         another process has resumed it, or its state cannot be kept: nothing more
│   ├── BoundaryVanished      a boundary that was seen is gone: the writer must stop
│   ├── BoundaryLowered       the boundary is lower than it was: the writer must stop
│   └── BoundaryUnreadable    the boundary is no number: the writer must stop
├── IndexNotWritten           raised *by the service's own* `put`: the index was certainly not written
├── SequencedConflict         the id is taken, or collected already: read `latest()`, and build on that
├── SequencedUnknown          nobody knows whether the file stands: `confirm()`, or read `latest()`
├── SequencedNotWritten       the store refused the file: it was certainly not written
├── EnvironmentFault
│   ├── IssuerUnavailable
│   ├── StoreUnavailable      the service's store did not answer; nothing was written by that call
│   └── KafkaUnavailable
│       ├── QueueFull         no room in the send queue before the deadline; those intents were not sent
│       ├── DeliveryFailed    Kafka did not take an intent, or did not say so; `intent_ids` names them
│       ├── DeliveryPending   the wait ended first; the intents may still arrive
│       └── ProducerFailed    the Kafka client cannot continue: connect anew
└── RequestRefused            the issuer said no; `type` says why
"""

from __future__ import annotations

from collections.abc import Sequence

from sexton.schemas.errors import KafkaUnavailable, SextonError, UsageError

__all__ = [
    "BoundaryLowered",
    "BoundaryUnreadable",
    "BoundaryVanished",
    "CommitBegun",
    "CommitRejected",
    "ConnectionClosed",
    "DeliveryFailed",
    "DeliveryPending",
    "Detached",
    "HandleUnusable",
    "IndexFateUnknown",
    "IndexNotWritten",
    "KeyReused",
    "ProducerFailed",
    "QueueFull",
    "SequencedConflict",
    "SequencedNotWritten",
    "SequencedUnknown",
    "StateNotSaved",
    "Superseded",
    "TransactionLost",
    "TransactionOver",
]


class KeyReused(UsageError):
    """A name was given to an intent before: it is never written or named again."""


class ConnectionClosed(UsageError):
    """The connection is closed: a call came after its end."""

    def __init__(self, message: str = "the connection is closed", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)


class HandleUnusable(SextonError):
    """This handle emits nothing more."""


class Superseded(HandleUnusable):
    """A newer attachment has taken this handle's place."""


class Detached(HandleUnusable):
    """The tenant was detached or dropped through this connection."""


class IndexFateUnknown(HandleUnusable):
    """An index PUT of this attachment may or may not have happened, or may still land."""


class CommitBegun(HandleUnusable):
    """The transaction's deadlist may be out, and cannot be recalled.

    It can repeat that very commit, or acknowledge.
    """


class CommitRejected(HandleUnusable):
    """The transaction will never be visible: a newer one was started, or its node was decommissioned.

    Final. End its uploads, then `acknowledge`: what it wrote is deleted after that.
    """


class TransactionLost(HandleUnusable):
    """Nobody knows how far the transaction got: it is never committed.

    End its uploads, then `acknowledge`.
    """


class TransactionOver(HandleUnusable):
    """The transaction is committed, or acknowledged."""


class StateNotSaved(HandleUnusable):
    """The service's own `save` refused: another process has resumed the transaction, or its store is away.

    Nothing was sent after it and nothing more is; resume from the state that is stored.
    """


class BoundaryVanished(HandleUnusable):
    """A boundary that this writer has seen is gone: nobody can tell any more which ids are dead."""

    usual_hint = "stop writing; put the boundary back, at least as high as it was, then make a new writer"


class BoundaryLowered(HandleUnusable):
    """The boundary is lower than this writer has seen it: it was restored from a copy, or written by hand."""

    usual_hint = "stop writing; raise the boundary to what it was at least, then make a new writer"


class BoundaryUnreadable(HandleUnusable):
    """The boundary object holds no number of 64 bits."""

    usual_hint = "stop writing; restore the boundary, at least as high as it was, then make a new writer"


class SequencedConflict(SextonError):
    """The file was not created, or is not the one to build on: read `latest()`, and begin again from there.

    `boundary` is None where another one's file has the id. Otherwise the id lies at or below that boundary:
    this writer was too slow by more than the collector's age limit. Its file may stand, as garbage; whether
    others had seen it before it was collected is not known.
    """

    usual_hint = "read latest(), apply the change to that, and create the id after it"

    def __init__(self, message: str, boundary: int | None = None) -> None:
        self.boundary = boundary
        super().__init__(message)


class SequencedUnknown(SextonError):
    """Nobody knows whether the file stands, or stood: it may, or may not, or may still come.

    Where `final` is False, `confirm()` continues that very create, and the writer begins no other one before.
    Where it is True nothing can tell any more: read `latest()` and look whether it holds the change.
    """

    def __init__(self, message: str, *, final: bool, hint: str | None = None) -> None:
        self.final = final
        usual = _LOOK if final else "call confirm(), which continues that create, or make a new writer"
        super().__init__(message, hint=hint or usual)


_LOOK = "read latest() and look whether it holds the change, before it is made again"


class SequencedNotWritten(SextonError):
    """The file was certainly not written; also for a store's own `put_if_absent` to raise.

    There only for a definite refusal (for example 403) of a request that was sent once.
    A timeout, a lost connection or a 5xx is not one.
    """


class IndexNotWritten(SextonError):
    """The index was certainly not written; for a service's own `put` to raise.

    Only for a failure that came before the request left, or a definite refusal (for example 412 or 403).
    A timeout, a lost connection or a 5xx is not one.
    """


class QueueFull(KafkaUnavailable):
    """The send queue had no room before the deadline.

    `intent_ids` are those of the call that were not sent; `accepted` those that were and will arrive.
    """

    def __init__(self, message: str, intent_ids: Sequence[str], accepted: Sequence[str]) -> None:
        self.intent_ids = tuple(intent_ids)
        self.accepted = tuple(accepted)
        super().__init__(message)


class DeliveryFailed(KafkaUnavailable):
    """Kafka refused an intent, or nobody knows whether it took it.

    Emitting the same keys again is allowed and harmless: keys that an intent has named stay dead.
    """

    def __init__(self, message: str, intent_ids: Sequence[str], *, hint: str | None = None) -> None:
        self.intent_ids = tuple(intent_ids)
        super().__init__(message, hint=hint)


class DeliveryPending(KafkaUnavailable):
    """The deadline of the wait has passed; `intent_ids` are still on their way."""

    def __init__(self, message: str, intent_ids: Sequence[str]) -> None:
        self.intent_ids = tuple(intent_ids)
        super().__init__(message)


class ProducerFailed(KafkaUnavailable):
    """The Kafka client has met a fatal error and takes nothing more."""
