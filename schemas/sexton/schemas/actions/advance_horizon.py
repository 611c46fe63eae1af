"""The action that publishes up to where a log may be trimmed."""

from __future__ import annotations

from dataclasses import dataclass

from sexton.schemas.actions.room import ActionRoom
from sexton.schemas.errors import InvalidEvent

__all__ = ["AdvanceHorizon"]


@dataclass(frozen=True, slots=True)
class AdvanceHorizon(ActionRoom):
    """Publish the log position up to which a WAL may be trimmed."""

    timeline: str
    lsn: int

    def check(self) -> None:
        """Raise InvalidEvent without a timeline, and for a negative position."""
        if not self.timeline:
            raise InvalidEvent("advance_horizon needs a timeline")
        if self.lsn < 0:
            raise InvalidEvent(f"a log position is not negative: {self.lsn}")

    @property
    def text(self) -> str:
        """Timeline and position."""
        return f"advance horizon of {self.timeline} to {self.lsn}"
