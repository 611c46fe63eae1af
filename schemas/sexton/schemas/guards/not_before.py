"""The guard of time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sexton.schemas.guards.room import GuardRoom
from sexton.schemas.text import instant_text

__all__ = ["NotBeforeGuard"]


@dataclass(frozen=True, slots=True)
class NotBeforeGuard(GuardRoom):
    """True once the clock has passed the instant, strictly."""

    instant: datetime

    @property
    def holds_after(self) -> datetime:
        """The instant."""
        return self.instant

    @property
    def text(self) -> str:
        """The instant, in UTC."""
        return f"after {instant_text(self.instant)}"
