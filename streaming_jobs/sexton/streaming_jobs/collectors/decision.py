"""What may become of a run: only reported, refused, or emitted. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sexton.schemas.errors import UsageError
from sexton.schemas.text import instant_text
from sexton.streaming_jobs.collectors import breaker
from sexton.streaming_jobs.collectors.breaker import Amount
from sexton.streaming_jobs.collectors.report import Report, ReportState
from sexton.streaming_jobs.collectors.room import Found, Scope

__all__ = [
    "NOTHING",
    "NOT_ASKED",
    "NotApprovable",
    "Options",
    "check_approvable",
    "covered_by_others",
    "garbage_of",
    "judged",
]

NOT_ASKED = "not-asked-to"
NOTHING = "nothing-to-ask"
LATE = "expired"


class NotApprovable(UsageError):
    """A report that may not be emitted: of another scope, expired, without intents, or emitted already."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a run is made: `expires_in_s` is counted from the Date of the listing."""

    scope: Scope
    emit: bool = False
    max_share: float = 0.2
    expires_in_s: float = 24 * 3600.0
    spark: bool = False


def judged(report: Report, last: Amount | None, options: Options) -> Report:
    """Return the report with what may become of it: only reported, refused, or to be emitted. Pure."""
    opened = breaker.check(Amount(report.objects, report.bytes), report.garbage, last, options.max_share)
    if opened is not None:
        return replace(
            report,
            state=ReportState.REFUSED,
            reason=opened.reason,
            detail=opened.detail,
            breaker_open=True,
        )
    if not options.emit:
        return report
    if not report.intents:
        return replace(report, reason=NOTHING)
    if report.expires_at is None or report.ended_at >= report.expires_at:
        detail = "the listing took longer than its intents may wait"
        return replace(report, state=ReportState.REFUSED, reason=LATE, detail=detail)
    return replace(report, state=ReportState.EMITTING, reason="")


def check_approvable(report: Report, collector: str, scope: Scope, now: datetime) -> None:
    """Raise NotApprovable unless the report is of this collector and scope, unexpired, and has intents."""
    if report.collector != collector or report.scope != scope:
        raise NotApprovable(f"the report is of another scope: {report.collector} {report.scope.text}")
    if report.state is ReportState.EMITTED:
        raise NotApprovable(f"the report is emitted already: {report.report_id}")
    if not report.intents or report.expires_at is None:
        raise NotApprovable(f"the report asks for nothing: {report.report_id}")
    if now >= report.expires_at:
        raise NotApprovable(
            f"the report has expired: {instant_text(report.expires_at)}", hint="a new run lists anew"
        )


def _maximal(found: Sequence[Found]) -> list[Found]:
    """Return the findings that lie in no other one that covers all of them; of equal ones the first."""
    outer: list[Found] = []
    last: Found | None = None
    order = {id(each): number for number, each in enumerate(found)}
    for each in sorted(found, key=lambda one: (one.covers, not one.whole, order[id(one)])):
        if last is not None and each.covers.startswith(last.covers):
            continue
        outer.append(each)
        if each.whole:
            last = each
    return outer


def garbage_of(found: Sequence[Found]) -> Amount:
    """Return how much is garbage, what lies in two findings once."""
    outer = _maximal(found)
    return Amount(sum(each.objects for each in outer), sum(each.bytes for each in outer))


def covered_by_others(found: Sequence[Found]) -> frozenset[int]:
    """Return the `id` of each finding that another one, which deletes in the same way, covers."""
    ways = {each.way for each in found}
    outer = {id(each) for way in ways for each in _maximal([one for one in found if one.way == way])}
    return frozenset(id(each) for each in found if id(each) not in outer)
