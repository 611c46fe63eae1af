"""What may be looked at: a tenant, and a node of the first form, each with its history. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec import UNSET

from sexton.issuer.state.state import Numbered, State
from sexton.issuer.wire import NodeView, Span, TenantView
from sexton.schemas.errors import RequestRefused

__all__ = ["NODE", "TENANT", "View"]

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


TENANT = View("/v1/tenants/", TenantView, "unknown-tenant", "the log does not know the tenant", _tenant)
NODE = View("/v1/nodes/", NodeView, "unknown-node", "the node has not registered", _node)
