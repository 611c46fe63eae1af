"""What comes in over HTTP, before it is a call: names in paths, bodies with a bound."""

from __future__ import annotations

import asyncio

from fastapi import Request
from starlette.convertors import Convertor, register_url_convertor

from sexton.issuer.deadline import Deadline
from sexton.schemas.errors import RequestRefused

__all__ = ["read_body"]

_MAX_BODY = 32 * 1024 * 1024


class _Name(Convertor[str]):
    """Any name in a path: that of starlette's own ends at a line break."""

    regex = "(?s:.+)"

    def convert(self, value: str) -> str:
        """Return the name."""
        return value

    def to_string(self, value: str) -> str:
        """Return the name."""
        return value


register_url_convertor("sexton_name", _Name())


async def read_body(request: Request, deadline: Deadline) -> bytes:
    """Return the body; one that is too large, or comes too slowly, is refused, and no more of it is kept.

    Raises RequestRefused: `too-large`, `too-slow`.
    """
    try:
        return await asyncio.wait_for(_whole_body(request), deadline.left())
    except TimeoutError as error:
        raise RequestRefused("too-slow", "the body did not come in the time of a call", status=408) from error


async def _whole_body(request: Request) -> bytes:
    length = request.headers.get("content-length", "0")
    raw = bytearray()
    if not length.isdecimal() or int(length) <= _MAX_BODY:
        async for chunk in request.stream():
            raw += chunk
            if len(raw) > _MAX_BODY:
                break
        else:
            return bytes(raw)
    raise RequestRefused("too-large", f"a body has at most {_MAX_BODY} bytes", status=413)
