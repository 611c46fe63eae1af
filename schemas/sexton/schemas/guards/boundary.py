"""The guard of boundary files."""

from __future__ import annotations

from dataclasses import dataclass

from sexton.schemas.errors import InvalidEvent
from sexton.schemas.guards.room import GuardRoom

__all__ = ["BoundaryGuard"]


@dataclass(frozen=True, slots=True)
class BoundaryGuard(GuardRoom):
    """True once the durable boundary of the namespace is at least `id`.

    `floor` is the boundary that its collector saw: one that is lower now, or gone, is an alarm and no pass.
    """

    namespace: str
    id: int
    floor: int | None = None

    def check(self) -> None:
        """Raise InvalidEvent without a namespace."""
        if not self.namespace:
            raise InvalidEvent("a boundary guard needs a namespace")

    @property
    def text(self) -> str:
        """Namespace and id."""
        return f"boundary {self.namespace} >= {self.id}"
