"""What the judge needs of a guard's room: what to ask about it in bulk, and a pure verdict on what was
answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sexton.issuer.client import Subject
from sexton.schemas.events import Position, VerdictResult
from sexton.schemas.windows import Window

__all__ = ["Facts", "Judging", "Met", "Never", "NotYet", "always"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What verdicts rest on, as of the micro-batch's barrier at `log_offset`.

    `windows` holds the issuer's answer for each subject: a window, None for a generation that was never
    issued in this form or whose window is forgotten, nothing for a tenant that the log does not know.
    `forgotten` holds the offsets at or below which forgotten windows ended; it changes no result, only the
    reason.
    """

    topic_id: str
    log_offset: int
    now: datetime
    windows: Mapping[Subject, Window | None] = field(default_factory=dict)
    forgotten: Mapping[Subject, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Met:
    """The guard holds."""


@dataclass(frozen=True, slots=True)
class Never:
    """The guard can never hold (`never`), or nobody can be asked about it (`refused`)."""

    reason: str
    detail: str
    result: VerdictResult = VerdictResult.NEVER


@dataclass(frozen=True, slots=True)
class NotYet:
    """Cannot be decided now; `retry_at` is when it may be, None when nobody knows."""

    reason: str
    detail: str
    retry_at: datetime | None = None


Said = Met | Never | NotYet
MET = Met()


def _nothing(guard: Any, partition: int) -> Iterable[Subject]:
    return ()


@dataclass(frozen=True, slots=True)
class Judging:
    """A guard's room: `verdict` of a guard of an intent at a position; `subjects` to ask the issuer about."""

    verdict: Callable[[Any, Position, Facts], Said]
    subjects: Callable[[Any, int], Iterable[Subject]] = _nothing

    @property
    def asks(self) -> bool:
        """Whether the issuer is asked about such a guard."""
        return self.subjects is not _nothing


def always(guard: Any, position: Position, facts: Facts) -> Said:
    """Return that the guard holds."""
    return MET
