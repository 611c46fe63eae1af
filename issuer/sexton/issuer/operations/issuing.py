"""What a call needs next, as a pure rule over the state: an answer, a refusal, or one more event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sexton.issuer.binding import after, check_binding, check_in_time
from sexton.issuer.state import Request, State
from sexton.schemas import events
from sexton.schemas.errors import RequestRefused, UsageError
from sexton.schemas.events import GenerationForm
from sexton.schemas.generations import MAX_NODE, MAX_PACKED_PART

__all__ = [
    "GRANTS_PER_EVENT",
    "Call",
    "Granted",
    "Part",
    "check_alive",
    "check_expected",
    "check_fence",
    "check_import",
    "check_node",
    "held",
    "issued_event",
    "next_step",
    "registration",
]

GRANTS_PER_EVENT = 10_000


@dataclass(frozen=True, slots=True)
class Granted:
    """Generations that were handed out: tenant -> generation, proven by the log up to `log_offset`."""

    request_id: str
    log_offset: int
    generations: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Call:
    """An issue call; `tenants` is None for a re-attach, which takes what the node holds.

    `form` is that of tenants which are new, in a re-attach the only one that the caller can take;
    `node_generation` the one that the caller has, if it has one.
    """

    request_id: str
    caller: str
    operation: events.IssueOperation
    node: str
    tenants: tuple[str, ...] | None
    expected: int | None = None
    form: GenerationForm | None = None
    node_generation: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """The part of an issue call that is appended next; `node_generation` for calls of the first form."""

    tenants: Sequence[str]
    number: int
    count: int
    node_generation: int | None = None


def next_step(state: State, call: Call) -> Granted | Part:
    """Return the answer once every part is valid, else the part to append next.

    Raises RequestRefused.
    """
    known = state.request(call.request_id)
    wanted = call.tenants if call.tenants is not None else state.held_by(call.node)
    if known is not None:
        binding = Request(call.caller, call.operation.value, call.node, known.parts)
        check_binding(known, binding, call.tenants, after(call.expected))
        if known.complete:
            return Granted(call.request_id, max(known.offsets.values()), _given(state, known))
        _check_not_overtaken(state, known)
    node_generation = _node_generation(state, call, wanted)
    if known is None and not wanted:
        return Granted(call.request_id, state.log_offset, {})
    check_in_time(state, call.request_id)
    granted = known.granted if known else {}
    left = [tenant for tenant in wanted if tenant not in granted]
    for tenant in left:
        _check_issuable(state, tenant, call.expected)
    count = known.parts if known else -(-len(left) // GRANTS_PER_EVENT)
    missing = [part for part in range(count) if known is None or part not in known.offsets]
    return Part(left[: -(-len(left) // len(missing))], missing[0], count, node_generation)


def _given(state: State, known: Request) -> dict[str, int]:
    """Return what a call was given; of a re-attach in parts only what it still held at the last of them.

    What another call got in between the node does not hold by this one. The log alone decides, so that a
    retry gets the same answer.
    """
    if known.parts == 1 or known.operation != events.IssueOperation.RE_ATTACH:
        return dict(known.granted)
    last = max(known.offsets.values())
    return {
        name: number for name, number in known.granted.items() if not _superseded(state, name, number, last)
    }


def _superseded(state: State, tenant: str, generation: int, below: int) -> bool:
    owner = state.tenant(tenant)
    following = owner.issue(generation + 1) if owner else None
    return following is not None and following.log_offset < below


def _check_not_overtaken(state: State, known: Request) -> None:
    """Refuse to continue with a re-attach where a later one of the same node was carried out whole.

    Only then: each refusal means that another call has its answer, so that no two keep each other from one.
    """
    if known.operation != events.IssueOperation.RE_ATTACH:
        return
    lost = [tenant for tenant, generation in known.granted.items() if state.newest(tenant) != generation]
    for _, other in state.requests if lost else ():
        is_whole = other.complete and other.operation == known.operation and other.node == known.node
        if is_whole and any(other.granted.get(tenant) == state.newest(tenant) for tenant in lost):
            raise RequestRefused(
                "overtaken",
                f"a later re-attach of {known.node} was carried out whole before this one",
                hint="call again under a new request id",
            )


def issued_event(
    call: Call, part: Part, grants: Sequence[events.Grant], ends: events.PartitionOffsets, now: datetime
) -> events.Issued | events.IssuedFirstForm:
    """Return the event of one part of a call."""
    if part.node_generation is None:
        return events.Issued(
            request_id=call.request_id,
            caller=call.caller,
            operation=call.operation,
            node=call.node,
            part=part.number,
            parts=part.count,
            grants=grants,
            ends=ends,
            issued_at=now,
        )
    return events.IssuedFirstForm(
        request_id=call.request_id,
        caller=call.caller,
        operation=call.operation,
        node=call.node,
        node_generation=part.node_generation,
        part=part.number,
        parts=part.count,
        grants=grants,
        ends=ends,
        issued_at=now,
    )


def _node_generation(state: State, call: Call, wanted: Sequence[str]) -> int | None:
    """Return the node generation that the event has to name, None for an event of the final form."""
    if call.node_generation is not None:
        check_node(state, call.node, call.node_generation)
    if call.tenants is None:
        if call.form is not None:
            _form(state, call, wanted)
        node = state.node(call.node)
        return node.newest if node else None
    return check_node(state, call.node, None) if _form(state, call, wanted) is GenerationForm.FIRST else None


def _form(state: State, call: Call, wanted: Sequence[str]) -> GenerationForm:
    known = {name: tenant.form for name in wanted if (tenant := state.tenant(name)) is not None}
    other = [name for name, form in known.items() if call.form not in (None, form)]
    if other:
        raise RequestRefused("other-form", f"the tenant is of the {known[other[0]]} form: {other[0]}")
    if len(known) < len(wanted):
        default = GenerationForm.FINAL if call.node_generation is None else GenerationForm.FIRST
        new = call.form or default
        if new is GenerationForm.FINAL and GenerationForm.FIRST in known.values():
            raise UsageError("a new tenant beside tenants of the first form: ask for it by itself")
        return new
    return GenerationForm.FIRST if GenerationForm.FIRST in known.values() else GenerationForm.FINAL


def check_node(state: State, node: str, node_generation: int | None) -> int:
    """Return the newest generation of a registered node.

    Raises RequestRefused `node-not-registered`, or `stale-node` for a caller that has another generation: it
    has been started again elsewhere and must stop.
    """
    found = state.node(node)
    if found is None or found.newest is None:
        raise RequestRefused("node-not-registered", f"the node has not registered: {node}")
    if node_generation is not None and node_generation != found.newest:
        raise RequestRefused(
            "stale-node",
            f"the newest generation of node {node} is {found.newest}, not {node_generation}: stop",
        )
    return found.newest


def registration(state: State, node: str, number: int | None, expected: int | None) -> events.ImportedNode:
    """Return the number and the next generation of a node that registers.

    A node that gives no number when it registers first takes the lowest that is free. Raises RequestRefused:
    `node-number-fixed`, `node-number-taken`, `generation-not-newest`, `generations-exhausted`.
    """
    found = state.node(node)
    newest = found.newest if found else None
    check_expected(node, expected, newest)
    if found is not None:
        if number not in (None, found.number):
            raise RequestRefused("node-number-fixed", f"the number of {node} is {found.number}, not {number}")
        number = found.number
    elif number is None:
        number = next((n for n in range(MAX_NODE + 1) if state.numbered(n) is None), None)
    elif (owner := state.numbered(number)) is not None:
        raise RequestRefused("node-number-taken", f"the number belongs to node {owner}: {number}")
    if number is None or newest == MAX_PACKED_PART:
        raise RequestRefused("generations-exhausted", f"no number is left for the node: {node}")
    return events.ImportedNode(node, number, 1 if newest is None else newest + 1)


def check_fence(state: State, tenant: str, expected: int | None) -> None:
    """Raise RequestRefused when a tenant cannot be fenced."""
    if not state.known(tenant):
        raise RequestRefused("unknown-tenant", f"the log does not know the tenant: {tenant}", status=404)
    _check_issuable(state, tenant, expected)


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


def check_alive(state: State, tenant: str) -> None:
    """Raise RequestRefused when the tenant was dropped."""
    found = state.tenant(tenant)
    if found is not None and found.dropped:
        raise RequestRefused("tenant-dropped", f"the tenant was dropped: {tenant}", status=410)


def _check_issuable(state: State, tenant: str, expected: int | None) -> None:
    check_alive(state, tenant)
    found, newest = state.tenant(tenant), state.newest(tenant)
    if found is not None and newest == found.largest:
        raise RequestRefused("generations-exhausted", f"the tenant has used every generation: {tenant}")
    check_expected(tenant, expected, newest)


def check_expected(tenant: str, expected: int | None, newest: int | None) -> None:
    """Raise RequestRefused when the caller believes another generation to be the newest (I-12)."""
    if expected is not None and expected != (newest or 0):
        raise RequestRefused(
            "generation-not-newest",
            f"the newest generation of {tenant} is {'none' if newest is None else newest}, not {expected}",
        )


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
