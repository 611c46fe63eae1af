"""What attach and re-attach share: numbers are handed out part by part, and answered once each part is valid.

Issue: end offsets read → proposal in Redis → event appended with those offsets → log read up to it → valid:
answer; void: Redis set to the log, and again. What has not been read back as valid was never issued, so a
crash or a lost answer at any step costs a number at most, never uses one twice. The end offsets come first:
read after the append they would cover what was written when a successor might have read the index already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sexton.issuer import wire
from sexton.issuer.access import HOLDERS
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.base import Changing, Desk
from sexton.issuer.state.binding import after, check_binding, check_in_time, identity
from sexton.issuer.state.grants import check_issuable, check_node, grant_fault
from sexton.issuer.state.state import Request, State, Tenant
from sexton.schemas import events
from sexton.schemas.errors import RequestRefused, UsageError
from sexton.schemas.events import GenerationForm, IssueOperation

__all__ = [
    "GRANTS_PER_EVENT",
    "Call",
    "Granted",
    "Issuing",
    "Part",
    "issue",
    "issue_part",
    "issued_event",
    "next_step",
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
    operation: IssueOperation
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


class Issuing(Changing[wire.Granted]):
    """A call that hands out generations: to a node, as its newest holder."""

    answer = wire.Granted
    roles = HOLDERS
    folds = (events.Issued, events.IssuedFirstForm)

    def identity(self) -> tuple[str, str]:
        """Return the request id and who calls: the node if nothing else is given."""
        return identity(self.request_id, self.caller, self.acts_as() or "")

    @classmethod
    def bound_as(cls, event: Any) -> str:
        """Return which of the two calls it was."""
        return str(event.operation.value)

    @classmethod
    def fault(cls, state: State, event: Any) -> str | None:
        """Only the newest generation of a node is given tenants, each exactly one number above its newest."""
        return _node_fault(state, event) or _grants_fault(state, event)

    @classmethod
    def change(cls, state: State, offset: int, event: Any, bound: Request) -> None:
        """Give the node its tenants: the windows before close where the new ones open."""
        form, issue = _form_of(event), state._issue(offset, event.node)
        for grant in event.grants:
            tenant = state._own(grant.tenant, form)
            state._add(tenant, issue)
            bound.granted[tenant.name] = grant.generation
            if tenant.holder != event.node:
                state._hold(tenant, event.node)

    @classmethod
    def numbers(cls, event: Any) -> int:
        """Return the number of grants."""
        return len(event.grants)

    weight = numbers


def issue(desk: Desk, call: Call, deadline: Deadline) -> wire.Granted:
    """Hand out what is asked for and return the answer, once every part of it was read back as valid."""
    with desk.timed("issue_seconds"):
        while True:
            ends = desk.log.read_ends(deadline)
            step = _step(desk, call)
            if isinstance(step, Part):
                issue_part(desk, call, step, ends, deadline)
                step = _step(desk, call)  # what was read back may be all
            if isinstance(step, Granted):
                return _answer(desk, step)


def _step(desk: Desk, call: Call) -> Granted | Part:
    with desk.log.state() as state:
        return next_step(state, call)


def issue_part(desk: Desk, call: Call, part: Part, ends: events.PartitionOffsets, deadline: Deadline) -> None:
    """Append one part of a call with end offsets that were read before, and tell Redis what came of it."""
    # A proposal only keeps issuers from asking for the same number. Lost with Redis, another may be made of
    # the number: the event that comes second in the log is void.
    grants = desk.witness.propose(part.tenants, deadline)
    event = issued_event(call, part, grants, ends, desk.now())
    if desk.log.append(event, part.number, deadline):
        # Before the answer. Where Redis fails here the number is issued all the same: the retry is answered
        # from the log, and who next compares the tenant brings Redis up to it.
        desk.witness.project(part.tenants, deadline)
    else:
        desk.witness.withdraw(part.tenants, deadline)


def _answer(desk: Desk, granted: Granted) -> wire.Granted:
    with desk.log.state() as state:
        tenants = [
            wire.GrantedTenant(name, generation, form.value)
            if (found := state.tenant(name)) and (form := found.form) is GenerationForm.FIRST
            else wire.GrantedTenant(name, generation)
            for name, generation in granted.generations.items()
        ]
    answer = wire.Granted(granted.log_offset, granted.request_id, tenants)
    if len(tenants) == 1:
        answer.tenant, answer.generation = tenants[0].tenant, tenants[0].generation
    return answer


def _node_fault(state: State, event: events.Issued | events.IssuedFirstForm) -> str | None:
    """Only the newest generation of a node is given tenants of the first form: a stale node must stop."""
    if isinstance(event, events.Issued):
        return None
    node = state.node(event.node)
    if node is None:
        return "node-not-registered"
    return None if node.newest == event.node_generation else "stale-node"


def _form_of(event: events.Issued | events.IssuedFirstForm) -> GenerationForm:
    return GenerationForm.FINAL if isinstance(event, events.Issued) else GenerationForm.FIRST


def _grants_fault(state: State, event: events.Issued | events.IssuedFirstForm) -> str | None:
    if len({grant.tenant for grant in event.grants}) != len(event.grants):
        return "tenant-twice"
    form = _form_of(event)
    held_by = event.node if event.operation is IssueOperation.RE_ATTACH else None
    for grant in event.grants:
        tenant = state.tenant(grant.tenant) or Tenant(grant.tenant, form=form)
        if form is GenerationForm.FINAL and tenant.form is GenerationForm.FIRST:
            return "first-form"
        if fault := grant_fault(tenant, grant.generation, grant.supersedes):
            return fault
        if held_by is not None and tenant.holder != held_by:
            return "not-held"
    return None


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
        check_issuable(state, tenant, call.expected)
    count = known.parts if known else -(-len(left) // GRANTS_PER_EVENT)
    missing = [part for part in range(count) if known is None or part not in known.offsets]
    return Part(left[: -(-len(left) // len(missing))], missing[0], count, node_generation)


def _given(state: State, known: Request) -> dict[str, int]:
    """Return what a call was given; of a re-attach in parts only what it still held at the last of them.

    What another call got in between the node does not hold by this one. The log alone decides, so that a
    retry gets the same answer.
    """
    if known.parts == 1 or known.operation != IssueOperation.RE_ATTACH:
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
    if known.operation != IssueOperation.RE_ATTACH:
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
    bound = (call.request_id, call.caller, call.operation, call.node)
    if part.node_generation is None:
        return events.Issued(*bound, part.number, part.count, grants, ends, now)
    generation = part.node_generation
    return events.IssuedFirstForm(*bound, generation, part.number, part.count, grants, ends, now)


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
