"""What a request id is bound to: its caller, its call and what was asked. Pure rules over the state.

A retry is answered from the log. Whoever asks something else under a known id must not get that answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from sexton.issuer.state.request_ids import check_not_ahead, new_id
from sexton.issuer.state.state import Request, State
from sexton.schemas.errors import RequestRefused

__all__ = ["after", "check_binding", "check_in_time", "identity", "request_fault", "require_same"]


def identity(request_id: str | None, caller: str | None, node: str) -> tuple[str, str]:
    """Return the request id, a new one if none was given, and who calls: the node if nothing else.

    Raises RequestRefused for an id that is ahead of this clock.
    """
    if request_id is not None:
        check_not_ahead(request_id, time.time())
    return request_id or new_id(), caller or node


def check_binding(
    known: Request, asked: Request, tenants: Sequence[str] | None = None, number: int | None = None
) -> None:
    """Raise RequestRefused when a known request id was given by another caller or for another call.

    `number` is the one that the call leads to, where what is asked says so.
    """
    same = (known.caller, known.operation, known.node) == (asked.caller, asked.operation, asked.node)
    if same and tenants is not None:
        same = set(known.granted) <= set(tenants) and (
            not known.complete or len(known.granted) == len(tenants)
        )
    if same and number is not None:
        same = set(known.granted.values()) == {number}
    require_same(same)


def after(expected: int | None) -> int | None:
    """Return the number that a call leads to whose caller believes in the one before; 0 stands for none."""
    return None if expected is None else expected + 1


def check_in_time(state: State, request_id: str) -> None:
    """Raise RequestRefused when the request id is so old that its answer may have been forgotten."""
    if state.requests.expired(request_id):
        raise RequestRefused(
            "request-expired",
            f"the request id is older than every one that is remembered: {request_id}",
            status=410,
        )


def request_fault(state: State, request_id: str, request: Request, part: int) -> str | None:
    """Return why an event of a request id is void: answered, bound or expired; None when it may count."""
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


def require_same(same: bool) -> None:
    """Raise RequestRefused when a known request id was given for another call."""
    if not same:
        raise RequestRefused("request-id-conflict", "the request id belongs to another call or caller")
