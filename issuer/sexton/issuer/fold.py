"""The pure rule of the generations log: fold its events, in order, into who holds what and since where.

`apply(state, offset, event)` says whether an event is valid or void. A void event changes no tenant, for
every reader, for ever; all readers agree because the rule looks at nothing but the log. End offsets are the
exception: they are facts about the intents topic, read before the event was appended, so a void event's end
offsets still raise the running maximum that closes windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sexton.issuer.state import Issue, Node, Request, State, Tenant
from sexton.schemas import events
from sexton.schemas.errors import LogBroken
from sexton.schemas.events import GenerationForm
from sexton.schemas.generations import MAX_GENERATION, MAX_NODE, MAX_PACKED_PART

__all__ = [
    "FORMAT",
    "VALID",
    "Issue",
    "Node",
    "Request",
    "State",
    "Tenant",
    "Valid",
    "Verdict",
    "Void",
    "apply",
]

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Valid:
    """The event counts."""


@dataclass(frozen=True, slots=True)
class Void:
    """The event changes no tenant; `reason` is a stable code."""

    reason: str


Verdict = Valid | Void
VALID = Valid()


def apply(state: State, offset: int, event: events.GenerationEvent) -> Verdict:
    """Apply the event at `offset`, change the state and say whether the event is valid.

    Raises LogBroken when the log cannot be folded: a gap in the offsets, a first event that is not Genesis,
    a format or a kind of event that this version does not know. Skipping any of them could hand a number out
    twice.
    """
    if offset != state.next_offset:
        raise LogBroken(f"gap in the generations log: expected offset {state.next_offset}, found {offset}")
    if state.genesis is None and not isinstance(event, events.Genesis):
        raise LogBroken(f"the generations log starts with {type(event).__name__}, not with Genesis")
    verdict = _judge(state, offset, event)
    state.next_offset = offset + 1
    return verdict


def _judge(state: State, offset: int, event: events.GenerationEvent) -> Verdict:
    match event:
        case events.Issued() | events.IssuedFirstForm():
            return _issued(state, offset, event)
        case events.Barrier():
            return _barrier(state, event)
        case events.NodeRegistered():
            return _registered(state, offset, event)
        case events.Detached():
            return _detached(state, offset, event)
        case events.Fenced():
            return _fenced(state, offset, event)
        case events.Imported():
            return _imported(state, offset, event)
        case events.Dropped():
            return _dropped(state, offset, event)
        case events.Genesis():
            return _genesis(state, event)
    raise LogBroken(f"an event that this version does not know: {type(event).__name__}")


def _genesis(state: State, event: events.Genesis) -> Verdict:
    if event.format != FORMAT:
        raise LogBroken(f"the log has a format that this version does not know: {event.format}")
    if state.genesis is not None:
        return Void("second-genesis")
    state.genesis = event
    return VALID


def _barrier(state: State, event: events.Barrier) -> Verdict:
    if not state._raise_high(event.ends):
        return Void("other-intents-topic")
    if event.unsettled is not None and _is_possible(event.unsettled, event.ends):
        state.cuts.settle(event.unsettled.offsets)
    return VALID


def _is_possible(unsettled: events.PartitionOffsets, ends: events.PartitionOffsets) -> bool:
    """A position that did not exist yet cannot be settled: who claims it may not cut what is still needed."""
    known = unsettled.topic_id == ends.topic_id and len(unsettled.offsets) <= len(ends.offsets)
    return known and all(0 <= at <= end for at, end in zip(unsettled.offsets, ends.offsets, strict=False))


# --- generations of tenants ---------------------------------------------------------------------------------


def _issued(state: State, offset: int, event: events.Issued | events.IssuedFirstForm) -> Verdict:
    if not state._raise_high(event.ends):
        return Void("other-intents-topic")
    request = Request(event.caller, event.operation.value, event.node, event.parts)
    reason = _request_fault(state, event.request_id, request, event.part)
    reason = reason or _node_fault(state, event) or _grants_fault(state, event)
    if reason:
        return Void(reason)
    form = GenerationForm.FINAL if isinstance(event, events.Issued) else GenerationForm.FIRST
    request = state._bind(event.request_id, request, event.part, offset, len(event.grants))
    issue = Issue(offset, event.node, state.high)
    for grant in event.grants:
        tenant = state._own(grant.tenant, form)
        state._add(tenant, issue)
        request.granted[tenant.name] = grant.generation
        if tenant.holder != event.node:
            state._hold(tenant, event.node)
    return VALID


def _node_fault(state: State, event: events.Issued | events.IssuedFirstForm) -> str | None:
    """Only the newest generation of a node is given tenants of the first form: a stale node must stop."""
    if isinstance(event, events.Issued):
        return None
    node = state.node(event.node)
    if node is None:
        return "node-not-registered"
    return None if node.newest == event.node_generation else "stale-node"


def _grants_fault(state: State, event: events.Issued | events.IssuedFirstForm) -> str | None:
    if len({grant.tenant for grant in event.grants}) != len(event.grants):
        return "tenant-twice"
    form = GenerationForm.FINAL if isinstance(event, events.Issued) else GenerationForm.FIRST
    held_by = event.node if event.operation is events.IssueOperation.RE_ATTACH else None
    for grant in event.grants:
        tenant = state.tenant(grant.tenant) or Tenant(grant.tenant, form=form)
        if form is GenerationForm.FINAL and tenant.form is not form:
            return "first-form"
        if fault := _grant_fault(tenant, grant.generation, grant.supersedes):
            return fault
        if held_by is not None and tenant.holder != held_by:
            return "not-held"
    return None


def _grant_fault(tenant: Tenant, generation: int, supersedes: int | None) -> str | None:
    newest = tenant.newest
    if tenant.dropped:
        return "dropped"
    if supersedes != newest:
        return "not-newest"
    if generation != (1 if newest is None else newest + 1) or generation > tenant.largest:
        return "not-next"
    return None


def _fenced(state: State, offset: int, event: events.Fenced) -> Verdict:
    if not state._raise_high(event.ends):
        return Void("other-intents-topic")
    request = Request(event.caller, "fence", None, 1)
    if reason := _request_fault(state, event.request_id, request, 0):
        return Void(reason)
    tenant = state.tenant(event.tenant)
    if tenant is None:
        return Void("unknown-tenant")
    if reason := _grant_fault(tenant, event.generation, event.supersedes):
        return Void(reason)
    state._bind(event.request_id, request, 0, offset).granted[tenant.name] = event.generation
    state._add(tenant, Issue(offset, None, state.high))
    state._hold(tenant, None)
    return VALID


def _detached(state: State, offset: int, event: events.Detached) -> Verdict:
    request = Request(event.caller, "detach", event.node, 1)
    if reason := _request_fault(state, event.request_id, request, 0):
        return Void(reason)
    tenant = state.tenant(event.tenant)
    if tenant is None or tenant.dropped or tenant.holder != event.node:
        return Void("not-held")
    if tenant.newest != event.generation:
        return Void("not-newest")
    state._bind(event.request_id, request, 0, offset).granted[tenant.name] = event.generation
    state._hold(tenant, None)
    return VALID


def _dropped(state: State, offset: int, event: events.Dropped) -> Verdict:
    request = Request(event.caller, "drop", None, 1)
    if reason := _request_fault(state, event.request_id, request, 0):
        return Void(reason)
    known = state.tenant(event.tenant)
    if known is not None and known.dropped:
        return Void("dropped")
    tenant = state._own(event.tenant)
    state._bind(event.request_id, request, 0, offset).granted[tenant.name] = tenant.newest or 0
    state._hold(tenant, None)
    tenant.dropped = True
    return VALID


# --- nodes, and what comes from elsewhere -------------------------------------------------------------------


def _registered(state: State, offset: int, event: events.NodeRegistered) -> Verdict:
    if not state._raise_high(event.ends):
        return Void("other-intents-topic")
    request = Request(event.caller, "register", event.node, 1)
    reason = _request_fault(state, event.request_id, request, 0) or _registration_fault(state, event)
    if reason:
        return Void(reason)
    state._bind(event.request_id, request, 0, offset).granted[event.node] = event.generation
    node = state._enrol(event.node, event.number, event.generation)
    state._add(node, Issue(offset, event.node, state.high))
    return VALID


def _registration_fault(state: State, event: events.NodeRegistered) -> str | None:
    node = state.node(event.node)
    newest = node.newest if node else None
    if not 0 <= event.number <= MAX_NODE:
        return "no-such-number"
    if node is not None and node.number != event.number:
        return "number-fixed"
    if node is None and state.numbered(event.number) is not None:
        return "number-taken"
    if event.supersedes != newest:
        return "not-newest"
    if event.generation != (1 if newest is None else newest + 1) or event.generation > MAX_PACKED_PART:
        return "not-next"
    return None


def _imported(state: State, offset: int, event: events.Imported) -> Verdict:
    if not state._raise_high(event.ends):
        return Void("other-intents-topic")
    request = Request(event.caller, "import", None, event.parts)
    reason = _request_fault(state, event.request_id, request, event.part)
    reason = reason or _nodes_fault(state, event.nodes) or _import_fault(state, event)
    if reason:
        return Void(reason)
    request = state._bind(event.request_id, request, event.part, offset, len(event.tenants))
    for each in event.nodes:
        node = state._enrol(each.node, each.number, each.generation)
        state._add(node, Issue(offset, each.node, state.high))
    for row in event.tenants:
        tenant = state._own(row.tenant, row.form)
        tenant.imported = offset
        if row.generation is not None:
            tenant.first = row.generation
            state._add(tenant, Issue(offset, row.node, state.high))
            request.granted[row.tenant] = row.generation
        state._hold(tenant, row.node)
    return VALID


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


def _import_fault(state: State, event: events.Imported) -> str | None:
    if len({row.tenant for row in event.tenants}) != len(event.tenants):
        return "tenant-twice"
    added = {node.node for node in event.nodes}
    for row in event.tenants:
        largest = MAX_GENERATION if row.form is GenerationForm.FINAL else MAX_PACKED_PART
        if state.known(row.tenant):
            return "tenant-known"
        if row.generation is not None and not 0 <= row.generation <= largest:
            return "out-of-range"
        registered = row.node is None or row.node in added or state.node(row.node) is not None
        if row.form is GenerationForm.FIRST and not registered:
            return "node-not-registered"
    return None


def _request_fault(state: State, request_id: str, request: Request, part: int) -> str | None:
    if not 0 <= part < request.parts:
        return "no-such-part"
    known = state.request(request_id)
    if known is None:
        return "request-expired" if state.requests.expired(request_id) else None
    if part in known.offsets:
        return "request-answered"
    same = (known.caller, known.operation, known.node, known.parts)
    if same != (request.caller, request.operation, request.node, request.parts):
        return "request-bound"
    return None
