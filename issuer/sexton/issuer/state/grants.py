"""Rules that every number obeys: who may be given the next one, and when its event counts. Pure."""

from __future__ import annotations

from sexton.issuer.state.state import State, Tenant
from sexton.schemas.errors import RequestRefused
from sexton.schemas.events import GenerationForm

__all__ = ["check_alive", "check_expected", "check_issuable", "check_node", "grant_fault"]


def check_node(state: State, node: str, node_generation: int | None) -> int:
    """Return the newest generation of a registered node.

    Raises RequestRefused `node-not-registered`, or `stale-node` for a caller that has another generation: it
    has been started again elsewhere and must stop.
    """
    found = state.node(node)
    if found is None or found.newest is None:
        raise RequestRefused("node-not-registered", f"the node has not registered: {node}")
    if node_generation is not None and node_generation != found.newest:
        raise RequestRefused(
            "stale-node",
            f"the newest generation of node {node} is {found.newest}, not {node_generation}: stop",
        )
    return found.newest


def check_alive(state: State, tenant: str) -> None:
    """Raise RequestRefused when the tenant was dropped."""
    found = state.tenant(tenant)
    if found is not None and found.dropped:
        raise RequestRefused("tenant-dropped", f"the tenant was dropped: {tenant}", status=410)


def check_issuable(state: State, tenant: str, expected: int | None) -> None:
    """Raise RequestRefused when the tenant was dropped, has no number left, or another one is expected.

    Also `other-form` for a tenant that has transactions.
    """
    check_alive(state, tenant)
    found, newest = state.tenant(tenant), state.newest(tenant)
    if found is not None and found.form is GenerationForm.TRANSACTIONS:
        raise RequestRefused("other-form", f"the tenant is of the {found.form} form: {tenant}")
    if found is not None and newest == found.largest:
        raise RequestRefused("generations-exhausted", f"the tenant has used every generation: {tenant}")
    check_expected(tenant, expected, newest)


def check_expected(tenant: str, expected: int | None, newest: int | None) -> None:
    """Raise RequestRefused when the caller believes another generation to be the newest (I-12)."""
    if expected is not None and expected != (newest or 0):
        raise RequestRefused(
            "generation-not-newest",
            f"the newest generation of {tenant} is {'none' if newest is None else newest}, not {expected}",
        )


def grant_fault(tenant: Tenant, generation: int, supersedes: int | None) -> str | None:
    """Return why an event cannot give a tenant this generation: a compare-and-set; None when it can."""
    newest = tenant.newest
    if tenant.form is GenerationForm.TRANSACTIONS:
        return "other-form"
    if tenant.dropped:
        return "dropped"
    if supersedes != newest:
        return "not-newest"
    if generation != (1 if newest is None else newest + 1) or generation > tenant.largest:
        return "not-next"
    return None
