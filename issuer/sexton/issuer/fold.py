"""The pure rule of the generations log: fold its events, in order, into who holds what and since where.

`apply(state, offset, event)` says whether an event is valid or void. A void event changes no tenant, for
every reader, for ever; all readers agree because the rule looks at nothing but the log. End offsets are the
exception: they are facts about the intents topic, read before the event was appended, so a void event's end
offsets still raise the running maximum that closes windows.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sexton.schemas import events
from sexton.schemas.errors import LogBroken
from sexton.schemas.generations import MAX_GENERATION
from sexton.schemas.windows import Window

__all__ = ["FORMAT", "VALID", "Issue", "Request", "State", "Tenant", "Valid", "Verdict", "Void", "apply"]

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


@dataclass(frozen=True, slots=True)
class Issue:
    """What all grants of one valid Issued event share.

    `high` is, by partition, the largest end offset in any event up to and including this one. It closes the
    window before and opens the next. Opening at the event's own end offsets would let in what claimed the
    generation after an earlier event's end offsets were read, so before it was issued, and a barrier in
    between could be contradicted by a later one. What the holder really writes comes after all of them.
    """

    log_offset: int
    node: str
    high: Sequence[int]


@dataclass(slots=True)
class Tenant:
    """One tenant: its generations are `first`, `first` + 1, ..., one for each entry of `issues`."""

    name: str
    first: int = 1
    issues: list[Issue] = field(default_factory=list)
    holder: str | None = None
    dropped: bool = False

    @property
    def newest(self) -> int | None:
        """The newest generation, None when none was ever issued."""
        return self.first + len(self.issues) - 1 if self.issues else None

    def window(self, generation: int, partition: int) -> Window | None:
        """Return the window of a generation in one intents partition, None if it was never issued."""
        index = generation - self.first
        if not 0 <= index < len(self.issues) or partition < 0:
            return None
        start = _at(self.issues[index].high, partition)
        if index + 1 == len(self.issues):
            return Window(start)
        return Window(start, _at(self.issues[index + 1].high, partition))


@dataclass(slots=True)
class Request:
    """A request id that has at least one valid event, and what it is bound to."""

    caller: str
    operation: str
    node: str | None
    parts: int
    offsets: dict[int, int] = field(default_factory=dict)
    granted: dict[str, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every part has a valid event: only then was the call carried out."""
        return len(self.offsets) == self.parts


class State:
    """The fold of a prefix of the log. `apply` changes it; whoever shares it between threads locks it."""

    def __init__(self) -> None:
        self.genesis: events.Genesis | None = None
        self.next_offset = 0
        self.high: Sequence[int] = ()
        self.unsettled: events.PartitionOffsets | None = None
        self._tenants: dict[str, Tenant] = {}
        self._held: dict[str, dict[str, None]] = {}
        self._requests: dict[str, Request] = {}

    def __len__(self) -> int:
        return len(self._tenants)

    def __iter__(self) -> Iterator[Tenant]:
        return iter(self._tenants.values())

    @property
    def log_offset(self) -> int:
        """Offset of the last event that was applied, -1 before the first."""
        return self.next_offset - 1

    def known(self, tenant: str) -> bool:
        """Tell whether the log knows the tenant; intents of others are refused."""
        return tenant in self._tenants

    def tenant(self, tenant: str) -> Tenant | None:
        """Return a tenant, None when the log does not know it."""
        return self._tenants.get(tenant)

    def newest(self, tenant: str) -> int | None:
        """Return the newest generation of a tenant, None when it has none."""
        found = self._tenants.get(tenant)
        return found.newest if found else None

    def window(self, tenant: str, generation: int, partition: int) -> Window | None:
        """Return where intents of this generation are believed; None: nowhere, it was never issued."""
        found = self._tenants.get(tenant)
        return found.window(generation, partition) if found else None

    def held_by(self, node: str) -> list[str]:
        """Return the tenants whose newest generation this node holds, in the order of the log."""
        return list(self._held.get(node, ()))

    def request(self, request_id: str) -> Request | None:
        """Return what a request id has led to, None when no event of it is valid."""
        return self._requests.get(request_id)

    # --- changes, by the rules below only -------------------------------------------------------------------

    def _raise_high(self, ends: events.PartitionOffsets) -> bool:
        """Raise the running maximum; False if these are no end offsets of the topic that Genesis names."""
        assert self.genesis is not None
        if ends.topic_id != self.genesis.intents_topic_id or any(end < 0 for end in ends.offsets):
            return False
        high, new = self.high, ends.offsets
        if len(new) > len(high) or any(new[i] > high[i] for i in range(len(new))):
            self.high = array("q", _largest(high, new))
        return True

    def _hold(self, tenant: Tenant, node: str | None) -> None:
        if tenant.holder is not None:
            held = self._held[tenant.holder]
            held.pop(tenant.name, None)
            if not held:
                del self._held[tenant.holder]
        tenant.holder = node
        if node is not None:
            self._held.setdefault(node, {})[tenant.name] = None

    def _own(self, name: str) -> Tenant:
        if name not in self._tenants:
            self._tenants[name] = Tenant(name)
        return self._tenants[name]

    def _bind(self, request_id: str, request: Request, part: int, offset: int) -> Request:
        bound = self._requests.setdefault(request_id, request)
        bound.offsets[part] = offset
        return bound


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
        case events.Issued():
            return _issued(state, offset, event)
        case events.Barrier():
            return _barrier(state, event)
        case events.Detached():
            return _detached(state, offset, event)
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
    if event.unsettled is not None and event.unsettled.topic_id == event.ends.topic_id:
        state.unsettled = event.unsettled
    return VALID


