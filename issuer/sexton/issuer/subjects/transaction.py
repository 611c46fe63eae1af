"""Transactions as subjects: how one ended, and the window of its deadlist in one intents partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from sexton.issuer.state.state import State
from sexton.issuer.state.transactions import Status
from sexton.issuer.subjects.base import Question
from sexton.issuer.wire import Index
from sexton.schemas.errors import IssuerUnavailable
from sexton.schemas.windows import Window

__all__ = ["TransactionAnswer", "TransactionFact", "TransactionSubject", "TransactionsGathered"]

# One of another form has nothing that could pass, or be collected.
_OTHER_FORM = Status.NEVER_STARTED


class TransactionAnswer(Struct, omit_defaults=True, gc=False):
    """A transaction's status, at which log offset it got it, and where its tenant's keys carry the number.

    `from` is absent for one that is not known (any more), `until` while it is not committed; `dropped` says
    that the tenant ended: what is open then is never committed.
    """

    tenant: str
    transaction: int
    partition: int
    status: str
    place: str
    changed: int = -1
    dropped: bool = False
    start: int | UnsetType = msgspec.field(name="from", default=UNSET)
    until: int | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class TransactionFact:
    """What the log says of a transaction, for one intents partition."""

    status: Status
    place: str
    changed: int
    dropped: bool
    window: Window | None


class TransactionSubject(Question[TransactionAnswer], frozen=True, forbid_unknown_fields=True, gc=False):
    """A transaction whose state, and whose window in one intents partition, are asked for."""

    transaction: int
    partition: Index

    asked_in = "transactions"
    answered_in = "transactions"

    def answer(self, state: State) -> TransactionAnswer | None:
        """Return what the fold says; a tenant of another form never started a transaction."""
        tenant = state.tenant(self.tenant)
        if tenant is None:
            return None
        owner = tenant.transactions
        status = _OTHER_FORM if owner is None else owner.status(self.transaction)
        place = "" if owner is None else owner.place.value
        answer = TransactionAnswer(self.tenant, self.transaction, self.partition, status.value, place)
        answer.dropped = tenant.dropped
        found = None if owner is None else owner.kept.get(self.transaction)
        if found is not None:
            window = found.window(self.partition)
            answer.changed, answer.start = found.changed, window.start
            answer.until = UNSET if window.until is None else window.until
        return answer

    def belongs_to(self, state: State) -> Iterable[str | None]:
        """Return the node that started it."""
        tenant = state.tenant(self.tenant)
        owner = None if tenant is None else tenant.transactions
        found = None if owner is None else owner.kept.get(self.transaction)
        return () if found is None else (found.node,)

    @classmethod
    def count(cls, answers: Sequence[TransactionAnswer]) -> Mapping[str, int]:
        """Count the answers by status."""
        found: dict[str, int] = {}
        for answer in answers:
            name = answer.status.replace("-", "_")
            found[name] = found.get(name, 0) + 1
        return found

    @classmethod
    def found(cls) -> TransactionsGathered:
        """Return an empty collection."""
        return TransactionsGathered()


@dataclass(slots=True)
class TransactionsGathered:
    """What a `Validation` holds about transactions."""

    transactions: dict[TransactionSubject, TransactionFact] = field(default_factory=dict)

    def gather(self, answers: Iterable[TransactionAnswer], asked: Iterable[TransactionSubject]) -> None:
        """Put in what was answered about each subject, in the order of what was asked.

        Raises IssuerUnavailable for an answer that was not asked for, or a status that nobody knows.
        """
        left = iter(asked)
        for a in answers:
            answered = TransactionSubject(a.tenant, a.transaction, a.partition)
            if not any(answered == subject for subject in left):
                raise IssuerUnavailable(f"an answer of the issuer that was not asked for: {a.tenant}")
            start, until = a.start, a.until
            window = None
            if not isinstance(start, UnsetType):
                window = Window(start, None if isinstance(until, UnsetType) else until)
            try:
                status = Status(a.status)
            except ValueError as error:
                raise IssuerUnavailable(f"an unknown status of a transaction: {a.status}") from error
            self.transactions[answered] = TransactionFact(status, a.place, a.changed, a.dropped, window)

    def parts(self) -> Mapping[str, Any]:
        """Return the field of a `Validation`."""
        return {"transactions": self.transactions}
