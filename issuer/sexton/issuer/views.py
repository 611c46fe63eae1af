"""What may be looked at: a tenant, its transactions, a node of the first form, with their history. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from msgspec import UNSET, Struct, UnsetType, field

from sexton.issuer.state.state import Numbered, State
from sexton.issuer.state.transactions import Transaction
from sexton.issuer.wire import NodeView, Span, TenantView
from sexton.schemas.errors import RequestRefused

__all__ = [
    "NODE",
    "TENANT",
    "TRANSACTIONS",
    "VIEWS",
    "TransactionView",
    "TransactionsView",
    "View",
    "transaction_view",
]

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class View(Generic[V]):
    """One kind of thing to look at; `unknown` is the problem type of a name that the log does not know."""

    path: str
    answer: type[V]
    unknown: str
    missing: str
    build: Callable[[State, str, int], V | None]

    def of(self, state: State, name: str, history: int) -> V:
        """Return it with its newest `history` numbers; raises RequestRefused where it is not known."""
        found = self.build(state, name, history)
        if found is None:
            raise RequestRefused(self.unknown, f"{self.missing}: {name}", status=404)
        return found


def _tenant(state: State, name: str, history: int) -> TenantView | None:
    tenant = state.tenant(name)
    if tenant is None:
        return None
    spans = _spans(tenant, history)
    view = TenantView(state.log_offset, name, tenant.newest, tenant.holder, tenant.dropped, spans)
    view.form = tenant.form.value
    view.imported = UNSET if tenant.imported is None else tenant.imported
    return view


def _node(state: State, name: str, history: int) -> NodeView | None:
    node = state.node(name)
    if node is None:
        return None
    return NodeView(state.log_offset, name, node.number, node.newest, _spans(node, history))


def _spans(owner: Numbered, history: int) -> list[Span]:
    """Return the newest numbers with their windows, the newest first."""
    spans = []
    for index in range(len(owner.issues) - 1, max(-1, len(owner.issues) - 1 - history), -1):
        issue = owner.issues[index]
        span = Span(owner.first + index, issue.log_offset, issue.node, list(issue.high))
        if index + 1 < len(owner.issues):
            span.until = list(owner.issues[index + 1].high)
        spans.append(span)
    return spans


class TransactionView(Struct, omit_defaults=True):
    """One transaction: where it started, the event that gave it its status, its window in each partition."""

    tenant: str
    transaction: int
    node: str
    status: str
    log_offset: int
    changed: int
    base: int | None
    start: list[int] = field(name="from")
    until: list[int] | UnsetType = UNSET


class TransactionsView(Struct):
    """A tenant's transactions as of a log offset, those that are still known, the newest first.

    Numbers up to `imported` are from before its import.
    """

    log_offset: int
    tenant: str
    newest: int | None
    last_committed: int | None
    number_place: str
    imported: int
    dropped: bool
    transactions: list[TransactionView]


def transaction_view(tenant: str, found: Transaction) -> TransactionView:
    """Return what people see of a transaction."""
    until = UNSET if found.until is None else list(found.until)
    start = list(found.start)
    where = (found.log_offset, found.changed)
    return TransactionView(
        tenant, found.number, found.node, found.status.value, *where, found.base, start, until
    )


def _transactions(state: State, name: str, history: int) -> TransactionsView | None:
    tenant = state.tenant(name)
    owner = tenant.transactions if tenant else None
    if tenant is None or owner is None:
        return None
    newest = sorted(owner, key=lambda each: -each.number)[:history]
    rows = [transaction_view(name, each) for each in newest]
    return TransactionsView(
        log_offset=state.log_offset,
        tenant=name,
        newest=owner.newest,
        last_committed=owner.committed,
        number_place=owner.place.value,
        imported=owner.imported,
        dropped=tenant.dropped,
        transactions=rows,
    )


TENANT = View("/v1/tenants/", TenantView, "unknown-tenant", "the log does not know the tenant", _tenant)
NODE = View("/v1/nodes/", NodeView, "unknown-node", "the node has not registered", _node)
TRANSACTIONS = View(
    "/v1/transactions/",
    TransactionsView,
    "unknown-transactions",
    "the log knows no transactions of the tenant",
    _transactions,
)
VIEWS: tuple[View[Any], ...] = (TENANT, NODE, TRANSACTIONS)
