"""Conditions on objects: what the `unchanged` guards of an intent ask of each key, all of them together."""

from __future__ import annotations

import re

from sexton.schemas import events
from sexton.schemas.errors import InvalidEvent

__all__ = ["conditions_of"]

# One opaque tag, with or without its quotes (RFC 9110, 8.8.3): `*` and a list of tags would match what was
# written since, a weak one matches nothing.
_ETAG = re.compile(r'"[\x21\x23-\x7e]+"|(?!\*\Z)[\x21\x23-\x2b\x2d-\x7e]+')


def conditions_of(intent: events.DeletionIntent) -> dict[str, events.KeyCondition]:
    """Return by key what must hold of its object; every condition counts.

    Raises InvalidEvent for what is no ETag or version id, and for two on one key that exclude each other.
    """
    found: dict[str, events.KeyCondition] = {}
    for guard in intent.guards:
        if isinstance(guard, events.UnchangedGuard):
            for condition in guard.conditions:
                known = found.get(condition.key)
                found[condition.key] = _checked(condition) if known is None else _both(known, condition)
    return found


def _checked(condition: events.KeyCondition) -> events.KeyCondition:
    etag, version_id = condition.etag, condition.version_id
    if etag is None and version_id is None:
        raise InvalidEvent("an unchanged guard needs an ETag or a version id for each key")
    if etag is not None and not _ETAG.fullmatch(etag):
        raise InvalidEvent(f"not the ETag of one object: {etag[:80]!r}")
    if version_id == "":
        raise InvalidEvent("a version id is empty")
    return condition


def _both(known: events.KeyCondition, other: events.KeyCondition) -> events.KeyCondition:
    other = _checked(other)
    return events.KeyCondition(
        known.key,
        _one(known.key, known.etag, other.etag),
        _one(known.key, known.version_id, other.version_id),
    )


def _one(key: str, one: str | None, other: str | None) -> str | None:
    if one is not None and other is not None and one.strip('"') != other.strip('"'):
        raise InvalidEvent(f"conditions exclude each other: {key[:80]!r} is to be {one!r} and {other!r}")
    return other if one is None else one
