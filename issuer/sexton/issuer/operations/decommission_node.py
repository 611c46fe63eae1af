"""Decommission a node: it is gone for good, and what it has not committed is rejected and acknowledged."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from sexton.issuer.access import OPERATORS
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.base import Change, Desk, Done, Made
from sexton.issuer.state.state import Request, State
from sexton.issuer.state.transactions import Status
from sexton.issuer.wire import Name
from sexton.schemas import checks, events
from sexton.schemas.errors import RequestRefused

__all__ = ["DecommissionNode", "Decommissioned"]

_UNFINISHED = (Status.OPEN, Status.REJECT_PENDING)


class Decommissioned(Struct):
    """A node that starts and commits nothing any more."""

    log_offset: int
    request_id: str
    node: str


class DecommissionNode(Change[Decommissioned], forbid_unknown_fields=True):
    """End a node for good, whose credentials for the store were revoked at an instant with an offset.

    Its open and rejected transactions are rejected and acknowledged; its name is never used again. Refused
    until the revocation is old enough: a store may honour revoked credentials for a while.
    """

    node: Name
    credentials_revoked_at: Annotated[datetime, Meta(tz=True)]

    path = "/v1/transactions/decommission"
    answer = Decommissioned
    roles = OPERATORS
    folds = (events.NodeDecommissioned,)
    binding = "decommission-node"

    def acts_as(self) -> str:
        """Return no node's name: only an operator says so."""
        return ""

    def check(self) -> None:
        """Raise UsageError for a name that no node can have, and for what no log can hold as an instant."""
        checks.check_tenant(self.node)
        checks.check_instant(self.credentials_revoked_at)

    def carry_out(self, desk: Desk, deadline: Deadline) -> Decommissioned:
        """End the node.

        Raises RequestRefused: `revocation-too-recent`, `node-decommissioned`.
        """
        for_s = (desk.now() - self.credentials_revoked_at).total_seconds()
        if for_s < desk.revocation_delay_s:
            raise RequestRefused(
                "revocation-too-recent",
                f"the credentials of {self.node} have been revoked for {for_s:.0f} s,"
                f" {desk.revocation_delay_s:.0f} s are needed",
            )
        return super().carry_out(desk, deadline)

    def decide(self, state: State, made: Made) -> events.NodeDecommissioned:
        """End the node; raises RequestRefused `node-decommissioned` where that was done."""
        if self.node in state.decommissioned:
            raise RequestRefused(
                "node-decommissioned", f"the node was decommissioned: {self.node}", status=410
            )
        return events.NodeDecommissioned(
            made.request_id, made.caller, self.node, self.credentials_revoked_at, made.at
        )

    def answered(self, desk: Desk, done: Done, deadline: Deadline) -> Decommissioned:
        """Return where the log proves it."""
        return Decommissioned(done.log_offset, done.request_id, self.node)

    @classmethod
    def fault(cls, state: State, event: Any) -> str | None:
        """A node ends once."""
        return "node-decommissioned" if event.node in state.decommissioned else None

    @classmethod
    def change(cls, state: State, offset: int, event: Any, bound: Request) -> None:
        """Reject and acknowledge all that it has not committed, of every tenant."""
        state.decommissioned[event.node] = None
        for tenant in state:
            for each in tenant.transactions or ():
                if each.node == event.node and each.status in _UNFINISHED:
                    each.move(Status.REJECT_ACKNOWLEDGED, offset)
