"""What the calls of transactions share: their answers over the wire, and what they are bound to."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.base import Change, Desk, Done
from sexton.issuer.state import transaction_rules as rules
from sexton.issuer.state.state import Request, State
from sexton.issuer.state.transactions import Transaction
from sexton.issuer.wire import Name
from sexton.schemas.generations import MAX_GENERATION

__all__ = ["Ending", "Number", "Place", "TransactionDone"]

Number = Annotated[int, Meta(ge=1, le=MAX_GENERATION)]
Place = Literal["first", "last"]


class TransactionDone(Struct):
    """What became of a transaction, proven by the log at `log_offset`."""

    log_offset: int
    request_id: str
    tenant: str
    transaction: int


class Ending(Change[TransactionDone]):
    """A call that moves one transaction on its way, and is answered by where the log proves it."""

    tenant: Name
    transaction: Number

    answer = TransactionDone

    @property
    def name(self) -> str:
        """Return the transaction, for people."""
        return f"transaction {self.transaction} of {self.tenant}"

    def leads_to(self) -> int:
        """Return the transaction."""
        return self.transaction

    def found(self, state: State) -> Transaction:
        """Return the transaction; raises what `transaction_of` raises."""
        return rules.transaction_of(state, self.tenant, self.transaction)

    def already(self, request_id: str, caller: str, found: Transaction) -> Done:
        """Return what an earlier call has led to: asked again under another id, the answer is the same."""
        request = Request(
            caller, self.binding, found.node, 1, {0: found.changed}, {self.tenant: found.number}
        )
        return Done(request_id, request, is_ours=False)

    def answered(self, desk: Desk, done: Done, deadline: Deadline) -> TransactionDone:
        """Return where the log proves it."""
        return TransactionDone(done.log_offset, done.request_id, self.tenant, self.transaction)
