"""The guard of data that its owner has given up for good."""

from __future__ import annotations

from dataclasses import dataclass

from sexton.schemas.errors import InvalidEvent
from sexton.schemas.guards.room import GuardRoom

__all__ = ["PromiseGuard"]


@dataclass(frozen=True, slots=True)
class PromiseGuard(GuardRoom):
    """Always true: the owner has given the data up for good, in the named operation."""

    operation: str

    def check(self) -> None:
        """Raise InvalidEvent without an operation."""
        if not self.operation:
            raise InvalidEvent("a promise needs an operation id")

    @property
    def allows_prefix(self) -> bool:
        """All that lies there was given up."""
        return True

    @property
    def text(self) -> str:
        """The operation."""
        return f"promise {self.operation}"
