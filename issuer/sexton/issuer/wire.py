"""What travels over HTTP, decoded and encoded by msgspec: what several operations share.

What comes by the ten thousand holds nothing that could lead back to it, so the garbage collector need not
verify it (`gc=False`). An unknown field is refused: a misspelt `at_least` must not turn into a weaker
question.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from sexton.schemas.errors import UsageError

__all__ = [
    "MAX_SUBJECTS",
    "BarrierAnswer",
    "Ended",
    "Form",
    "Granted",
    "GrantedTenant",
    "Index",
    "Name",
    "NodeView",
    "Offset",
    "Problem",
    "Span",
    "TenantView",
    "decode",
]

_T = TypeVar("_T")
MAX_SUBJECTS = 10_000
Form = Literal["final", "first"]
Name = Annotated[str, Meta(min_length=1, max_length=512)]
Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Index = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class GrantedTenant(Struct, gc=False):
    """A tenant and its new generation; `form` only for the first form."""

    tenant: str
    generation: int
    form: str | UnsetType = UNSET


class Granted(Struct, omit_defaults=True):
    """Generations handed out; `tenant` and `generation` repeat a single one."""

    log_offset: int
    request_id: str
    tenants: list[GrantedTenant]
    tenant: str | UnsetType = UNSET
    generation: int | UnsetType = UNSET

    @property
    def generations(self) -> dict[str, int]:
        """Tenant -> generation."""
        return {each.tenant: each.generation for each in self.tenants}


class Ended(Struct):
    """A tenant was detached, fenced or dropped at this place of the log."""

    log_offset: int
    request_id: str
    tenant: str
    generation: int | None


class BarrierAnswer(Struct):
    """A barrier: what stands below `ends` was written before it."""

    log_offset: int
    topic_id: str
    ends: list[int]


class Span(Struct, omit_defaults=True):
    """One generation in a tenant's history, with its window in each partition."""

    generation: int
    log_offset: int
    node: str | None
    start: list[int] = field(name="from")
    until: list[int] | UnsetType = UNSET


class TenantView(Struct):
    """A tenant as of a log offset; `history` starts with the newest generation.

    `imported` is the log offset of the import, if it came by one. With it, and without a generation, the
    tenant is generation-less: its objects have no suffix.
    """

    log_offset: int
    tenant: str
    generation: int | None
    holder: str | None
    dropped: bool
    history: list[Span]
    form: str = "final"
    imported: int | UnsetType = UNSET


class NodeView(Struct):
    """A node of the first form as of a log offset; `history` starts with its newest generation."""

    log_offset: int
    node: str
    number: int
    node_generation: int | None
    history: list[Span]


class Problem(Struct, omit_defaults=True):
    """RFC 9457 problem details; `type` is stable."""

    type: str
    title: str
    status: int
    detail: str
    hint: str | UnsetType = UNSET


def decode(decoder: msgspec.json.Decoder[_T], raw: bytes) -> _T:
    """Return what a body holds; raises UsageError for one that is not what the call takes."""
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(str(error)) from error
    except RecursionError as error:
        raise UsageError("the body is nested too deeply") from error
