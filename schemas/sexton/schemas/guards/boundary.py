"""The guard of boundary files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from sexton.schemas.errors import InvalidEvent, InvalidFormat
from sexton.schemas.guards.room import GuardRoom
from sexton.schemas.sequenced import MAX_FILE_ID, Namespace

__all__ = ["BoundaryGuard"]


@dataclass(frozen=True)  # without slots: the namespace is parsed once
class BoundaryGuard(GuardRoom):
    """True once the durable boundary of the namespace is at least `id`, which the reaper brings about.

    `namespace` is root and name of a `Namespace` in the action's bucket, `id` 1 to 2^63 - 1.
    `floor` is the boundary that its collector saw: one that is lower now, or gone, is an alarm and no pass.
    """

    namespace: str
    id: int
    floor: int | None = None

    def check(self) -> None:
        """Raise InvalidEvent unless the namespace is one, and id and floor are ids of files."""
        if not self.namespace:
            raise InvalidEvent("a boundary guard needs a namespace")
        try:
            _ = self.space
        except InvalidFormat as error:
            raise InvalidEvent(str(error)) from error
        if not 1 <= self.id <= MAX_FILE_ID:
            raise InvalidEvent(f"a boundary guard's id is 1 to 2^63 - 1: {self.id}")
        if self.floor is not None and not 0 <= self.floor <= MAX_FILE_ID:
            raise InvalidEvent(f"a boundary guard's floor is 0 to 2^63 - 1: {self.floor}")

    @cached_property
    def space(self) -> Namespace:
        """The namespace; raises InvalidFormat for a text that names none."""
        return Namespace.of(self.namespace)

    @property
    def writes(self) -> Sequence[str]:
        """The boundary object's key."""
        return (self.space.boundary_key,)

    @property
    def text(self) -> str:
        """Namespace and id."""
        return f"boundary {self.namespace} >= {self.id}"
