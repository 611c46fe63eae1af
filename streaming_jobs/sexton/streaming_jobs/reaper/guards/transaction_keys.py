"""Whether all that an action may delete is certain to be of one transaction.

That is what carries its number below its tenant's prefix, as `sexton.schemas.numbered_names` reads it: the
tenant's form says where.
"""

from __future__ import annotations

from collections.abc import Sequence

from sexton.schemas.actions import Action, DeleteObjects, DeletePrefix
from sexton.schemas.events import NumberPlace
from sexton.schemas.numbered_names import carries, lies_in

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
    below = _below(key, prefix)
    return below is not None and carries(below, place, number)


def _of_prefix(action: DeletePrefix, prefix: str, place: str, number: int) -> bool:
    """Return whether all that lies under it, and ends in its suffix, carries the number."""
    below = _below(action.prefix, prefix)
    if below is None or not lies_in(below, place, number):
        return False
    return place == NumberPlace.FIRST or (action.suffix or "").endswith(f".{number}")


def _below(name: str, prefix: str) -> str | None:
    return name.removeprefix(prefix) if name.startswith(prefix) else None
