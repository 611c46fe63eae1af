"""Request ids that carry their time: UUID version 7 (RFC 9562, section 5.7).

An id with a time can be forgotten: a retry that comes too late is then told from a new call by its time, and
refused. An id without one is kept for ever. No id may be far ahead of the issuer's clock: once it is
forgotten, everybody whose clock is right would be refused until its time came.
"""

from __future__ import annotations

import os
import re
import time
import uuid

from sexton.schemas.errors import RequestRefused

__all__ = ["AHEAD_S", "check_not_ahead", "instant_of", "new_id", "timeless_id"]

AHEAD_S = 60
"""Seconds by which a caller's clock may be ahead of the issuer's."""

_UUID7 = re.compile(
    r"([0-9a-f]{8})-?([0-9a-f]{4})-?7[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}\Z", re.ASCII | re.IGNORECASE
)


def new_id() -> str:
    """Return a new UUID version 7: 48 bits of Unix milliseconds, then 74 random bits."""
    raw = bytearray((time.time_ns() // 1_000_000).to_bytes(6, "big") + os.urandom(10))
    raw[6] = raw[6] & 0x0F | 0x70
    raw[8] = raw[8] & 0x3F | 0x80
    return str(uuid.UUID(bytes=bytes(raw)))


def timeless_id() -> str:
    """Return a new id that has no time, for one who cannot tell the time: it is kept for ever."""
    return str(uuid.uuid4())


def instant_of(request_id: str) -> int | None:
    """Return the Unix milliseconds in an id, None when it is no UUID version 7."""
    match = _UUID7.match(request_id)
    return int(match[1] + match[2], 16) if match else None


def check_not_ahead(request_id: str, now_s: float) -> None:
    """Raise RequestRefused for an id with a time that is more than `AHEAD_S` after `now_s`, Unix seconds."""
    instant = instant_of(request_id)
    if instant is not None and instant > (now_s + AHEAD_S) * 1000:
        ahead_s = instant / 1000 - now_s
        raise RequestRefused(
            "request-id-ahead",
            f"the time in the request id is {ahead_s:.0f} s ahead of the issuer's clock: {request_id}",
            status=400,
            hint="set the clock of the machine that made the id",
        )
