"""Re-attach as the published storage engine calls it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from sexton.issuer.access import HOLDERS
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.base import Desk, Operation
from sexton.issuer.operations.re_attach import ReAttach
from sexton.schemas.errors import UsageError
from sexton.schemas.events import GenerationForm

__all__ = ["UpcallReAttach", "UpcallReAttachAnswer", "UpcallTenant"]


class UpcallTenant(Struct, gc=False):
    """A tenant in the answer to the published engine's re-attach."""

    id: str
    gen: int
    mode: str = "AttachedSingle"
    stripe_size: int = 32768


class UpcallReAttachAnswer(Struct):
    """The tenants that the node holds, with their new generations."""

    tenants: list[UpcallTenant]


class UpcallReAttach(Operation[UpcallReAttachAnswer]):
    """The published engine's re-attach; `register` and `empty_local_disk` are not needed to answer it."""

    node_id: int | str
    register: Any = None
    empty_local_disk: bool | None = None

    path = "/upcall/v1/re-attach"
    answer = UpcallReAttachAnswer
    roles = HOLDERS

    def acts_as(self) -> str | None:
        """Return the node, which may be named by its number."""
        return str(self.node_id)

    def carry_out(self, desk: Desk, deadline: Deadline) -> UpcallReAttachAnswer:
        """Re-attach; raises RequestRefused `other-form` as well: the answer has no place for its numbers."""
        granted = ReAttach(_node_of(self.node_id)).carry_out(desk, deadline, GenerationForm.FINAL)
        return UpcallReAttachAnswer([UpcallTenant(each.tenant, each.generation) for each in granted.tenants])


def _node_of(node_id: int | str) -> str:
    """Return the node that the published engine names; its numbers are u64."""
    if node_id == "" or (isinstance(node_id, int) and not 0 <= node_id < 2**64):
        raise UsageError(f"node_id is a number in 0..2^64-1 or a text that is not empty: {node_id!r}")
    return str(node_id)
