"""Acknowledge a rejected transaction: every upload in its name has ceased."""

from __future__ import annotations

from typing import Any

from sexton.issuer.access import HOLDERS
from sexton.issuer.operations.base import Done, Made
from sexton.issuer.operations.transacting import Ending
from sexton.issuer.state import transaction_rules as rules
from sexton.issuer.state.state import Request, State
from sexton.issuer.state.transactions import Status
from sexton.issuer.wire import Name
from sexton.schemas import events
from sexton.schemas.errors import RequestRefused, UsageError

__all__ = ["AcknowledgeTransaction"]

_ENDS_IT = "its node acknowledges it, a later start rejects it, or its node is decommissioned"


class AcknowledgeTransaction(Ending, forbid_unknown_fields=True):
    """Say that every upload in the name of a transaction has ceased: its node, or an operator with a reason.

    The transaction's node gives an open one up by it; without `node` it is forced, and `why` is needed.
    """

    node: Name | None = None
    why: Name | None = None

    path = "/v1/transactions/acknowledge"
    roles = HOLDERS
    folds = (events.TransactionAcknowledged,)
    binding = "acknowledge-transaction"

    def acts_as(self) -> str:
        """Return the node; forced, it is no node's call."""
        return self.node or ""

    def check(self) -> None:
        """Raise UsageError unless a node says so, or somebody else with a reason."""
        if (self.node is None) == (self.why is None):
            raise UsageError("give either the node, or why it is acknowledged in the node's place")

    def decide(self, state: State, made: Made) -> events.TransactionAcknowledged | Done:
        """Acknowledge it. Raises RequestRefused: `other-node`, `transaction-committed`, `transaction-open`
        for one that nobody but its node can give up, and what `transaction_of` raises.
        """
        found = self.found(state)
        if self.node is not None and self.node != found.node:
            raise RequestRefused("other-node", f"{self.name} was started by another node: {found.node}")
        if found.status in (Status.REJECT_ACKNOWLEDGED, Status.COLLECTED):
            return self.already(made.request_id, made.caller, found)
        if found.status is Status.COMMITTED:
            raise RequestRefused("transaction-committed", f"{self.name} is committed")
        if found.status is Status.OPEN and self.node is None:
            raise RequestRefused(
                "transaction-open", f"{self.name} is open: its node may still write", hint=_ENDS_IT
            )
        forced_by = made.caller if self.node is None else None
        return events.TransactionAcknowledged(
            request_id=made.request_id,
            caller=made.caller,
            node=self.node,
            tenant=self.tenant,
            transaction=self.transaction,
            forced_by=forced_by,
            why=self.why,
            acknowledged_at=made.at,
        )

    @classmethod
    def fault(cls, state: State, event: Any) -> str | None:
        """Of one that is rejected, or of an open one that its own node gives up."""
        return rules.acknowledge_fault(state, event)

    @classmethod
    def change(cls, state: State, offset: int, event: Any, bound: Request) -> None:
        """From here on nothing is written in its name: what it wrote may go."""
        owner = rules.transactions_of(state, event.tenant)
        owner.kept[event.transaction].move(Status.REJECT_ACKNOWLEDGED, offset)
        bound.granted[event.tenant] = event.transaction
