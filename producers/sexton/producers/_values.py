"""What is wrong with a value, in the caller's words: the schema names a field, not what was given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sexton.schemas.errors import InvalidEvent

__all__ = ["check_instant", "check_list", "check_text", "check_texts"]


def check_text(key: object) -> None:
    """Raise InvalidEvent that shows the key unless it is text."""
    if key is None:
        raise InvalidEvent("a key must be text, not None")
    if not isinstance(key, str):
        raise InvalidEvent(f"a key must be text, not {type(key).__name__}: {repr(key)[:80]}")


def check_texts(keys: Iterable[object]) -> None:
    """Raise InvalidEvent for the first key that is no text; for once it is known that something is wrong."""
    for key in keys:
        check_text(key)


def check_list(what: str, given: object) -> Sequence[Any]:
    """Return a list; raises InvalidEvent for anything else: of a text each letter would be an item."""
    if not isinstance(given, list | tuple):
        raise InvalidEvent(f"{what} must be a list, not of type {type(given).__name__}")
    return given


def check_instant(what: str, given: object) -> None:
    """Raise InvalidEvent that names the argument for what is no instant, or one without a time zone."""
    if given is None:
        return
    if not isinstance(given, datetime):
        raise InvalidEvent(f"{what} must be a datetime, not of type {type(given).__name__}")
    if given.utcoffset() is None:
        raise InvalidEvent(
            f"{what} needs a time zone: {given.isoformat()}", hint="datetime.now(UTC), or astimezone()"
        )
