"""What a writer of sequenced metadata counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

__all__ = ["SequencedStatistics"]


@dataclass(frozen=True, slots=True)
class SequencedStatistics:
    """What a writer has done since it was made.

    `created` were confirmed by the boundary, `taken` found another one's file, `stale` were at or below the
    boundary, `refused` were certainly not written: of these each create is at most one. `unknown` counts how
    often SequencedUnknown was raised. `checks` of the boundary took `check_seconds`, `longest_check` one.
    """

    created: int = 0
    taken: int = 0
    stale: int = 0
    refused: int = 0
    unknown: int = 0
    checks: int = 0
    check_seconds: float = 0.0
    longest_check: float = 0.0

    def and_one(self, what: Literal["created", "taken", "stale", "refused", "unknown"]) -> Self:
        """Return them with one more of a kind."""
        return replace(self, **{what: getattr(self, what) + 1})

    def checked(self, seconds: float) -> Self:
        """Return them with one more check of the boundary, which took so long."""
        return replace(
            self,
            checks=self.checks + 1,
            check_seconds=self.check_seconds + seconds,
            longest_check=max(self.longest_check, seconds),
        )
