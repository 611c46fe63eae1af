"""Numbers, instants and foreign names in sentences for people."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["counted", "instant_text", "printable"]


def counted(number: int | str, noun: str) -> str:
    """Return a number with its noun, the regular plural unless it is one: `1 key`, `2 keys`, `? keys`."""
    return f"{number} {noun}" if str(number) == "1" else f"{number} {noun}s"


def printable(text: str, allowed: str = "") -> str:
    """Return text in which nothing moves a terminal's cursor or hides: such characters are escaped.

    Names in it may be anybody's; `allowed` are characters that stay.
    """
    return "".join(
        c if c.isprintable() or c in allowed else c.encode("unicode_escape").decode() for c in text
    )


def instant_text(instant: datetime) -> str:
    """Return an instant in UTC to the millisecond: `2026-03-01T12:00:00.000Z`."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
