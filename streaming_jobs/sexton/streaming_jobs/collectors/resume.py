"""How far a listing has come, kept beside the reports: a run that was killed continues where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sexton.schemas.errors import InvalidEvent
from sexton.schemas.forms import from_json, to_json
from sexton.streaming_jobs.collectors.reports import Place, scope_name
from sexton.streaming_jobs.collectors.room import Part, Plan, Room, Scope

__all__ = ["MOST_AGE_S", "Range", "Resume", "Walked", "binding_of"]

MOST_AGE_S = 6 * 3600.0
"""A listing that began longer ago is begun anew: it is decided upon as one, as of its first Date."""
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Range:
    """Keys after one (None: from the first on) up to another one and with it (None: to the last)."""

    after: str | None = None
    until: str | None = None


@dataclass(frozen=True, slots=True)
class Walked:
    """What is listed so far: `left` are the ranges still to list, `listed_at` the Date of the first page."""

    left: Sequence[Range]
    listed_at: datetime | None = None
    objects: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Head:
    binding: str
    walked: Walked


def binding_of(room: Room, scope: Scope, endpoint: str | None) -> str:
    """Return what a kept state has to be of: the collector with its options, the scope, the store."""
    named = json.dumps(
        [_VERSION, room.name, sorted(room.given.items()), scope.bucket, scope.prefix, endpoint]
    )
    return hashlib.sha256(named.encode()).hexdigest()


class Resume:
    """The kept state of one collector and scope."""

    def __init__(self, place: Place, room: Room, scope: Scope, endpoint: str | None) -> None:
        self._place = place
        self._room = room
        self._name = f"{room.name}/state/{scope_name(scope)}.json"
        self._binding = binding_of(room, scope, endpoint)

    def load(self, now: datetime, most_age_s: float = MOST_AGE_S) -> tuple[Walked, Plan, list[Part]] | None:
        """Return what was kept, None where it is of something else, too old, unreadable, or done."""
        body = self._place.read(self._name)
        if body is None:
            return None
        try:
            kept = json.loads(body)
            if kept.get("version") != _VERSION or kept.get("done"):
                return None
            head = from_json(_Head, kept["head"])
            plan: Plan = from_json(self._room.plan_type, kept["plan"])
            parts = [from_json(self._room.part_type, part) for part in kept["parts"]]
        except (ValueError, KeyError, TypeError, AttributeError, InvalidEvent):
            return None  # begun anew: a listing costs time, a wrong state would cost objects
        began = head.walked.listed_at
        if head.binding != self._binding or began is None:
            return None
        if not timedelta(0) <= now - began <= timedelta(seconds=min(most_age_s, MOST_AGE_S)):
            return None
        return head.walked, plan, parts

    def save(self, walked: Walked, plan: Plan, parts: Sequence[Part]) -> None:
        """Keep how far the listing has come."""
        kept: dict[str, Any] = {"version": _VERSION, "head": to_json(_Head(self._binding, walked))}
        kept |= {"plan": to_json(plan), "parts": [to_json(part) for part in parts]}
        self._place.write(self._name, json.dumps(kept).encode())

    def done(self) -> None:
        """Say that there is nothing to continue; the file stays, as nothing is deleted here."""
        self._place.write(self._name, json.dumps({"version": _VERSION, "done": True}).encode())
