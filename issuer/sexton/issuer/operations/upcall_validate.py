"""Validate as the published storage engine calls it: no positions, only what is the newest now."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct

from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.base import Asking, Desk
from sexton.issuer.state.state import State
from sexton.schemas.events import GenerationForm

__all__ = ["UpcallSubject", "UpcallValid", "UpcallValidate", "UpcallValidateAnswer"]


class UpcallSubject(Struct, gc=False):
    """A tenant and the generation to validate."""

    id: str
    gen: int


class UpcallValid(Struct, gc=False):
    """Whether a generation is the newest."""

    id: str
    valid: bool


class UpcallValidateAnswer(Struct):
    """The verdicts, those of unknown tenants left out."""

    tenants: list[UpcallValid]


class UpcallValidate(Asking[UpcallValidateAnswer]):
    """The published engine's validate."""

    tenants: Annotated[list[UpcallSubject], Meta(max_length=100_000)]

    path = "/upcall/v1/validate"
    answer = UpcallValidateAnswer

    def asks_about(self, state: State) -> Iterable[str | None]:
        """Return the nodes that the log has for the generations."""
        return (state.issued_to(each.id, each.gen) for each in self.tenants)

    def carry_out(self, desk: Desk, deadline: Deadline) -> UpcallValidateAnswer:
        """Tell for each known tenant whether the generation is the newest, behind a barrier of its own.

        Of a tenant of the first form it never is: nothing says which generation of its node is meant.
        """
        desk.confirm(deadline)
        desk.witness.agree({each.id for each in self.tenants}, deadline)
        with desk.log.state() as state:
            found = [(state.tenant(each.id), each.gen) for each in self.tenants]
            verdicts = [
                UpcallValid(tenant.name, tenant.newest == generation and tenant.form is GenerationForm.FINAL)
                for tenant, generation in found
                if tenant is not None
            ]
        newest = sum(verdict.valid for verdict in verdicts)
        desk.count_subjects(len(self.tenants), newest=newest, never=len(verdicts) - newest)
        return UpcallValidateAnswer(verdicts)
