"""A run's report as values, JSON lines and a table: what is garbage and why, and what was done about it.

The first line is the report, with the version of the form; each further one is a finding. Readers take their
own version and all older ones; a new field has a default.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from sexton.schemas.errors import InvalidEvent, UsageError
from sexton.schemas.forms import from_json, to_json
from sexton.schemas.intents import DeletionIntent
from sexton.schemas.text import counted, instant_text, printable
from sexton.streaming_jobs.collectors.attempts import FindingState
from sexton.streaming_jobs.collectors.breaker import Amount
from sexton.streaming_jobs.collectors.room import Scope

__all__ = [
    "VERSION",
    "Finding",
    "Report",
    "ReportState",
    "ReportUnreadable",
    "from_lines",
    "table",
    "to_lines",
]

VERSION = 1


class ReportUnreadable(UsageError):
    """A report is not one, is cut off, or has a newer form."""


class ReportState(StrEnum):
    """How far a run has come, and whether its intents are in Kafka."""

    REPORTED = "reported"
    REFUSED = "refused"
    FAILED = "failed"
    EMITTING = "emitting"
    EMITTED = "emitted"


@dataclass(frozen=True, slots=True)
class Finding:
    """Garbage of one cause at one place; `intent` is what asks for it, where something may."""

    cause: str
    place: str
    tenant: str
    detail: str
    objects: int
    bytes: int
    state: FindingState
    intent: DeletionIntent | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A run: what was listed (up to `listed_at`, the store's Date), and what is garbage.

    `reason` is a stable code of why nothing was emitted, empty where something was. `expires_at` is the
    expiry of its intents. `breaker_open` says whether the amounts were more than is likely.
    """

    report_id: str
    collector: str
    bucket: str
    prefix: str
    state: ReportState
    reason: str
    detail: str
    started_at: datetime
    ended_at: datetime
    listed_at: datetime | None = None
    expires_at: datetime | None = None
    objects: int = 0
    bytes: int = 0
    garbage_objects: int = 0
    garbage_bytes: int = 0
    breaker_open: bool = False
    approved_at: datetime | None = None
    findings: Sequence[Finding] = field(default_factory=list)

    @property
    def scope(self) -> Scope:
        """What was listed."""
        return Scope(self.bucket, self.prefix)

    @property
    def garbage(self) -> Amount:
        """How much is garbage."""
        return Amount(self.garbage_objects, self.garbage_bytes)

    @property
    def intents(self) -> list[DeletionIntent]:
        """The intents that this report asks with, if it is emitted."""
        asking = (each for each in self.findings if each.state is FindingState.ASK)
        return [each.intent for each in asking if each.intent is not None]


def to_lines(report: Report) -> Iterator[str]:
    """Yield the JSON lines of a report, without their ends."""
    head = to_json(replace(report, findings=[]))
    del head["findings"]
    yield json.dumps({"version": VERSION, "findings": len(report.findings), "report": head})
    for finding in report.findings:
        yield json.dumps({"finding": to_json(finding)})


def from_lines(text: str) -> Report:
    """Return the report of its JSON lines; raises ReportUnreadable."""
    try:
        head, *lines = [json.loads(line) for line in text.splitlines()]
        version, count = head["version"], head["findings"]
        if version > VERSION:
            raise ReportUnreadable(f"a newer version has written the report: form {version}")
        if count != len(lines):
            raise ReportUnreadable(f"a report of {counted(count, 'finding')} has {len(lines)}")
        findings = [from_json(Finding, line["finding"]) for line in lines]
        return from_json(Report, head["report"], defaults={"findings": findings})
    except (ValueError, KeyError, TypeError, InvalidEvent) as error:
        raise ReportUnreadable(f"not a collector's report: {error}") from error


def table(report: Report) -> Iterator[str]:
    """Yield the lines of a report for people."""
    for name, value in _facts(report):
        yield f"{name:<9} {printable(value)}"
    if not report.findings:
        return
    rows: list[tuple[str, ...]] = [("CAUSE", "STATE", "OBJECTS", "BYTES", "PLACE", "INTENT", "")]
    rows += [_row(each) for each in report.findings]
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    yield ""
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:6], widths, strict=True)]
        yield "  ".join([*cells, row[6]]).rstrip()


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    yield "report", report.report_id
    yield "scope", report.scope.text
    if report.listed_at is not None:
        size = _size(report.bytes)
        yield "listed", f"{counted(report.objects, 'object')}, {size}, {instant_text(report.listed_at)}"
        share = report.garbage_objects / report.objects if report.objects else 0.0
        garbage = counted(report.garbage_objects, "object")
        yield "garbage", f"{garbage}, {_size(report.garbage_bytes)} ({share:.1%} of the objects)"
    if report.expires_at is not None:
        yield "expires", instant_text(report.expires_at)
    yield "state", ": ".join(filter(None, (report.state.value, report.reason, report.detail)))


def _row(finding: Finding) -> tuple[str, ...]:
    intent = finding.intent.intent_id if finding.intent else "-"
    cells = (finding.cause, finding.state.value, str(finding.objects), str(finding.bytes))
    return (*cells, printable(finding.place) or "-", intent, printable(finding.detail))


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
