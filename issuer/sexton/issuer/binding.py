"""What a request id is bound to: its caller, its call and what was asked. Pure rules over the state.

A retry is answered from the log. Whoever asks something else under a known id must not get that answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from sexton.issuer.state import Node, Request, State
from sexton.schemas import events
from sexton.schemas.errors import RequestRefused

__all__ = ["after", "check_binding", "check_in_time", "check_number", "check_same_import"]


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
    _require(same)


def after(expected: int | None) -> int | None:
    """Return the number that a call leads to whose caller believes in the one before; 0 stands for none."""
    return None if expected is None else expected + 1


def check_number(node: Node, asked: int | None) -> None:
    """Raise RequestRefused when a known request id registered its node under another number."""
    _require(asked in (None, node.number))


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
        _require(_by_name(event.tenants, event.nodes) == _by_name(tenants, nodes))
    else:
        generations = {row.tenant: row.generation for row in tenants if row.generation is not None}
        _require(known.granted == generations)


def check_in_time(state: State, request_id: str) -> None:
    """Raise RequestRefused when the request id is so old that its answer may have been forgotten."""
    if state.requests.expired(request_id):
        raise RequestRefused(
            "request-expired",
            f"the request id is older than every one that is remembered: {request_id}",
            status=410,
        )


def _by_name(
    tenants: Sequence[events.ImportedTenant], nodes: Sequence[events.ImportedNode]
) -> tuple[dict[str, events.ImportedTenant], dict[str, events.ImportedNode]]:
    return {row.tenant: row for row in tenants}, {row.node: row for row in nodes}


def _require(same: bool) -> None:
    if not same:
        raise RequestRefused("request-id-conflict", "the request id belongs to another call or caller")
