"""Commit a transaction: it becomes the visible one, and what its deadlist names may die."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sexton.issuer.access import HOLDERS
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.barrier import Ends
from sexton.issuer.operations.base import Change, Desk, Done, Made, Wait
from sexton.issuer.operations.transacting import Number, TransactionDone, already
from sexton.issuer.state import transaction_rules as rules
from sexton.issuer.state.state import Request, State
from sexton.issuer.state.transactions import Status
from sexton.issuer.wire import Name
from sexton.schemas import events
from sexton.schemas.errors import RequestRefused
from sexton.schemas.events import PartitionOffsets

__all__ = ["CommitTransaction"]


class CommitTransaction(Change[TransactionDone], forbid_unknown_fields=True):
    """Make a transaction the visible one; `deadlist` has the offset behind its last deadlist intent.

    One offset for each partition of the intents topic; without it the transaction has no deadlist. Asked
    again after it was granted, the answer is the same.
    """

    node: Name
    tenant: Name
    transaction: Number
    deadlist: Ends | None = None

    path = "/v1/transactions/commit"
    answer = TransactionDone
    roles = HOLDERS
    folds = (events.TransactionCommitted,)
    binding = "commit-transaction"

    def numbered(self) -> Sequence[str]:
        """Return the tenant: Redis has to know of its commits."""
        return [self.tenant]

    def leads_to(self) -> int:
        """Return the transaction."""
        return self.transaction

    def decide(self, state: State, made: Made) -> events.TransactionCommitted | Done | Wait:
        """Commit it once the end offsets have reached its deadlist: behind them it would be stale for ever.

        Another client's open Kafka transaction may hold them back. Raises RequestRefused:
        `transaction-rejected`, which is final, `other-node`, `unknown-transaction`, `tenant-dropped`,
        `other-topic`, and what `transaction_of` raises.
        """
        found = rules.transaction_of(state, self.tenant, self.transaction)
        name = f"transaction {self.transaction} of {self.tenant}"
        if found.node != self.node:
            raise RequestRefused("other-node", f"{name} was started by another node: {found.node}")
        if found.status is Status.COMMITTED:
            return already(made.request_id, made.caller, self.binding, self.tenant, found)
        if found.status is not Status.OPEN:
            raise RequestRefused("transaction-rejected", f"{name} is rejected: {found.status}")
        tenant = state.tenant(self.tenant)
        if tenant is not None and tenant.dropped:
            raise RequestRefused("tenant-dropped", f"the tenant was dropped: {self.tenant}", status=410)
        deadlist = None
        if self.deadlist is not None:
            deadlist = PartitionOffsets(self.deadlist.topic_id, self.deadlist.offsets)
            if deadlist.topic_id != made.ends.topic_id:
                raise RequestRefused("other-topic", f"a deadlist in another topic: {deadlist.topic_id}")
        event = events.TransactionCommitted(
            request_id=made.request_id,
            caller=made.caller,
            node=self.node,
            tenant=self.tenant,
            transaction=self.transaction,
            deadlist=deadlist,
            ends=made.ends,
            committed_at=made.at,
        )
        if rules.covers(made.ends, deadlist):
            return event
        return Wait("the end offsets of the intents topic have not reached the deadlist")

    def answered(self, desk: Desk, done: Done, deadline: Deadline) -> TransactionDone:
        """Return where the log proves it."""
        return TransactionDone(done.log_offset, done.request_id, self.tenant, self.transaction)

    @classmethod
    def fault(cls, state: State, event: Any) -> str | None:
        """Only the newest started, open, for its own node, its deadlist below the end offsets."""
        return rules.commit_fault(state, event)

    @classmethod
    def change(cls, state: State, offset: int, event: Any, bound: Request) -> None:
        """Make it the visible one and close its deadlist."""
        owner = state._transacting(event.tenant, events.NumberPlace.FIRST)
        found = owner.kept[event.transaction]
        found.move(Status.COMMITTED, offset)
        # The event's own end offsets, not the running maximum: what was written after they were read was
        # written when the commit had been asked for.
        found.until = list(event.ends.offsets)
        before, owner.committed, owner.changed = owner.committed, found.number, offset
        if before is not None:
            state._close(owner, before, offset)
        bound.granted[event.tenant] = found.number
