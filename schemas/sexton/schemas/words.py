"""Numbers in sentences for people."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int | str, noun: str) -> str:
    """Return a number with its noun, the regular plural unless it is one: `1 key`, `2 keys`, `? keys`."""
    return f"{number} {noun}" if str(number) == "1" else f"{number} {noun}s"
