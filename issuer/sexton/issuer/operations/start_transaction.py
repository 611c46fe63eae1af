"""Start a transaction: the tenant's next number; every other open one of the tenant is rejected by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from sexton.issuer.access import HOLDERS
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.base import Change, Desk, Done, Made
from sexton.issuer.operations.transacting import Place
from sexton.issuer.state import transaction_rules as rules
from sexton.issuer.state.binding import require_same
from sexton.issuer.state.state import Request, State
from sexton.issuer.state.transactions import Transaction
from sexton.issuer.wire import Name
from sexton.schemas import checks, events

__all__ = ["StartTransaction", "Started"]


class Started(Struct):
    """A transaction that was started, and the last committed one that it builds on."""

    log_offset: int
    request_id: str
    tenant: str
    transaction: int
    last_committed: int | None
    number_place: str


class StartTransaction(Change[Started], forbid_unknown_fields=True):
    """Start the tenant's next transaction; `number_place` is where its keys carry the number.

    It is fixed by the tenant's first call: `first`, in the first segment below its prefix, or `last`, as the
    final `.23`, which is what that call takes if it names none.
    """

    node: Name
    tenant: Name
    number_place: Place | None = None

    path = "/v1/transactions/start"
    answer = Started
    roles = HOLDERS
    folds = (events.TransactionStarted,)
    hands_out = 1
    binding = "start-transaction"

    def check(self) -> None:
        """Raise UsageError for names that no tenant and no node can have."""
        checks.check_tenant(self.tenant)
        checks.check_tenant(self.node)

    def numbered(self) -> Sequence[str]:
        """Return the tenant."""
        return [self.tenant]

    def proposes(self, state: State) -> str:
        """Return the tenant; raises RequestRefused as `check_startable` says."""
        place = None if self.number_place is None else events.NumberPlace(self.number_place)
        rules.check_startable(state, self.node, self.tenant, place)
        return self.tenant

    def decide(self, state: State, made: Made) -> events.TransactionStarted:
        """Give the tenant's next number to the node, on top of what the fold has as the last committed one.

        Raises RequestRefused: `other-form`, `tenant-dropped`, `node-decommissioned`, `number-place-fixed`,
        `generations-exhausted`.
        """
        assert made.grant is not None
        self.proposes(state)
        tenant = state.tenant(self.tenant)
        owner = None if tenant is None else tenant.transactions
        return events.TransactionStarted(
            request_id=made.request_id,
            caller=made.caller,
            node=self.node,
            tenant=self.tenant,
            transaction=made.grant.generation,
            previous=made.grant.supersedes,
            last_committed=None if owner is None else owner.committed,
            number_place=owner.place if owner else events.NumberPlace(self.number_place or "last"),
            ends=made.ends,
            started_at=made.at,
        )

    def answered(self, desk: Desk, done: Done, deadline: Deadline) -> Started:
        """Return number and base as the fold has them.

        Raises RequestRefused `transaction-forgotten` where it ended long ago.
        """
        number = done.request.granted[self.tenant]
        with desk.log.state() as state:
            found = rules.transaction_of(state, self.tenant, number)
            place = rules.transactions_of(state, self.tenant).place
        require_same(self.number_place in (None, place))
        return Started(done.log_offset, done.request_id, self.tenant, number, found.base, place)

    @classmethod
    def fault(cls, state: State, event: Any) -> str | None:
        """The next number, on top of the last committed one of this very place of the log."""
        return rules.start_fault(state, event)

    @classmethod
    def change(cls, state: State, offset: int, event: Any, bound: Request) -> None:
        """Start it, and reject every other open one of the tenant."""
        owner = state._transacting(event.tenant, event.number_place)
        started = Transaction(event.transaction, event.node, offset, state.high, owner.committed)
        started.changed = owner.changed = offset
        owner.kept[started.number] = started
        owner.newest = started.number
        rules.reject(owner, offset, but=started.number)
        bound.granted[event.tenant] = started.number
