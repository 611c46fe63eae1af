"""Judging expiry: what was planned from a listing is not executed once both clocks are past its instant."""

from __future__ import annotations

from sexton.schemas.vetoes import ExpiresAt
from sexton.streaming_jobs.reaper.vetoes.room import Now, Said, Stop

__all__ = ["verdict"]


def verdict(veto: ExpiresAt, asked: None, now: Now) -> Said:
    """Return that it stops once it has expired.

    By one clock alone it has not: the other one may be right, and what was asked for is late, not wrong.
    """
    if now.is_past(veto.instant):
        return Stop("expired", f"it was to be done {veto.text}")
    return None
