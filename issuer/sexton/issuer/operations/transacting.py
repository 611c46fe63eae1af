"""What the calls of transactions share: their answers over the wire, and what they are bound to."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from sexton.issuer.operations.base import Done
from sexton.issuer.state.state import Request
from sexton.issuer.state.transactions import Transaction
from sexton.schemas.generations import MAX_GENERATION

__all__ = ["Number", "Place", "TransactionDone", "already"]

Number = Annotated[int, Meta(ge=1, le=MAX_GENERATION)]
Place = Literal["first", "last"]


class TransactionDone(Struct):
    """What became of a transaction, proven by the log at `log_offset`."""

    log_offset: int
    request_id: str
    tenant: str
    transaction: int


def already(request_id: str, caller: str, operation: str, tenant: str, found: Transaction) -> Done:
    """Return what an earlier call has led to: asked again under another id, the answer is the same."""
    request = Request(caller, operation, found.node, 1, {0: found.changed}, {tenant: found.number})
    return Done(request_id, request, is_ours=False)
