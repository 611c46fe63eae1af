"""The number of a transaction in a name: as its first segment, or as its final `.23`.

Decimal digits without zeros in front, from 1: what is not exactly so is part of the name. Two texts for one
number would be two names for what one rule protects.
"""

from __future__ import annotations

import re

from sexton.schemas.transaction_events import NumberPlace

__all__ = ["number_in"]

_FIRST = re.compile(r"([1-9][0-9]{0,9})/", re.ASCII)
_LAST = re.compile(r"(?s).*\.([1-9][0-9]{0,9})\Z", re.ASCII)


def number_in(name: str, place: NumberPlace) -> int | None:
    """Return the number that a name below the tenant's prefix carries there, None when it carries none."""
    match = _FIRST.match(name) if place is NumberPlace.FIRST else _LAST.match(name)
    return int(match[1]) if match else None
