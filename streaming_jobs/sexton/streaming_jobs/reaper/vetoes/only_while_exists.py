"""Judging that an object is still there: what made this one garbage must not have vanished."""

from __future__ import annotations

from sexton.schemas.vetoes import OnlyWhileExists
from sexton.storage import Deleter
from sexton.streaming_jobs.reaper.execute.outcomes import Presence
from sexton.streaming_jobs.reaper.vetoes.presence import presence_of
from sexton.streaming_jobs.reaper.vetoes.room import Now, Said, Stop, Wait

__all__ = ["ask", "verdict"]


def ask(veto: OnlyWhileExists, bucket: str, deleter: Deleter) -> Presence:
    """Return whether the object is there; raises EnvironmentFault."""
    return presence_of(deleter, bucket, veto.key)[0]


def verdict(veto: OnlyWhileExists, asked: Presence, now: Now) -> Said:
    """Return that it stops where the object is gone, and waits where nobody can tell."""
    if asked is Presence.ABSENT:
        return Stop("vanished", f"{veto.key!r} is gone: {veto.text}")
    if asked is Presence.UNKNOWN:
        return Wait("veto-unknown", f"whether {veto.key!r} is there cannot be told")
    return None
