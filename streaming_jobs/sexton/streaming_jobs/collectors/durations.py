"""Durations as options of a command have them."""

from __future__ import annotations

import re

from sexton.schemas.errors import UsageError

__all__ = ["seconds"]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    """Return the seconds of a duration such as `90s`, `10m`, `24h` or `7d`; raises UsageError."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd])", text)
    if found is None or float(found[1]) <= 0:
        raise UsageError(f"not a duration: {text!r}", hint="such as 90s, 10m, 24h, 7d")
    return float(found[1]) * _UNITS[found[2]]
