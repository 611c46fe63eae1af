"""Note that a rejected transaction is collected: a whole, exact listing found nothing of it."""

from __future__ import annotations

from typing import Any

from sexton.issuer.access import COLLECTORS
from sexton.issuer.operations.base import Done, Made
from sexton.issuer.operations.transacting import Ending
from sexton.issuer.state import transaction_rules as rules
from sexton.issuer.state.state import Request, State
from sexton.issuer.state.transactions import Status
from sexton.schemas import events
from sexton.schemas.errors import RequestRefused

__all__ = ["CollectTransaction"]


class CollectTransaction(Ending, forbid_unknown_fields=True):
    """Say that nothing is left of a rejected transaction: a whole and exact listing has found nothing.

    Its state may be forgotten afterwards; until then what is guarded by its rejection still passes.
    """

    path = "/v1/transactions/collected"
    roles = COLLECTORS
    folds = (events.TransactionCollected,)
    binding = "collect-transaction"

    def decide(self, state: State, made: Made) -> events.TransactionCollected | Done:
        """Note it; raises RequestRefused `transaction-not-acknowledged` and what `transaction_of` raises."""
        found = self.found(state)
        if found.status is Status.COLLECTED:
            return self.already(made.request_id, made.caller, found)
        if found.status is not Status.REJECT_ACKNOWLEDGED:
            message = f"{self.name} is {found.status}"
            raise RequestRefused("transaction-not-acknowledged", message)
        return events.TransactionCollected(
            made.request_id, made.caller, self.tenant, self.transaction, made.ends, made.at
        )

    @classmethod
    def fault(cls, state: State, event: Any) -> str | None:
        """Only what is rejected and acknowledged can be gone for good."""
        return rules.collect_fault(state, event)

    @classmethod
    def change(cls, state: State, offset: int, event: Any, bound: Request) -> None:
        """Let it be forgotten once all intents that stand below this event are settled."""
        owner = rules.transactions_of(state, event.tenant)
        owner.kept[event.transaction].move(Status.COLLECTED, offset)
        state._close(owner, event.transaction, offset)
        bound.granted[event.tenant] = event.transaction
