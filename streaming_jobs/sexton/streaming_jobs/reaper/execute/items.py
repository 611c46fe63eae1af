"""Elements of work: what one key of a request, or one job, is about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sexton.storage import Delete

__all__ = ["EraseAll", "Item", "is_permanent", "key_of", "names_of"]


@dataclass(frozen=True, slots=True)
class EraseAll:
    """One key of which all versions are to go."""

    key: str


Item = str | Delete | EraseAll
"""One element of work: a plain key, a key with a condition or version, or all versions of a key."""


def key_of(item: Item) -> str:
    """Return an item's key."""
    return item if isinstance(item, str) else item.key


def is_permanent(item: Item) -> bool:
    """Return whether the item's object goes for good, and leaves no marker."""
    return isinstance(item, EraseAll) or (isinstance(item, Delete) and item.version_id is not None)


def names_of(items: Iterable[Item]) -> tuple[list[str], dict[str, str]]:
    """Return the keys of items, and by key the version that an item names."""
    named = {item.key: item.version_id for item in items if isinstance(item, Delete) and item.version_id}
    return [key_of(item) for item in items], named
