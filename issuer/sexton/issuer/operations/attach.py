"""Attach: give a node one tenant or several, each under its next generation."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sexton.issuer import wire
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.base import Desk
from sexton.issuer.operations.issuing import Call, Issuing, issue
from sexton.issuer.wire import MAX_SUBJECTS, Form, Name
from sexton.schemas import checks
from sexton.schemas.errors import UsageError
from sexton.schemas.events import GenerationForm, IssueOperation

__all__ = ["Attach"]


class Attach(Issuing, forbid_unknown_fields=True):
    """Give a node one tenant or several; `generation`, if given, is the one the caller expects to be the
    newest.

    `form` is that of tenants which are new; without it they take the first form if the call names a node
    generation, else the final form.
    """

    node: Name
    tenant: Name | None = None
    tenants: Annotated[list[Name], Meta(min_length=1, max_length=MAX_SUBJECTS)] | None = None
    generation: int | None = None
    form: Form | None = None
    node_generation: int | None = None

    path = "/v1/attach"

    def carry_out(self, desk: Desk, deadline: Deadline) -> wire.Granted:
        """Give a node the tenants that it asks for.

        Raises RequestRefused: `tenant-dropped`, `generation-not-newest`, `request-id-conflict`,
        `generations-exhausted`; of the first form also `node-not-registered`, `stale-node`, `other-form`.
        """
        if (self.tenant is None) == (self.tenants is None):
            raise UsageError("give either tenant or tenants")
        tenants = (self.tenant,) if self.tenant is not None else tuple(self.tenants or ())
        if len(set(tenants)) != len(tenants):
            raise UsageError("a tenant is named twice")
        if self.generation is not None and len(tenants) != 1:
            raise UsageError("generation goes with a single tenant")
        for tenant in tenants:
            checks.check_tenant(tenant)
        form = None if self.form is None else GenerationForm(self.form)
        call = Call(
            *self.identity(),
            IssueOperation.ATTACH,
            self.node,
            tenants,
            self.generation,
            form,
            self.node_generation,
        )
        return issue(desk, call, deadline)
