"""What the execute stage needs of a veto's room: what to ask the store, and a pure verdict on the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sexton.schemas.events import OutcomeKind
from sexton.storage import Deleter

__all__ = ["First", "Now", "Room", "Said", "Stop", "Wait"]


@dataclass(frozen=True, slots=True)
class Now:
    """The time by two clocks; `store` is that of the bucket's last reply, None where it has told none."""

    reaper: datetime
    store: datetime | None

    def is_past(self, instant: datetime) -> bool:
        """Return whether both clocks have passed an instant; one that is not known has not."""
        return self.reaper > instant and self.store is not None and self.store > instant


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more of the intent is sent, and each key that is left has the outcome `kind`."""

    reason: str
    detail: str
    kind: OutcomeKind = OutcomeKind.CANCELLED


@dataclass(frozen=True, slots=True)
class Wait:
    """Nobody can tell now; `retry_at` is when it may be, None when nobody knows."""

    reason: str
    detail: str
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class First:
    """The phase may begin once this key is gone, which an earlier phase had deleted: it has come back."""

    key: str


Said = Stop | Wait | First | None
"""None lets the phase begin."""


@dataclass(frozen=True, slots=True)
class Room:
    """A veto's room: `verdict(veto, what was asked, now)`, and `ask(veto, bucket, deleter)` where it asks."""

    verdict: Callable[[Any, Any, Now], Said]
    ask: Callable[[Any, str, Deleter], Any] | None = None
