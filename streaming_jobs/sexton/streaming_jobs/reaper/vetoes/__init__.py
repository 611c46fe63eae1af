"""Vetoes, judged: each has a room here, and `ROOMS` names them all."""

from __future__ import annotations

from collections.abc import Mapping

from sexton.schemas.vetoes import ExpiresAt, OnlyWhileExists, UnlessWhole, Veto
from sexton.streaming_jobs.reaper.vetoes import expires_at, only_while_exists, unless_whole
from sexton.streaming_jobs.reaper.vetoes.room import First, Now, Room, Said, Stop, Wait

__all__ = ["ROOMS", "First", "Now", "Room", "Said", "Stop", "Wait"]

ROOMS: Mapping[type[Veto], Room] = {
    ExpiresAt: Room(expires_at.verdict),
    OnlyWhileExists: Room(only_while_exists.verdict, only_while_exists.ask),
    UnlessWhole: Room(unless_whole.verdict, unless_whole.ask),
}
