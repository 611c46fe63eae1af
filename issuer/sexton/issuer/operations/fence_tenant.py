"""Fence: supersede a tenant's generation by one that no node holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sexton.issuer.access import OPERATORS
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.base import Change, Desk, Done, Made
from sexton.issuer.state.binding import after
from sexton.issuer.state.grants import check_issuable, grant_fault
from sexton.issuer.state.state import Request, State
from sexton.issuer.wire import Ended, Name
from sexton.schemas import events
from sexton.schemas.errors import RequestRefused

__all__ = ["FenceTenant"]


class FenceTenant(Change[Ended], forbid_unknown_fields=True):
    """Supersede a tenant's generation by one that no node holds."""

    tenant: Name
    generation: int | None = None

    path = "/v1/fence-tenant"
    answer = Ended
    roles = OPERATORS
    folds = (events.Fenced,)
    hands_out = 1
    binding = "fence"

    def numbered(self) -> Sequence[str]:
        """Return the tenant."""
        return [self.tenant]

    def leads_to(self) -> int | None:
        """Return the generation after the expected one."""
        return after(self.generation)

    def decide(self, state: State, made: Made) -> events.Fenced:
        """Give the tenant's next number to nobody.

        The holder may continue reading and writing, but what it asks to be deleted from now on is stale, and
        its re-attach does not bring the tenant back. The next attach takes the generation after. Raises
        RequestRefused: `unknown-tenant`, `tenant-dropped`, `generation-not-newest`, `generations-exhausted`.
        """
        name, newest = self.tenant, state.newest(self.tenant)
        if not state.known(name):
            raise RequestRefused("unknown-tenant", f"the log does not know the tenant: {name}", status=404)
        check_issuable(state, name, self.generation)
        due = 1 if newest is None else newest + 1
        return events.Fenced(made.request_id, made.caller, name, due, newest, made.ends, made.at)

    def answered(self, desk: Desk, done: Done, deadline: Deadline) -> Ended:
        """Return the generation that nobody holds."""
        return Ended(done.log_offset, done.request_id, self.tenant, done.request.granted[self.tenant])

    @classmethod
    def fault(cls, state: State, event: Any) -> str | None:
        """The rules of every number; a tenant that the log does not know has nobody to be fenced."""
        tenant = state.tenant(event.tenant)
        return grant_fault(tenant, event.generation, event.supersedes) if tenant else "unknown-tenant"

    @classmethod
    def change(cls, state: State, offset: int, event: Any, bound: Request) -> None:
        """Issue the number to nobody."""
        bound.granted[event.tenant] = event.generation
        tenant = state._own(event.tenant)
        state._add(tenant, state._issue(offset, None))
        state._hold(tenant, None)
