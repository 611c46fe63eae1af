"""Request ids that carry their time: UUID version 7 (RFC 9562, section 5.7).

An id with a time can be forgotten: a retry that comes too late is then told from a new call by its time, and
refused. An id without one is kept for ever.
"""

from __future__ import annotations

import os
import re
import time
import uuid

__all__ = ["instant_of", "new_id"]

_UUID7 = re.compile(
    r"([0-9a-f]{8})-?([0-9a-f]{4})-?7[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}\Z", re.ASCII | re.IGNORECASE
)


def new_id() -> str:
    """Return a new UUID version 7: 48 bits of Unix milliseconds, then 74 random bits."""
    raw = bytearray((time.time_ns() // 1_000_000).to_bytes(6, "big") + os.urandom(10))
    raw[6] = raw[6] & 0x0F | 0x70
    raw[8] = raw[8] & 0x3F | 0x80
    return str(uuid.UUID(bytes=bytes(raw)))


def instant_of(request_id: str) -> int | None:
    """Return the Unix milliseconds in an id, None when it is no UUID version 7."""
    match = _UUID7.match(request_id)
    return int(match[1] + match[2], 16) if match else None
