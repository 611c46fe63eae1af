"""What the judge needs of a guard's room: what to ask about it in bulk, and a pure verdict on what was
answered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sexton.issuer.client import Subject, TransactionFact, TransactionSubject
from sexton.schemas.actions import Action
from sexton.schemas.events import Position, VerdictResult
from sexton.schemas.tenant_prefix import TenantPrefix
from sexton.schemas.windows import Window

if TYPE_CHECKING:
    from sexton.streaming_jobs.reaper.execute.boundaries import Advanced
    from sexton.streaming_jobs.reaper.execute.paced import PacedDeleter

__all__ = [
    "Asked",
    "Case",
    "Facts",
    "Judging",
    "Met",
    "Never",
    "NotYet",
    "Said",
    "always",
    "of_another_topic",
    "unknown_tenant",
]

Asked = Subject | TransactionSubject
"""What the issuer may be asked about."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What verdicts rest on, as of the micro-batch's barrier at `log_offset`.

    `windows` holds the issuer's answer for each generation: a window, None for one that was never issued in
    this form or whose window is forgotten, nothing for a tenant that the log does not know. `forgotten` holds
    the offsets at or below which forgotten windows ended; it changes no result, only the reason.
    `transactions` holds the answer for each transaction, nothing for a tenant that the log does not know.
    """

    topic_id: str
    log_offset: int
    now: datetime
    windows: Mapping[Subject, Window | None] = field(default_factory=dict)
    forgotten: Mapping[Subject, int] = field(default_factory=dict)
    transactions: Mapping[TransactionSubject, TransactionFact] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """An intent before the judge: what it would delete, where it stands, what is known of what it claims.

    `tenant_prefix` is where tenants' objects lie, None where the reaper was not told. `passed`: all guards
    held before, says the dead letter that is replayed; it counts only where the log has forgotten.
    """

    action: Action
    position: Position
    facts: Facts
    tenant_prefix: TenantPrefix | None = None
    passed: bool = False


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


def _nothing(guard: Any, partition: int) -> Iterable[Asked]:
    return ()


@dataclass(frozen=True, slots=True)
class Judging:
    """A guard's room: `verdict` of a guard of an intent; `subjects` to ask the issuer about.

    `make_true` is there where the verdict only says that it may be made true, which is done last: for guards
    that write the same objects of a bucket at once, by a deleter that keeps to the budget; it only looks
    where the last argument, `dry`, is true.
    """

    verdict: Callable[[Any, Case], Said]
    subjects: Callable[[Any, int], Iterable[Asked]] = _nothing
    make_true: Callable[[PacedDeleter, str, Collection[Any], bool], Advanced] | None = None

    @property
    def asks(self) -> bool:
        """Whether the issuer is asked about such a guard."""
        return self.subjects is not _nothing


def always(guard: Any, case: Case) -> Said:
    """Return that the guard holds."""
    return MET


def of_another_topic(case: Case) -> Never | None:
    """Return that an intent stood in another topic: windows are offsets of the one that is there now."""
    topic_id = case.position.topic_id
    if topic_id == case.facts.topic_id:
        return None
    return Never("another-topic", f"it stood in a topic that is no more: {topic_id}")


def unknown_tenant(tenant: str) -> Never:
    """Return that the log does not know a tenant."""
    return Never("unknown-tenant", f"the log does not know tenant {tenant!r}", VerdictResult.REFUSED)
