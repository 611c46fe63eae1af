"""The guard that the store itself checks: an object is deleted only while it is what it was."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar, Self

from sexton.schemas.checks import check_keys
from sexton.schemas.errors import InvalidEvent
from sexton.schemas.guards.room import GuardRoom

__all__ = ["KeyCondition", "UnchangedGuard", "conditions_of"]

# One opaque tag, with or without its quotes (RFC 9110, 8.8.3): `*` and a list of tags would match what was
# written since, a weak one matches nothing.
_ETAG = re.compile(r'"[\x21\x23-\x7e]+"|(?!\*\Z)[\x21\x23-\x2b\x2d-\x7e]+')


@dataclass(frozen=True, slots=True)
class KeyCondition:
    """What an object must still be for its delete to take effect."""

    key: str
    etag: str | None = None
    version_id: str | None = None


@dataclass(frozen=True, slots=True)
class UnchangedGuard(GuardRoom):
    """Checked by the store in the delete itself, for each key named here."""

    conditions: Sequence[KeyCondition]

    names_keys: ClassVar[bool] = True

    def check(self) -> None:
        """Raise InvalidEvent for a key that no object can have."""
        check_keys([condition.key for condition in self.conditions])

    def for_keys(self, keys: Set[str]) -> Self:
        """Return the guard with the conditions on these keys alone."""
        return type(self)(tuple(each for each in self.conditions if each.key in keys))

    @property
    def text(self) -> str:
        """That there are conditions."""
        return "unchanged"


def conditions_of(guards: Iterable[GuardRoom]) -> dict[str, KeyCondition]:
    """Return by key what must hold of its object, all guards together; every condition counts.

    Raises InvalidEvent for what is no ETag or version id, and for two on one key that exclude each other.
    """
    found: dict[str, KeyCondition] = {}
    for guard in guards:
        if isinstance(guard, UnchangedGuard):
            for condition in guard.conditions:
                known = found.get(condition.key)
                found[condition.key] = _checked(condition) if known is None else _both(known, condition)
    return found


def _checked(condition: KeyCondition) -> KeyCondition:
    etag, version_id = condition.etag, condition.version_id
    if etag is None and version_id is None:
        raise InvalidEvent("an unchanged guard needs an ETag or a version id for each key")
    if etag is not None and not _ETAG.fullmatch(etag):
        raise InvalidEvent(f"not the ETag of one object: {etag[:80]!r}")
    if version_id == "":
        raise InvalidEvent("a version id is empty")
    return condition


def _both(known: KeyCondition, other: KeyCondition) -> KeyCondition:
    other = _checked(other)
    return KeyCondition(
        known.key,
        _one(known.key, known.etag, other.etag),
        _one(known.key, known.version_id, other.version_id),
    )


def _one(key: str, one: str | None, other: str | None) -> str | None:
    if one is not None and other is not None and one.strip('"') != other.strip('"'):
        raise InvalidEvent(f"conditions exclude each other: {key[:80]!r} is to be {one!r} and {other!r}")
    return other if one is None else one
