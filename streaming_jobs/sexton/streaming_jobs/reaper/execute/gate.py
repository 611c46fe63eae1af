"""What is asked before the first request of a phase: vetoes, both clocks, and guards that are made true last.

At every attempt, as a veto need not be stable: what it said before is not believed. A guard of time was
judged by the reaper's clock; the bucket's has to have passed its instant, too, and both that at which a pause
ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sexton.schemas.events import DeletionIntent
from sexton.schemas.guards import Guard
from sexton.schemas.vetoes import Veto
from sexton.storage import Deleter
from sexton.streaming_jobs.reaper.guards import ROOMS as GUARDS
from sexton.streaming_jobs.reaper.vetoes import ROOMS, First, Now, Room, Said, Stop, Wait

__all__ = ["Gate", "gate_of"]

_ORDER = (Stop, Wait, First)
"""What stops comes before all that waits, and what has to go first last: by then everything else agrees."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The vetoes of an intent, the latest instant of its guards of time, and the pause between its phases.

    `unmade` are its guards that are made true once all that has passed.
    """

    vetoes: Sequence[Veto] = ()
    not_before: datetime | None = None
    pause_s: int = 0
    unmade: Sequence[Guard] = ()

    def asks(self, phase: int) -> bool:
        """Return whether the store has to be asked before a phase."""
        return any(room.ask is not None for _, _, room in self._of(phase))

    def ask(self, phase: int, bucket: str, deleter: Deleter) -> Mapping[int, Any]:
        """Return what the store answers, by the number of the veto; raises EnvironmentFault."""
        found = ((number, veto, room.ask) for number, veto, room in self._of(phase))
        return {number: ask(veto, bucket, deleter) for number, veto, ask in found if ask is not None}

    def resumes_at(self, now: Now) -> datetime:
        """Return when the pause ends that begins now, after a phase was acknowledged gone.

        By the clock that is ahead, so that the pause has passed by each of them once that instant has.
        """
        return max(now.reaper, now.store or now.reaper) + timedelta(seconds=self.pause_s)

    def said(
        self, phase: int, asked: Mapping[int, Any], now: Now, resumes_at: datetime | None = None
    ) -> Said:
        """Return why a phase may not begin, None if it may; `resumes_at` is when the pause before it ends."""
        answers: list[Said] = [_time(self.not_before, "not-before", now), _time(resumes_at, "paused", now)]
        answers += [room.verdict(veto, asked.get(number), now) for number, veto, room in self._of(phase)]
        found = (each for kind in _ORDER for each in answers if isinstance(each, kind))
        return next(found, None)

    def needs(self, phase: int) -> Iterator[str]:
        """Yield the keys of the objects that have to stand when a phase begins."""
        return (key for _, veto, _ in self._of(phase) for key in veto.needed)

    def _of(self, phase: int) -> Iterator[tuple[int, Veto, Room]]:
        for number, veto in enumerate(self.vetoes):
            if veto.names(phase):
                yield number, veto, ROOMS[type(veto)]


def gate_of(intent: DeletionIntent) -> Gate | None:
    """Return what is to be asked before phases of an intent, None where nothing is."""
    instants = [instant for guard in intent.guards if (instant := guard.holds_after) is not None]
    pause_s = intent.action.pause_between_s
    unmade = [guard for guard in intent.guards if GUARDS[type(guard)].make_true is not None]
    if not intent.vetoes and not instants and not pause_s and not unmade:
        return None
    return Gate(intent.vetoes, max(instants, default=None), pause_s, unmade)


def _time(instant: datetime | None, reason: str, now: Now) -> Wait | None:
    if instant is None or now.is_past(instant):
        return None
    if now.store is None:
        return Wait(reason, f"until {instant.isoformat()}, and the bucket has told no Date")
    # As the reaper's clock will show it then: one that is ahead would have it tried over and over.
    retry_at = max(instant, now.reaper + (instant - now.store))
    return Wait(reason, f"until {instant.isoformat()} by the reaper's and the bucket's clock", retry_at)