def _issued(state: State, offset: int, event: events.Issued) -> Verdict:
    if not state._raise_high(event.ends):
        return Void("other-intents-topic")
    request = Request(event.caller, event.operation.value, event.node, event.parts)
    reason = _request_fault(state, event.request_id, request, event.part)
    reason = reason or _grants_fault(state, event)
    if reason:
        return Void(reason)
    request = state._bind(event.request_id, request, event.part, offset)
    issue = Issue(offset, event.node, state.high)
    for grant in event.grants:
        tenant = state._own(grant.tenant)
        tenant.issues.append(issue)
        request.granted[tenant.name] = grant.generation
        if tenant.holder != event.node:
            state._hold(tenant, event.node)
    return VALID


def _grants_fault(state: State, event: events.Issued) -> str | None:
    if len({grant.tenant for grant in event.grants}) != len(event.grants):
        return "tenant-twice"
    held_by = event.node if event.operation is events.IssueOperation.RE_ATTACH else None
    for grant in event.grants:
        if fault := _grant_fault(state.tenant(grant.tenant), grant, held_by):
            return fault
    return None


def _grant_fault(tenant: Tenant | None, grant: events.Grant, held_by: str | None) -> str | None:
    newest = tenant.newest if tenant else None
    if tenant is not None and tenant.dropped:
        return "dropped"
    if grant.supersedes != newest:
        return "not-newest"
    if grant.generation != (1 if newest is None else newest + 1) or grant.generation > MAX_GENERATION:
        return "not-next"
    if held_by is not None and (tenant is None or tenant.holder != held_by):
        return "not-held"
    return None


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


def _request_fault(state: State, request_id: str, request: Request, part: int) -> str | None:
    if not 0 <= part < request.parts:
        return "no-such-part"
    known = state.request(request_id)
    if known is None:
        return None
    if part in known.offsets:
        return "request-answered"
    same = (known.caller, known.operation, known.node, known.parts)
    if same != (request.caller, request.operation, request.node, request.parts):
        return "request-bound"
    return None


def _at(offsets: Sequence[int], partition: int) -> int:
    """A partition that an event did not have was empty, or not there: its end offset is 0."""
    return offsets[partition] if partition < len(offsets) else 0


def _largest(one: Sequence[int], other: Sequence[int]) -> Iterable[int]:
    for i in range(max(len(one), len(other))):
        yield max(_at(one, i), _at(other, i))
