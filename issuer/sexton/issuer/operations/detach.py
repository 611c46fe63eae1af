"""Detach: take a tenant from the node that holds it."""

from __future__ import annotations

from typing import Any

from sexton.issuer.access import HOLDERS
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.base import Change, Desk, Done, Made
from sexton.issuer.state.grants import check_expected, check_node
from sexton.issuer.state.state import Request, State
from sexton.issuer.wire import Ended, Name
from sexton.schemas import events
from sexton.schemas.errors import RequestRefused

__all__ = ["Detach", "held"]


class Detach(Change[Ended], forbid_unknown_fields=True):
    """Take a tenant from the node that holds it."""

    node: Name
    tenant: Name
    generation: int | None = None
    node_generation: int | None = None

    path = "/v1/detach"
    answer = Ended
    roles = HOLDERS
    folds = (events.Detached,)
    binding = "detach"

    def leads_to(self) -> int | None:
        """Return the generation that the tenant has, before and after."""
        return self.generation

    def decide(self, state: State, made: Made) -> events.Detached:
        """Take the tenant; its generation stays the newest until it is superseded.

        Raises RequestRefused: `not-held`, `generation-not-newest`; `stale-node` for a node generation that is
        not the newest.
        """
        generation = held(state, self.node, self.tenant, self.generation, self.node_generation)
        return events.Detached(made.request_id, made.caller, self.node, self.tenant, generation, made.at)

    def answered(self, desk: Desk, done: Done, deadline: Deadline) -> Ended:
        """Return the generation that the tenant keeps."""
        return Ended(done.log_offset, done.request_id, self.tenant, done.request.granted[self.tenant])

    @classmethod
    def fault(cls, state: State, event: Any) -> str | None:
        """Only the holder of the newest generation can give it back."""
        tenant = state.tenant(event.tenant)
        if tenant is None or tenant.dropped or tenant.holder != event.node:
            return "not-held"
        return None if tenant.newest == event.generation else "not-newest"

    @classmethod
    def change(cls, state: State, offset: int, event: Any, bound: Request) -> None:
        """Leave the tenant without a holder."""
        bound.granted[event.tenant] = event.generation
        state._hold(state._own(event.tenant), None)


def held(
    state: State, node: str, tenant: str, expected: int | None, node_generation: int | None = None
) -> int:
    """Return the newest generation of a tenant that this node holds.

    Raises RequestRefused `not-held`, `generation-not-newest` for a caller who believes in another one, or
    `stale-node` for one that has been started again elsewhere: it may not take what its successor holds.
    """
    if node_generation is not None:
        check_node(state, node, node_generation)
    found = state.tenant(tenant)
    if found is None or found.holder != node or found.newest is None:
        raise RequestRefused("not-held", f"{node} does not hold the tenant: {tenant}")
    check_expected(tenant, expected, found.newest)
    return found.newest
