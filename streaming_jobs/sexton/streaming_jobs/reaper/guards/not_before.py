"""Judging time: the instant has passed, strictly."""

from __future__ import annotations

from sexton.schemas.guards import NotBeforeGuard
from sexton.streaming_jobs.reaper.guards.room import MET, Case, NotYet, Said

__all__ = ["verdict"]


def verdict(guard: NotBeforeGuard, case: Case) -> Said:
    """Return whether the clock is past the instant."""
    if case.facts.now > guard.instant:
        return MET
    return NotYet("not-before", f"until {guard.instant.isoformat()}", guard.instant)
