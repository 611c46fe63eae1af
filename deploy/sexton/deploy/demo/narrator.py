"""Who tells a story."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Narrator"]


class Narrator(Protocol):
    """Who tells a story, in the order in which it happens."""

    def chapter(self, title: str) -> None:
        """Start a chapter."""

    def say(self, text: str) -> None:
        """Say one sentence."""
