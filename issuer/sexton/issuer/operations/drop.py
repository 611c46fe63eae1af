"""Drop: end a tenant for good."""

from __future__ import annotations

from typing import Any

from sexton.issuer.access import OPERATORS
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.base import Change, Desk, Done, Made
from sexton.issuer.state.grants import check_alive
from sexton.issuer.state.state import Request, State
from sexton.issuer.wire import Ended, Name
from sexton.schemas import checks, events

__all__ = ["Drop"]


class Drop(Change[Ended], forbid_unknown_fields=True):
    """End a tenant for good."""

    tenant: Name

    path = "/v1/drop"
    answer = Ended
    roles = OPERATORS
    folds = (events.Dropped,)
    binding = "drop"

    def check(self) -> None:
        """Raise UsageError for a name that no tenant can have."""
        checks.check_tenant(self.tenant)

    def decide(self, state: State, made: Made) -> events.Dropped:
        """End the tenant: nothing is issued for it afterwards; raises RequestRefused `tenant-dropped`."""
        check_alive(state, self.tenant)
        return events.Dropped(made.request_id, made.caller, self.tenant, made.at)

    def answered(self, desk: Desk, done: Done, deadline: Deadline) -> Ended:
        """Return the last generation, None if there never was one."""
        generation = done.request.granted[self.tenant] or None
        return Ended(done.log_offset, done.request_id, self.tenant, generation)

    @classmethod
    def fault(cls, state: State, event: Any) -> str | None:
        """A tenant ends once."""
        known = state.tenant(event.tenant)
        return "dropped" if known is not None and known.dropped else None

    @classmethod
    def change(cls, state: State, offset: int, event: Any, bound: Request) -> None:
        """End the tenant, which the log may not have known."""
        # The tenant stays known for ever: forgotten, its name would begin at 1 again, with numbers that old
        # intents carry. Its last window stays open, so that what it asked to delete is still deleted.
        tenant = state._own(event.tenant)
        bound.granted[tenant.name] = tenant.newest or 0
        state._hold(tenant, None)
        tenant.dropped = True
