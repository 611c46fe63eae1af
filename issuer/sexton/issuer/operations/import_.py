"""Import: start tenants and nodes at the numbers that they have elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from sexton.issuer.access import OPERATORS
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.base import Change, Desk, Done, Made
from sexton.issuer.state.binding import require_same
from sexton.issuer.state.grants import check_node
from sexton.issuer.state.state import Request, State
from sexton.issuer.wire import MAX_SUBJECTS, Form, Name
from sexton.schemas import checks, events
from sexton.schemas.errors import RequestRefused, UsageError
from sexton.schemas.events import GenerationForm
from sexton.schemas.generations import MAX_GENERATION, MAX_NODE, MAX_PACKED_PART

__all__ = [
    "Import",
    "ImportedAnswer",
    "ImportedNode",
    "ImportedTenant",
    "check_import",
    "check_once",
    "check_same_import",
]


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


class ImportedAnswer(Struct):
    """So many tenants and nodes are known from this place of the log on."""

    log_offset: int
    request_id: str
    tenants: int
    nodes: int


class Import(Change[ImportedAnswer], forbid_unknown_fields=True):
    """Start tenants and nodes that the log does not know, all of them or none."""

    tenants: Annotated[list[ImportedTenant], Meta(max_length=MAX_SUBJECTS)] = field(default_factory=list)
    nodes: Annotated[list[ImportedNode], Meta(max_length=MAX_SUBJECTS)] = field(default_factory=list)

    path = "/v1/import"
    answer = ImportedAnswer
    roles = OPERATORS
    folds = (events.Imported,)
    binding = "import"

    def check(self) -> None:
        """Raise UsageError for rows that are named twice, or that their forms have no room for."""
        for row in self.tenants:
            _check_tenant(row)
        check_once("tenant", [row.tenant for row in self.tenants])
        check_once("node", [row.node for row in self.nodes])
        check_once("node number", [row.number for row in self.nodes])

    def numbered(self) -> Sequence[str]:
        """Return the tenants."""
        return [row.tenant for row in self.tenants]

    def decide(self, state: State, made: Made) -> events.Imported:
        """Start tenants, and nodes of the first form, at the numbers that they have elsewhere.

        Raises RequestRefused: `tenant-known`, `node-known`, `node-not-registered`.
        """
        tenants, nodes = self._rows()
        check_import(state, tenants, nodes)
        return events.Imported(made.request_id, made.caller, 0, 1, tenants, nodes, made.ends, made.at)

    def answered(self, desk: Desk, done: Done, deadline: Deadline) -> ImportedAnswer:
        """Return how many were started; raises RequestRefused if the request id imported something else."""
        if not done.is_ours:
            event = desk.log.event_at(done.log_offset, deadline)
            check_same_import(done.request, event, *self._rows())
        return ImportedAnswer(done.log_offset, done.request_id, len(self.tenants), len(self.nodes))

    @classmethod
    def fault(cls, state: State, event: Any) -> str | None:
        """An import never touches what the log knows."""
        return _nodes_fault(state, event.nodes) or _tenants_fault(state, event)

    @classmethod
    def change(cls, state: State, offset: int, event: Any, bound: Request) -> None:
        """Start the nodes, then the tenants that they hold."""
        for each in event.nodes:
            node = state._enrol(each.node, each.number, each.generation)
            state._add(node, state._issue(offset, each.node))
        for row in event.tenants:
            tenant = state._own(row.tenant, row.form)
            tenant.imported = offset
            if row.generation is not None:
                tenant.first = row.generation
                state._add(tenant, state._issue(offset, row.node))
                bound.granted[row.tenant] = row.generation
            state._hold(tenant, row.node)

    @classmethod
    def weight(cls, event: Any) -> int:
        """Return the number of tenants."""
        return len(event.tenants)

    def _rows(self) -> tuple[list[events.ImportedTenant], list[events.ImportedNode]]:
        return [
            events.ImportedTenant(row.tenant, GenerationForm(row.form), row.generation, row.node)
            for row in self.tenants
        ], [events.ImportedNode(row.node, row.number, row.node_generation) for row in self.nodes]


def check_import(
    state: State, tenants: Sequence[events.ImportedTenant], nodes: Sequence[events.ImportedNode]
) -> None:
    """Raise RequestRefused when the log knows one of them already, or a holder is no registered node.

    Raises UsageError when there is nothing to import.
    """
    if not tenants and not nodes:
        raise UsageError("nothing to import: give tenants, nodes or both")
    known = [row.tenant for row in tenants if state.known(row.tenant)]
    if known:
        raise RequestRefused("tenant-known", f"the log knows {len(known)} of the tenants: {known[0]}")
    numbers = {state.numbered(row.number) for row in nodes} | {
        row.node for row in nodes if state.node(row.node)
    }
    if taken := numbers - {None}:
        raise RequestRefused(
            "node-known", f"the log knows the node, or one with its number: {min(map(str, taken))}"
        )
    added = {row.node for row in nodes}
    for row in tenants:
        if row.form is GenerationForm.FIRST and row.node is not None and row.node not in added:
            check_node(state, row.node, None)


def check_same_import(
    known: Request,
    event: events.GenerationEvent | None,
    tenants: Sequence[events.ImportedTenant],
    nodes: Sequence[events.ImportedNode],
) -> None:
    """Raise RequestRefused when a known request id imported something else.

    `event` is what the log has where the id was carried out, None where the log is cut off: then only the
    generations that are kept with the id can be compared.
    """
    if isinstance(event, events.Imported):
        require_same(_by_name(event.tenants, event.nodes) == _by_name(tenants, nodes))
    else:
        generations = {row.tenant: row.generation for row in tenants if row.generation is not None}
        require_same(known.granted == generations)


def _by_name(
    tenants: Sequence[events.ImportedTenant], nodes: Sequence[events.ImportedNode]
) -> tuple[dict[str, events.ImportedTenant], dict[str, events.ImportedNode]]:
    return {row.tenant: row for row in tenants}, {row.node: row for row in nodes}


def _check_tenant(row: ImportedTenant) -> None:
    checks.check_tenant(row.tenant)
    largest = _largest(row.form)
    if row.generation is not None and not 0 <= row.generation <= largest:
        asked = f"{row.tenant} {row.generation}"
        raise UsageError(f"a generation of the {row.form} form is 0 to {largest}: {asked}")


def _largest(form: str) -> int:
    return MAX_GENERATION if form == GenerationForm.FINAL else MAX_PACKED_PART


def check_once(what: str, names: Sequence[object]) -> None:
    """Raise UsageError when one of them is named twice."""
    if len(set(names)) != len(names):
        raise UsageError(f"a {what} is named twice")


def _nodes_fault(state: State, nodes: Sequence[events.ImportedNode]) -> str | None:
    if not len({n.node for n in nodes}) == len({n.number for n in nodes}) == len(nodes):
        return "node-twice"
    for node in nodes:
        if state.node(node.node) is not None:
            return "node-known"
        if state.numbered(node.number) is not None:
            return "number-taken"
        if not 0 <= node.number <= MAX_NODE or not 0 <= node.generation <= MAX_PACKED_PART:
            return "out-of-range"
    return None


def _tenants_fault(state: State, event: events.Imported) -> str | None:
    if len({row.tenant for row in event.tenants}) != len(event.tenants):
        return "tenant-twice"
    added = {node.node for node in event.nodes}
    for row in event.tenants:
        if state.known(row.tenant):
            return "tenant-known"
        if row.form is GenerationForm.TRANSACTIONS:
            return "other-form"
        if row.generation is not None and not 0 <= row.generation <= _largest(row.form):
            return "out-of-range"
        registered = row.node is None or row.node in added or state.node(row.node) is not None
        if row.form is GenerationForm.FIRST and not registered:
            return "node-not-registered"
    return None
