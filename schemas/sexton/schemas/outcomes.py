"""What became of a key or an intent, in one of seven words, and which of several holds."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

__all__ = ["WORST_FIRST", "OutcomeKind", "VerdictResult", "rank", "worst"]


class OutcomeKind(StrEnum):
    """The final outcome of an intent or a key."""

    DELETED = "deleted"
    ABSENT = "absent"
    STALE = "stale"
    CHANGED = "changed"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    DEAD_LETTERED = "dead-lettered"


class VerdictResult(StrEnum):
    """How the guards of an intent with a final outcome were judged."""

    PASS = "pass"
    NEVER = "never"
    REFUSED = "refused"


WORST_FIRST = (
    OutcomeKind.DEAD_LETTERED,
    OutcomeKind.CANCELLED,
    OutcomeKind.STALE,
    OutcomeKind.REFUSED,
    OutcomeKind.CHANGED,
    OutcomeKind.ABSENT,
    OutcomeKind.DELETED,
)
"""An intent has the outcome of its worst key; of what several records say of one key the best holds."""

_RANKS = {kind: number for number, kind in enumerate(WORST_FIRST, 1)}


def rank(kind: OutcomeKind) -> int:
    """Return the place of an outcome from the worst, 1; gone is gone: `deleted` and `absent` share one."""
    return min(_RANKS[kind], _RANKS[OutcomeKind.ABSENT])


def worst(kinds: Iterable[OutcomeKind]) -> OutcomeKind | None:
    """Return the worst of some outcomes, `absent` before `deleted`; None of none."""
    return min(kinds, key=_RANKS.__getitem__, default=None)
