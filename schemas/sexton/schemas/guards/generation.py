"""The guard of generation numbers, in both published forms."""

from __future__ import annotations

from dataclasses import dataclass

from sexton.schemas.checks import check_tenant
from sexton.schemas.errors import InvalidEvent, InvalidFormat
from sexton.schemas.generations import MAX_PACKED_PART, check_generation
from sexton.schemas.guards.room import GuardRoom

__all__ = ["GenerationGuard"]


@dataclass(frozen=True, slots=True)
class GenerationGuard(GuardRoom):
    """True for an intent that stands in the window of this generation.

    `node` and `node_generation` belong to tenants of the first form only, and then always.
    """

    tenant: str
    generation: int
    node: str | None = None
    node_generation: int | None = None

    def check(self) -> None:
        """Raise InvalidEvent for a tenant's name or a number that cannot be one."""
        check_tenant(self.tenant)
        try:
            check_generation(self.generation)
        except InvalidFormat as error:
            raise InvalidEvent(str(error)) from error
        if self.node_generation is not None and not 0 <= self.node_generation <= MAX_PACKED_PART:
            raise InvalidEvent(f"node generation out of range: {self.node_generation}")

    @property
    def text(self) -> str:
        """Tenant and number."""
        return f"generation {self.tenant}@{self.generation}"
