"""Which keys are certain to be of one transaction: those that carry its number below its tenant's prefix.

The tenant's form says where. Number first: the first segment below the prefix is the number. Number last: the
key ends in `.<number>`, and then no name begins with a number as its first segment, so that `24/seg.23` is
nobody's. Numbers are canonical decimals; a key that another reader might resolve to another one (`..`, empty
segments) is not certain.
"""

from __future__ import annotations

from collections.abc import Sequence

from sexton.schemas.actions import Action, DeleteObjects, DeletePrefix
from sexton.schemas.events import NumberPlace
from sexton.schemas.tenant_prefix import is_plain

__all__ = ["not_its_own"]

_SHOWN = 200


def not_its_own(action: Action, prefix: str, place: str, number: int) -> str | None:
    """Return something that an action may delete and that need not be this transaction's, None if all is.

    `prefix` is the tenant's, `place` where its keys carry the number.
    """
    keys: Sequence[str]
    match action:
        case DeleteObjects():
            keys = action.keys
        case DeletePrefix() if _of_prefix(action, prefix, place, number):
            keys = () if action.tombstone is None else (action.tombstone,)
        case _:
            return action.text[:_SHOWN]
    strange = next((key for key in keys if not _of_key(key, prefix, place, number)), None)
    return None if strange is None else repr(strange[:_SHOWN])


def _of_key(key: str, prefix: str, place: str, number: int) -> bool:
    return _lies_in(key, prefix, place, number) and (
        place == NumberPlace.FIRST or key.removeprefix(prefix).endswith(f".{number}")
    )


def _of_prefix(action: DeletePrefix, prefix: str, place: str, number: int) -> bool:
    """Return whether all that lies under it, and ends in its suffix, carries the number."""
    if not _lies_in(action.prefix, prefix, place, number):
        return False
    return place == NumberPlace.FIRST or (action.suffix or "").endswith(f".{number}")


def _lies_in(name: str, prefix: str, place: str, number: int) -> bool:
    """Return whether what begins so lies where this transaction may have written."""
    if not name.startswith(prefix):
        return False
    below = name.removeprefix(prefix)
    segment, slash, _ = below.partition("/")
    if place == NumberPlace.FIRST:
        return bool(slash) and segment == str(number) and is_plain(below)
    # Any digits, in any script: who reads them as a number means another transaction.
    return place == NumberPlace.LAST and is_plain(below) and not segment.isnumeric()
