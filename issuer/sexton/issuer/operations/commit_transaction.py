"""Commit a transaction: it becomes the visible one, and what its deadlist names may die."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sexton.issuer.access import HOLDERS
from sexton.issuer.operations.barrier import Ends
from sexton.issuer.operations.base import Done, Made, Wait
from sexton.issuer.operations.transacting import Ending
from sexton.issuer.state import transaction_rules as rules
from sexton.issuer.state.grants import check_alive
from sexton.issuer.state.state import Request, State
from sexton.issuer.state.transactions import Status
from sexton.issuer.wire import Name
from sexton.schemas import events
from sexton.schemas.errors import RequestRefused
from sexton.schemas.events import PartitionOffsets

__all__ = ["CommitTransaction"]


class CommitTransaction(Ending, forbid_unknown_fields=True):
    """Make a transaction the visible one; `deadlist` has the offset behind its last deadlist intent.

    One offset for each partition of the intents topic; without it the transaction has no deadlist. Asked
    again after it was granted, the answer is the same.
    """

    node: Name
    deadlist: Ends | None = None

    path = "/v1/transactions/commit"
    roles = HOLDERS
    folds = (events.TransactionCommitted,)
    binding = "commit-transaction"

    def numbered(self) -> Sequence[str]:
        """Return the tenant: Redis has to know of its commits."""
        return [self.tenant]

    def decide(self, state: State, made: Made) -> events.TransactionCommitted | Done | Wait:
        """Commit it once the end offsets have reached its deadlist: behind them it would be stale for ever.

        Another client's open Kafka transaction may hold them back. Raises RequestRefused:
        `transaction-rejected`, which is final, `other-node`, `unknown-transaction`, `tenant-dropped`,
        `other-topic`, and what `transaction_of` raises.
        """
        found = self.found(state)
        if found.node != self.node:
            raise RequestRefused("other-node", f"{self.name} was started by another node: {found.node}")
        if found.status is Status.COMMITTED:
            return self.already(made.request_id, made.caller, found)
        if found.status is not Status.OPEN:
            raise RequestRefused("transaction-rejected", f"{self.name} is rejected: {found.status}")
        check_alive(state, self.tenant)
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

    @classmethod
    def fault(cls, state: State, event: Any) -> str | None:
        """Only the newest started, open, for its own node, its deadlist below the end offsets."""
        return rules.commit_fault(state, event)

    @classmethod
    def change(cls, state: State, offset: int, event: Any, bound: Request) -> None:
        """Make it the visible one and close its deadlist."""
        owner = rules.transactions_of(state, event.tenant)
        found = owner.kept[event.transaction]
        found.move(Status.COMMITTED, offset)
        # The event's own end offsets, not the running maximum: what was written after they were read was
        # written when the commit had been asked for.
        found.until = list(event.ends.offsets)
        before, owner.committed, owner.changed = owner.committed, found.number, offset
        if before is not None:
            state._close(owner, before, offset)
        bound.granted[event.tenant] = found.number
