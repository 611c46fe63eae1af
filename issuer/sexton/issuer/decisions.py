"""What a call needs next, as a pure rule over the state: an answer, a refusal, or one more event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sexton.issuer.fold import Request, State
from sexton.schemas import events
from sexton.schemas.errors import RequestRefused
from sexton.schemas.generations import MAX_GENERATION

__all__ = [
    "GRANTS_PER_EVENT",
    "Call",
    "Granted",
    "Part",
    "check_alive",
    "check_believed",
    "check_binding",
    "check_in_time",
    "held",
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
    """An issue call; `tenants` is None for a re-attach, which takes what the node holds."""

    request_id: str
    caller: str
    operation: events.IssueOperation
    node: str
    tenants: tuple[str, ...] | None
    believed: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """The part of an issue call that is appended next."""

    tenants: Sequence[str]
    number: int
    count: int


def next_step(state: State, call: Call) -> Granted | Part:
    """Return the answer once every part is valid, else the part to append next.

    Raises RequestRefused.
    """
    known = state.request(call.request_id)
    wanted = call.tenants if call.tenants is not None else state.held_by(call.node)
    if known is not None:
        binding = Request(call.caller, call.operation.value, call.node, known.parts)
        check_binding(known, binding, call.tenants)
        if known.complete:
            return Granted(call.request_id, max(known.offsets.values()), dict(known.granted))
    elif not wanted:
        return Granted(call.request_id, state.log_offset, {})
    check_in_time(state, call.request_id)
    granted = known.granted if known else {}
    left = [tenant for tenant in wanted if tenant not in granted]
    for tenant in left:
        _check_issuable(state, tenant, call.believed)
    count = known.parts if known else -(-len(left) // GRANTS_PER_EVENT)
    missing = [part for part in range(count) if known is None or part not in known.offsets]
    return Part(left[: -(-len(left) // len(missing))], missing[0], count)


def check_binding(known: Request, asked: Request, tenants: Sequence[str] | None) -> None:
    """Raise RequestRefused when a known request id was given by another caller or for another call."""
    same = (known.caller, known.operation, known.node) == (asked.caller, asked.operation, asked.node)
    if same and tenants is not None:
        same = set(known.granted) <= set(tenants) and (
            not known.complete or len(known.granted) == len(tenants)
        )
    if not same:
        raise RequestRefused("request-id-conflict", "the request id belongs to another call or caller")


def check_in_time(state: State, request_id: str) -> None:
    """Raise RequestRefused when the request id is so old that its answer may have been forgotten."""
    if state.requests.expired(request_id):
        raise RequestRefused(
            "request-expired",
            f"the request id is older than every one that is remembered: {request_id}",
            status=410,
        )


def check_alive(state: State, tenant: str) -> None:
    """Raise RequestRefused when the tenant was dropped."""
    found = state.tenant(tenant)
    if found is not None and found.dropped:
        raise RequestRefused("tenant-dropped", f"the tenant was dropped: {tenant}", status=410)


def _check_issuable(state: State, tenant: str, believed: int | None) -> None:
    check_alive(state, tenant)
    newest = state.newest(tenant)
    if newest == MAX_GENERATION:
        raise RequestRefused("generations-exhausted", f"the tenant has used every generation: {tenant}")
    check_believed(tenant, believed, newest)


def check_believed(tenant: str, believed: int | None, newest: int | None) -> None:
    """Raise RequestRefused when the caller believes another generation to be the newest (I-12)."""
    if believed is not None and believed != (newest or 0):
        raise RequestRefused(
            "generation-not-newest",
            f"the newest generation of {tenant} is {newest or 'none'}, not {believed}",
        )


def held(state: State, node: str, tenant: str, believed: int | None) -> int:
    """Return the newest generation of a tenant that this node holds.

    Raises RequestRefused `not-held`, or `generation-not-newest` for a caller who believes in another one.
    """
    found = state.tenant(tenant)
    if found is None or found.holder != node or found.newest is None:
        raise RequestRefused("not-held", f"{node} does not hold the tenant: {tenant}")
    check_believed(tenant, believed, found.newest)
    return found.newest
