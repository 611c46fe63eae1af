"""When an event of a transaction counts, and what a call about one is answered. Pure.

Each `fault` says for every reader of the log, for ever, why an event is void; each `check` refuses a call
before such an event is appended (designs: MVCC transactions, events and rules).
"""

from __future__ import annotations

from sexton.issuer.state.grants import check_alive
from sexton.issuer.state.state import State, Tenant
from sexton.issuer.state.transactions import Status, Transaction, Transactions
from sexton.schemas import events
from sexton.schemas.errors import RequestRefused
from sexton.schemas.events import GenerationForm
from sexton.schemas.generations import MAX_GENERATION

__all__ = [
    "acknowledge_fault",
    "check_form",
    "check_startable",
    "collect_fault",
    "commit_fault",
    "covers",
    "reject",
    "start_fault",
    "transaction_of",
    "transactions_of",
]


def check_form(tenant: Tenant | None, name: str) -> None:
    """Raise RequestRefused `other-form` for a tenant that has generations."""
    if tenant is not None and tenant.form is not GenerationForm.TRANSACTIONS:
        raise RequestRefused("other-form", f"the tenant is of the {tenant.form} form: {name}")


def transactions_of(state: State, name: str) -> Transactions:
    """Return a tenant's transactions; raises RequestRefused `unknown-tenant`, `other-form`."""
    tenant = state.tenant(name)
    check_form(tenant, name)
    if tenant is None or tenant.transactions is None:
        raise RequestRefused("unknown-tenant", f"the log does not know the tenant: {name}", status=404)
    return tenant.transactions


def transaction_of(state: State, name: str, number: int) -> Transaction:
    """Return a transaction that was started here and is still known.

    Raises RequestRefused `unknown-tenant`, `other-form`, `unknown-transaction`, `transaction-forgotten`.
    """
    owner = transactions_of(state, name)
    found = owner.kept.get(number)
    if found is not None:
        return found
    if owner.status(number) is Status.FORGOTTEN:
        message = f"transaction {number} of {name} ended long ago, and how is forgotten"
        raise RequestRefused("transaction-forgotten", message, status=410)
    message = f"transaction {number} of {name} was never started here"
    raise RequestRefused("unknown-transaction", message, status=404)


def reject(owner: Transactions, offset: int, but: int) -> None:
    """Doom every open transaction but one: what they write is never visible."""
    for each in owner:
        if each.status is Status.OPEN and each.number != but:
            each.move(Status.REJECT_PENDING, offset)


def check_startable(state: State, node: str, name: str, place: events.NumberPlace | None) -> None:
    """Raise RequestRefused: `other-form`, `tenant-dropped`, `node-decommissioned`, `generations-exhausted`.

    Also `number-place-fixed` where keys of the tenant carry the number elsewhere.
    """
    tenant = state.tenant(name)
    check_form(tenant, name)
    check_alive(state, name)
    if node in state.decommissioned:
        raise RequestRefused("node-decommissioned", f"the node was decommissioned: {node}", status=410)
    owner = None if tenant is None else tenant.transactions
    if owner is not None and place not in (None, owner.place):
        raise RequestRefused("number-place-fixed", f"keys of {name} carry the number {owner.place}")
    if owner is not None and owner.newest == MAX_GENERATION:
        raise RequestRefused("generations-exhausted", f"the tenant has used every number: {name}")


def start_fault(state: State, event: events.TransactionStarted) -> str | None:
    """The next number after the newest, building on what is the last committed one at this very event.

    Built on an older one, it would take what the one that has just committed wrote for garbage.
    """
    tenant = state.tenant(event.tenant)
    if tenant is not None and tenant.form is not GenerationForm.TRANSACTIONS:
        return "other-form"
    if event.node in state.decommissioned:
        return "node-decommissioned"
    if tenant is not None and tenant.dropped:
        return "dropped"
    owner = (tenant and tenant.transactions) or Transactions(event.number_place)
    if event.number_place is not owner.place:
        return "number-place-fixed"
    if event.previous != owner.newest:
        return "not-newest"
    if event.transaction != (owner.newest or 0) + 1 or event.transaction > MAX_GENERATION:
        return "not-next"
    return None if event.last_committed == owner.committed else "not-last-committed"


def commit_fault(state: State, event: events.TransactionCommitted) -> str | None:
    """Only the newest started, while it is open, for the node that started it, its deadlist below `ends`."""
    found = _known(state, event.tenant, event.transaction)
    if isinstance(found, str):
        return found
    owner, transaction = found
    if found_fault := _not_open(state, event.tenant, transaction):
        return found_fault
    if transaction.number != owner.newest:
        return "not-newest"
    if transaction.node != event.node:
        return "other-node"
    return None if covers(event.ends, event.deadlist) else "deadlist-not-covered"


def acknowledge_fault(state: State, event: events.TransactionAcknowledged) -> str | None:
    """Of one that is rejected, or of an open one that its own node gives up."""
    found = _known(state, event.tenant, event.transaction)
    if isinstance(found, str):
        return found
    _, transaction = found
    if (event.node is None) == (event.forced_by is None):
        return "neither-node-nor-forced"
    if event.node is not None and event.node != transaction.node:
        return "other-node"
    may = (Status.REJECT_PENDING,) if event.node is None else (Status.REJECT_PENDING, Status.OPEN)
    return None if transaction.status in may else "not-rejected"


def collect_fault(state: State, event: events.TransactionCollected) -> str | None:
    """Only what is rejected and acknowledged can be gone for good."""
    found = _known(state, event.tenant, event.transaction)
    if isinstance(found, str):
        return found
    return None if found[1].status is Status.REJECT_ACKNOWLEDGED else "not-acknowledged"


def _not_open(state: State, name: str, transaction: Transaction) -> str | None:
    tenant = state.tenant(name)
    if tenant is not None and tenant.dropped:
        return "dropped"
    if transaction.node in state.decommissioned:
        return "node-decommissioned"
    return None if transaction.status is Status.OPEN else "not-open"


def covers(ends: events.PartitionOffsets, deadlist: events.PartitionOffsets | None) -> bool:
    """Return whether a deadlist lies below these end offsets: else it would be stale for ever."""
    if deadlist is None:
        return True
    known = deadlist.topic_id == ends.topic_id and len(deadlist.offsets) <= len(ends.offsets)
    return known and all(at <= end for at, end in zip(deadlist.offsets, ends.offsets, strict=False))


def _known(state: State, name: str, number: int) -> tuple[Transactions, Transaction] | str:
    tenant = state.tenant(name)
    owner = None if tenant is None else tenant.transactions
    if owner is None:
        return "unknown-tenant"
    found = owner.kept.get(number)
    return "unknown-transaction" if found is None else (owner, found)
