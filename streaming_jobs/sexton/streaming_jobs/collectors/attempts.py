"""Intent ids that two runs share, and which number of attempt may be asked for. Pure.

An id is made of what is deleted and why, and the number: whoever finds the same garbage asks under the same
id, and the outcomes of both fold to one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sexton.schemas.outcomes import OutcomeKind, rank
from sexton.schemas.text import instant_text

__all__ = ["Ended", "FindingState", "Next", "base_id", "better", "intent_id", "next_attempt", "parse_id"]

EXPIRED = "expired"
_PERMITS = frozenset((OutcomeKind.DELETED, OutcomeKind.ABSENT, OutcomeKind.STALE, OutcomeKind.CHANGED))


class FindingState(StrEnum):
    """What a run makes of garbage that it has found."""

    ASK = "ask"
    PENDING = "pending"
    NEEDS_A_PERSON = "needs-a-person"
    COVERED = "covered"
    NOT_RESOLVABLE = "not-resolvable"
    NOT_EXECUTABLE = "not-executable"
    NOTHING_LEFT = "nothing-left"
    COLLECTED = "collected"


@dataclass(frozen=True, slots=True)
class Ended:
    """The final outcome of an attempt, with the reason of its verdict."""

    outcome: OutcomeKind
    reason: str

    @property
    def permits_next(self) -> bool:
        """Return whether the same may be asked for again without a person."""
        if self.outcome is OutcomeKind.CANCELLED:
            return self.reason == EXPIRED  # what a person has cancelled is not asked for again
        return self.outcome in _PERMITS


@dataclass(frozen=True, slots=True)
class Next:
    """The attempt that an object's garbage is at, what may be done, and why."""

    attempt: int
    state: FindingState
    detail: str


def base_id(collector: str, identity: Sequence[str]) -> str:
    """Return the part of an intent id that all attempts share."""
    named = json.dumps([collector, *identity], ensure_ascii=True).encode()
    return f"{collector}-{hashlib.sha256(named).hexdigest()[:32]}"


def intent_id(base: str, attempt: int) -> str:
    """Return the intent id of an attempt; the first is 1."""
    return f"{base}-{attempt}"


def parse_id(text: str) -> tuple[str, int] | None:
    """Return base and attempt of an intent id, None for one that no collector has made."""
    base, _, number = text.rpartition("-")
    return (base, int(number)) if base and number.isascii() and number.isdigit() else None


def better(one: Ended, other: Ended) -> Ended:
    """Return which of two outcomes of one attempt holds: by precedence, and of equals what permits less."""
    return max((one, other), key=lambda each: (rank(each.outcome), not each.permits_next))


def next_attempt(ended: Mapping[int, Ended], asked: Mapping[int, datetime], now: datetime) -> Next:
    """Return which attempt is due.

    `ended` are the attempts with a final outcome, `asked` those that reports show as emitted, with the
    instant at which each expires. One that has expired without an outcome is asked for once more, as itself.
    """
    last = max(ended, default=0)
    if last and not ended[last].permits_next:
        found = ended[last]
        detail = f"attempt {last} is {found.outcome.value}: {found.reason}; nobody asks again by himself"
        return Next(last, FindingState.NEEDS_A_PERSON, detail)
    attempt = max(last + 1, *asked) if asked else last + 1
    expires = asked.get(attempt)
    if expires is not None and now <= expires:
        detail = f"attempt {attempt} is asked for, {instant_text(expires)} it expires"
        return Next(attempt, FindingState.PENDING, detail)
    return Next(attempt, FindingState.ASK, "" if attempt == 1 else f"attempt {attempt}")
