"""The number of a transaction in a name: as its first segment, or as its final `.23`. Pure.

Decimal digits without zeros in front, from 1: what is not exactly so is part of the name. Two texts for one
number would be two names for what one rule protects. A name is what follows the tenant's prefix in a key.

    place   of transaction 23 for certain    may be, so not certain
    first   23/x                             23//x, 23/../24/x
    last    a/x.23                           24/x.23, 23/x.23, a/../x.23

Who deletes or writes goes by what is certain (`carries`); who looks for the highest number that was ever in
use takes whatever may be one (`number_in`), which finds the number of every name that carries one.
"""

from __future__ import annotations

import re

from sexton.schemas.tenant_prefix import is_plain
from sexton.schemas.transaction_events import NumberPlace

__all__ = ["carries", "lies_in", "number_in"]

_FIRST = re.compile(r"([1-9][0-9]{0,9})/", re.ASCII)
_LAST = re.compile(r"(?s).*\.([1-9][0-9]{0,9})\Z", re.ASCII)


def carries(name: str, place: str, number: int) -> bool:
    """Return whether a name is of this transaction for every reader, and of no other one."""
    return lies_in(name, place, number) and (place == NumberPlace.FIRST or name.endswith(f".{number}"))


def lies_in(name: str, place: str, number: int) -> bool:
    """Return whether what begins so lies where this transaction may have written.

    A name that another reader might resolve to another one (`..`, empty segments) does not.
    """
    segment, slash, _ = name.partition("/")
    if place == NumberPlace.FIRST:
        return bool(slash) and segment == str(number) and is_plain(name)
    # Any digits, in any script: who reads them as a number means another transaction.
    return place == NumberPlace.LAST and is_plain(name) and not segment.isnumeric()


def number_in(name: str, place: NumberPlace) -> int | None:
    """Return the number that a name carries there, certainly or not; None when it carries none."""
    match = _FIRST.match(name) if place is NumberPlace.FIRST else _LAST.match(name)
    return int(match[1]) if match else None
