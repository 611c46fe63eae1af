"""The world of an intent of two phases: `b` goes after `a`, after a pause, and only while `other` is there.

Two clocks that know nothing of each other, a store whose replies are lost, a reaper that crashes, and records
that are read again. The rules are the product's own: `gate_of` makes the gate of the intent, `Gate.said`
says whether a phase may begin, `Now.is_past` what has passed. A safeguard that is one of them is switched off
in the product (`SWITCHES`); one that is an order of steps is restated in `phase_steps`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple

from tests.model.rules import Switch, SwitchedRules

from sexton.schemas import events
from sexton.streaming_jobs.reaper.execute.gate import Gate, gate_of
from sexton.streaming_jobs.reaper.execute.outcomes import Presence
from sexton.streaming_jobs.reaper.vetoes import Now, Said

START = datetime(2026, 1, 1, tzinfo=UTC)
TICK = timedelta(seconds=1)
PAUSE = 1
DELETED, ABSENT, CANCELLED = "deleted", "absent", "cancelled"

SAFEGUARDS = {
    "both-clocks": "an instant has passed once both clocks have passed it",
    "acknowledged-first": "a pause is counted from the acknowledged end of the phase before",
    "clock-ahead": "a pause ends by the clock that is ahead",
    "pause-kept": "the copy of an intent that waits has the instant at which it goes on",
    "asked-each-phase": "a veto is asked about again before each phase that it names",
    "unknown-waits": "a presence that nobody can tell is not yet",
    "veto-stops": "what a veto says counts",
    "cancelled-seen": "what may have gone is looked at before it is called cancelled",
    "outcome-final": "a record that is read again is not executed once the intent has its outcome",
    "last-copy": "of an intent's records the last one is executed alone",
}


class Record(NamedTuple):
    """The intent's record or a copy of it: `gone` says that `a` is, `touched` that something may be.

    `begun` is that an attempt at it has ended in a crash, `done` that it is not read again.
    """

    gone: bool = False
    touched: bool = False
    resumes_at: int | None = None
    begun: bool = False
    done: bool = False


class Attempt(NamedTuple):
    """One attempt at record `number`, and the step that it takes next.

    `date` is the time in the store's last reply, `answer` what it said of `other`, for the phase `asked`.
    """

    at: str
    number: int = 0
    phase: int = 0
    touched: bool = False
    date: int | None = None
    answer: Presence | None = None
    asked: int | None = None
    resumes_at: int | None = None
    cancelled: bool = False


class Truth(NamedTuple):
    """What nobody in the model knows, and the properties look at.

    `acknowledged` are both clocks when `a` was first acknowledged gone, `fixed` is the first instant at which
    a pause was to end, `there` whether `other` was there at any moment at which this attempt might have asked
    for its phase, `wrong` what was done that may not be.
    """

    acknowledged: tuple[int, int] | None = None
    fixed: int | None = None
    there: bool = False
    crashed: bool = False
    wrong: frozenset[str] = frozenset()


class Budget(NamedTuple):
    """How often the environment may still do its worst, and how often an intent may be deferred."""

    reaper_ticks: int = 0
    store_ticks: int = 0
    turns: int = 0
    unknown: int = 0
    losses: int = 0
    crashes: int = 0
    copies: int = 2


class PhaseWorld(NamedTuple):
    """One state; `outcome` has the word for `a` and for `b` once Kafka has acknowledged it."""

    reaper: int
    store: int
    a: bool
    b: bool
    other: bool
    records: tuple[Record, ...]
    attempt: Attempt
    outcome: tuple[str, str] | None
    truth: Truth
    budget: Budget


@dataclass(frozen=True, slots=True)
class PhaseSetup:
    """A small world: what the intent asks for, how far the store's clock is ahead, what may go wrong."""

    budget: Budget
    paused: bool = False
    veto: tuple[int, ...] = ()
    ahead: int = 0

    def start(self) -> PhaseWorld:
        """Return the first state: the intent stands in its topic, and everything is there."""
        begin, here = Attempt("begin"), (Record(),)
        return PhaseWorld(0, self.ahead, True, True, True, here, begin, None, Truth(), self.budget)


SWITCHES: Mapping[str, Sequence[Switch]] = {
    "both-clocks": [Switch(Now, "is_past", lambda now, instant: now.reaper > instant)],
}
"""The safeguards that are pure rules of the product, and can be taken out of it here."""


class PhaseRules(SwitchedRules):
    """The product's rules over the model's clocks, with at most one safeguard switched off."""

    safeguards = SAFEGUARDS
    switches = SWITCHES

    def __init__(self, setup: PhaseSetup, off: str | None = None) -> None:
        super().__init__(off)
        self.setup = setup
        vetoes = (events.OnlyWhileExists("other", setup.veto),) if setup.veto else ()
        action = events.DeleteObjects("bucket", (("a",), ("b",)), pause_s=PAUSE if setup.paused else 0)
        guards = (events.PromiseGuard("op"),)
        intent = events.DeletionIntent("i", "t", START, "node", guards, action, None, vetoes)
        self._gate = gate_of(intent) or Gate(())
        self.said = cache(self._said)

    def asks(self, phase: int) -> bool:
        """Return whether the store has to be asked before a phase, by the product's own gate."""
        return self._gate.asks(phase)

    def _said(
        self, phase: int, answer: Presence | None, resumes_at: int | None, reaper: int, date: int | None
    ) -> Said:
        """Return what the product's own gate says: Stop, Wait, or None where the phase may begin."""
        if answer is Presence.UNKNOWN and not self.on("unknown-waits"):
            answer = Presence.PRESENT
        asked = {} if answer is None else {0: answer}
        instant = None if resumes_at is None else _at(resumes_at)
        now = Now(_at(reaper), None if date is None else _at(date))
        return self._gate.said(phase, asked, now, instant)

    def pause_ends(self, reaper: int, date: int | None) -> int:
        """Return when a pause ends that begins now."""
        ahead = date is not None and self.on("clock-ahead")
        now = Now(_at(reaper), _at(date) if ahead and date is not None else None)
        return (self._gate.resumes_at(now) - START) // TICK


def _at(tick: int) -> datetime:
    return START + tick * TICK
