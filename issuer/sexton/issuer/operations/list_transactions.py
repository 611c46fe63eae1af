"""List the transactions that are not finished: of a tenant, of a node, or of all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from sexton.issuer.access import EVERYBODY
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.base import Asking, Desk
from sexton.issuer.state.state import State
from sexton.issuer.state.transactions import Status
from sexton.issuer.views import TransactionView, transaction_view
from sexton.issuer.wire import MAX_SUBJECTS, Name

__all__ = ["ListTransactions", "Unfinished"]

_FINISHED = (Status.COMMITTED, Status.COLLECTED)


class Unfinished(Struct):
    """Transactions in the order of the log; `more` says that others follow behind the tenant `after`."""

    log_offset: int
    transactions: list[TransactionView]
    more: bool
    after: str | None = None


class ListTransactions(Asking[Unfinished], forbid_unknown_fields=True):
    """Transactions that are open, or rejected and not collected; `node` those of one node alone.

    A node asks for its own. With `after`, a tenant of an earlier answer, those of the tenants behind it.
    """

    node: Name | None = None
    after: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_SUBJECTS)] = 1000

    path = "/v1/transactions/unfinished"
    answer = Unfinished
    roles = EVERYBODY

    def acts_as(self) -> str:
        """Return the node whose transactions are asked for: "", which no node is, for those of all."""
        return self.node or ""

    def carry_out(self, desk: Desk, deadline: Deadline) -> Unfinished:
        """Return them as of the log's end, whole tenants at a time."""
        desk.log.read_ends(deadline)
        with desk.log.state() as state:
            rows: list[TransactionView] = []
            last = None
            for name in self._tenants(state):
                if len(rows) >= self.limit:
                    return Unfinished(state.log_offset, rows, more=True, after=last)
                rows += self._rows(state, name)
                last = name
            return Unfinished(state.log_offset, rows, more=False)

    def _tenants(self, state: State) -> Iterator[str]:
        names = sorted(tenant.name for tenant in state if tenant.transactions is not None)
        return (name for name in names if self.after is None or name > self.after)

    def _rows(self, state: State, name: str) -> list[TransactionView]:
        tenant = state.tenant(name)
        return [
            transaction_view(name, each)
            for each in (tenant and tenant.transactions) or ()
            if each.status not in _FINISHED and self.node in (None, each.node)
        ]
