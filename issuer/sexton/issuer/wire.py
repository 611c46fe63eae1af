"""What travels over HTTP: requests and answers, decoded and encoded by msgspec.

What comes by the ten thousand holds nothing that could lead back to it, so the garbage collector need not
verify it (`gc=False`). An unknown field is refused: a misspelt `at_least` must not turn into a weaker
question.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

__all__ = [
    "MAX_SUBJECTS",
    "Answer",
    "Attach",
    "Barrier",
    "BarrierAnswer",
    "Detach",
    "Drop",
    "Ended",
    "Ends",
    "FenceTenant",
    "Granted",
    "GrantedTenant",
    "Import",
    "ImportedAnswer",
    "ImportedNode",
    "ImportedTenant",
    "NodeView",
    "Problem",
    "ReAttach",
    "RegisterNode",
    "Registered",
    "Span",
    "Subject",
    "TenantView",
    "UpcallReAttach",
    "UpcallReAttachAnswer",
    "UpcallSubject",
    "UpcallTenant",
    "UpcallValid",
    "UpcallValidate",
    "UpcallValidateAnswer",
    "Validate",
    "Validation",
]

MAX_SUBJECTS = 10_000
Form = Literal["final", "first"]
Name = Annotated[str, Meta(min_length=1, max_length=512)]
Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Index = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Attach(Struct, forbid_unknown_fields=True):
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
    request_id: Name | None = None
    caller: Name | None = None


class ReAttach(Struct, forbid_unknown_fields=True):
    """Give a node new generations of every tenant that it holds."""

    node: Name
    node_generation: int | None = None
    request_id: Name | None = None
    caller: Name | None = None


class Detach(Struct, forbid_unknown_fields=True):
    """Take a tenant from the node that holds it."""

    node: Name
    tenant: Name
    generation: int | None = None
    node_generation: int | None = None
    request_id: Name | None = None
    caller: Name | None = None


class Drop(Struct, forbid_unknown_fields=True):
    """End a tenant for good."""

    tenant: Name
    request_id: Name | None = None
    caller: Name | None = None


class RegisterNode(Struct, forbid_unknown_fields=True):
    """Give a node of the first form its next node generation; `number` is fixed by its first call."""

    node: Name
    number: Annotated[int, Meta(ge=0, le=0xFFFF)] | None = None
    generation: int | None = None
    request_id: Name | None = None
    caller: Name | None = None


class FenceTenant(Struct, forbid_unknown_fields=True):
    """Supersede a tenant's generation by one that no node holds."""

    tenant: Name
    generation: int | None = None
    request_id: Name | None = None
    caller: Name | None = None


class ImportedTenant(Struct, forbid_unknown_fields=True, gc=False):
    """A tenant at the generation that it has; null is generation-less, which is below 0."""

    tenant: Name
    generation: int | None
    form: Form = "final"
    node: Name | None = None


class ImportedNode(Struct, forbid_unknown_fields=True, gc=False):
    """A node of the first form with its number and the node generation that it has."""

    node: Name
    number: Annotated[int, Meta(ge=0, le=0xFFFF)]
    node_generation: Annotated[int, Meta(ge=0, le=0xFFFFFF)]


class Import(Struct, forbid_unknown_fields=True):
    """Start tenants and nodes that the log does not know, all of them or none."""

    tenants: Annotated[list[ImportedTenant], Meta(max_length=MAX_SUBJECTS)] = []
    nodes: Annotated[list[ImportedNode], Meta(max_length=MAX_SUBJECTS)] = []
    request_id: Name | None = None
    caller: Name | None = None


class Subject(Struct, forbid_unknown_fields=True, gc=False):
    """A generation whose window in one intents partition is asked for."""

    tenant: str
    generation: int
    partition: Index
    node: str | None = None
    node_generation: int | None = None


class Validate(Struct, forbid_unknown_fields=True):
    """Up to 10,000 subjects; the answer is as of `at_least` or a later log offset."""

    subjects: Annotated[list[Subject], Meta(max_length=MAX_SUBJECTS)]
    at_least: Offset | None = None


class Ends(Struct, forbid_unknown_fields=True):
    """One offset for each partition of a topic."""

    topic_id: str
    offsets: list[Offset]


class Barrier(Struct, forbid_unknown_fields=True):
    """Make a barrier; `unsettled` holds the oldest positions without a final outcome."""

    unsettled: Ends | None = None


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


class Ended(Struct):
    """A tenant was detached, fenced or dropped at this place of the log."""

    log_offset: int
    request_id: str
    tenant: str
    generation: int | None


class Registered(Struct):
    """A node's number and its new node generation."""

    log_offset: int
    request_id: str
    node: str
    number: int
    node_generation: int


class ImportedAnswer(Struct):
    """So many tenants and nodes are known from this place of the log on."""

    log_offset: int
    request_id: str
    tenants: int
    nodes: int


class Answer(Struct, omit_defaults=True, gc=False):
    """A subject's window: `until` is absent while the generation is newest, `from` when there is no window.

    Without both the generation was never issued; with `until` alone it was superseded and its window, which
    ended at that offset or below it, is forgotten. Subjects of the first form have two windows, which hold
    together: `node_from` and `node_until` are those of the node generation, and read the same way. With
    `node_until` the node is stale.
    """

    tenant: str
    generation: int
    partition: int
    newest: bool
    start: int | UnsetType = field(name="from", default=UNSET)
    until: int | UnsetType = UNSET
    node: str | UnsetType = UNSET
    node_generation: int | UnsetType = UNSET
    node_from: int | UnsetType = UNSET
    node_until: int | UnsetType = UNSET


class Validation(Struct):
    """The answers in the order of the subjects, those of unknown tenants left out."""

    log_offset: int
    topic_id: str
    answers: list[Answer]


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


class UpcallReAttach(Struct):
    """The published engine's re-attach; `register` and `empty_local_disk` are not needed to answer it."""

    node_id: int | str
    register: Any = None
    empty_local_disk: bool | None = None


class UpcallTenant(Struct, gc=False):
    """A tenant in the answer to the published engine's re-attach."""

    id: str
    gen: int
    mode: str = "AttachedSingle"
    stripe_size: int = 32768


class UpcallReAttachAnswer(Struct):
    """The tenants that the node holds, with their new generations."""

    tenants: list[UpcallTenant]


class UpcallSubject(Struct, gc=False):
    """A tenant and the generation to validate."""

    id: str
    gen: int


class UpcallValidate(Struct):
    """The published engine's validate."""

    tenants: Annotated[list[UpcallSubject], Meta(max_length=100_000)]


class UpcallValid(Struct, gc=False):
    """Whether a generation is the newest."""

    id: str
    valid: bool


class UpcallValidateAnswer(Struct):
    """The verdicts, those of unknown tenants left out."""

    tenants: list[UpcallValid]
