"""Import transactions: start tenants at the numbers that they have elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from sexton.issuer.access import OPERATORS
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.base import Change, Desk, Done, Made
from sexton.issuer.operations.import_ import check_once
from sexton.issuer.operations.transacting import Place
from sexton.issuer.state.binding import require_same
from sexton.issuer.state.state import Request, State
from sexton.issuer.wire import MAX_SUBJECTS, Name
from sexton.schemas import checks, events
from sexton.schemas.errors import RequestRefused, UsageError
from sexton.schemas.generations import MAX_GENERATION

__all__ = ["ImportTransactions", "ImportedNumbers", "ImportedTransactionsAnswer"]

_Number = Annotated[int, Meta(ge=0, le=MAX_GENERATION)]


class ImportedNumbers(Struct, forbid_unknown_fields=True, gc=False):
    """A tenant's numbers: `newest` at least every number in its keys, `last_committed` the visible one."""

    tenant: Name
    newest: _Number
    last_committed: _Number | None = None
    number_place: Place = "last"


class ImportedTransactionsAnswer(Struct):
    """So many tenants are known from this place of the log on."""

    log_offset: int
    request_id: str
    tenants: int


class ImportTransactions(Change[ImportedTransactionsAnswer], forbid_unknown_fields=True):
    """Start tenants that the log does not know at the numbers that they have, all of them or none."""

    tenants: Annotated[list[ImportedNumbers], Meta(min_length=1, max_length=MAX_SUBJECTS)]

    path = "/v1/transactions/import"
    answer = ImportedTransactionsAnswer
    roles = OPERATORS
    folds = (events.TransactionsImported,)
    binding = "import-transactions"

    def check(self) -> None:
        """Raise UsageError for rows that are named twice, or whose numbers contradict each other."""
        for row in self.tenants:
            checks.check_tenant(row.tenant)
            if row.last_committed is not None and row.last_committed > row.newest:
                raise UsageError(f"the last committed one is above the newest: {row.tenant}")
        check_once("tenant", [row.tenant for row in self.tenants])

    def numbered(self) -> Sequence[str]:
        """Return the tenants."""
        return [row.tenant for row in self.tenants]

    def decide(self, state: State, made: Made) -> events.TransactionsImported:
        """Start the tenants; raises RequestRefused `tenant-known`."""
        known = [row.tenant for row in self.tenants if state.known(row.tenant)]
        if known:
            raise RequestRefused("tenant-known", f"the log knows {len(known)} of the tenants: {known[0]}")
        rows = [
            events.ImportedTransactions(
                row.tenant, row.newest, row.last_committed, events.NumberPlace(row.number_place)
            )
            for row in self.tenants
        ]
        return events.TransactionsImported(made.request_id, made.caller, rows, made.ends, made.at)

    def answered(self, desk: Desk, done: Done, deadline: Deadline) -> ImportedTransactionsAnswer:
        """Return how many were started; raises RequestRefused if the request id imported something else."""
        require_same(done.request.granted == {row.tenant: row.newest for row in self.tenants})
        return ImportedTransactionsAnswer(done.log_offset, done.request_id, len(self.tenants))

    @classmethod
    def fault(cls, state: State, event: Any) -> str | None:
        """An import never touches what the log knows, and its numbers agree with each other."""
        if len({row.tenant for row in event.tenants}) != len(event.tenants):
            return "tenant-twice"
        for row in event.tenants:
            if state.known(row.tenant):
                return "tenant-known"
            if not 0 <= row.newest <= MAX_GENERATION:
                return "out-of-range"
            if row.last_committed is not None and not 0 <= row.last_committed <= row.newest:
                return "out-of-range"
        return None

    @classmethod
    def change(cls, state: State, offset: int, event: Any, bound: Request) -> None:
        """Start the tenants: numbers at or below the newest never pass, for either state."""
        for row in event.tenants:
            owner = state._transacting(row.tenant, row.number_place)
            owner.newest = owner.imported = row.newest
            owner.committed, owner.changed = row.last_committed, offset
            state._own(row.tenant).imported = offset
            bound.granted[row.tenant] = row.newest

    @classmethod
    def weight(cls, event: Any) -> int:
        """Return the number of tenants."""
        return len(event.tenants)
