"""What is wrong with a value, in the caller's words: the schema names a field, not what was given."""

from __future__ import annotations

from collections.abc import Iterable

from sexton.schemas.errors import InvalidEvent

__all__ = ["check_text", "check_texts"]


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
