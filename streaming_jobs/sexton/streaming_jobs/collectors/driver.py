"""One run of a collector: list, decide, report, and only if asked to, emit.

The order is what makes a crash harmless. A report that says `emitting` lies there before the first intent
leaves, and `emitted` is said once Kafka has acknowledged all. Who dies in between is followed by a run that
asks under the same ids.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sexton.producers._emitter import Emitter
from sexton.producers._limits import Limits
from sexton.schemas.errors import EnvironmentFault, SextonError, UsageError
from sexton.schemas.intents import DeletionIntent, check_form
from sexton.schemas.vetoes import ExpiresAt
from sexton.storage import ListingFault
from sexton.streaming_jobs.collectors.attempts import FindingState, base_id, intent_id, next_attempt
from sexton.streaming_jobs.collectors.decision import (
    NOT_ASKED,
    Options,
    check_approvable,
    covered_by_others,
    garbage_of,
    judged,
)
from sexton.streaming_jobs.collectors.outcomes import ended_attempts
from sexton.streaming_jobs.collectors.progress import Progress
from sexton.streaming_jobs.collectors.report import Finding, Report, ReportState
from sexton.streaming_jobs.collectors.reports import Reports, open_place
from sexton.streaming_jobs.collectors.resume import Range, Resume, Walked
from sexton.streaming_jobs.collectors.room import Found, Gone, Room, Sources
from sexton.streaming_jobs.collectors.walk import Stopped, Walk, walk_here

__all__ = ["Driver", "EmptyListing", "Stopped"]

EMPTY = "empty-listing"
INEXACT = "listing-not-exact"
_EMIT_S = 120.0


class EmptyListing(SextonError):
    """Nothing at all is listed: of that nobody concludes that everything is garbage."""

    usual_hint = "is the bucket the right one, and the prefix spelled as in its keys?"


_REASONS: dict[type[SextonError], str] = {EmptyListing: EMPTY, ListingFault: INEXACT}


class Driver:
    """Runs one collector; `stopped` says that a stop was asked for."""

    def __init__(
        self,
        room: Room,
        sources: Sources,
        options: Options,
        *,
        progress: Progress | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._room = room
        self._sources = sources
        self._settings = sources.settings
        self._options = options
        self._scope = options.scope
        self._progress = progress or Progress()
        self._stopped = stopped
        self._place = open_place(self._settings, sources.store)
        self._reports = Reports(self._place, room.name)
        self._resume = Resume(self._place, room, self._scope, self._settings.s3_endpoint_url)

    def run(self) -> Report:
        """List, decide, report, emit; return the report.

        A run that fails leaves a report that says why, and raises what it failed by; Stopped leaves none.
        """
        started = datetime.now(UTC)
        report_id = self._reports.new_id(self._scope, started)
        try:
            report, gone = self._made(report_id, started)
        except SextonError as error:
            if not isinstance(error, EnvironmentFault):
                self._resume.done()  # it would fail there again
            self._reports.write(self._failed(report_id, started, error))
            raise
        self._reports.write(report)
        if report.state is ReportState.EMITTING:
            report = self._emitted(report)
        # Where the breaker has opened the listing may be of another place: of that nothing is proven.
        if gone and self._options.emit and report.state is not ReportState.REFUSED:
            report = self._noted(report, gone)
        return report

    def approve(self, report_id: str) -> Report:
        """Emit exactly what a report lists, and return the report as it is then.

        Raises NotApprovable, UnknownReport, ReportUnreadable.
        """
        report, now = self._reports.read(report_id), datetime.now(UTC)
        check_approvable(report, self._room.name, self._scope, now)
        approved = replace(report, state=ReportState.EMITTING, reason="", detail="", approved_at=now)
        self._reports.write(approved)
        return self._emitted(approved)

    def _made(self, report_id: str, started: datetime) -> tuple[Report, Sequence[Gone]]:
        last = self._reports.last(self._scope)
        walk = self._walk(last)
        self._progress.end()
        if not walk.walked.objects or walk.walked.listed_at is None:
            raise EmptyListing(f"the listing is empty: {self._scope.text}")
        listed_at = walk.walked.listed_at
        # Not before all is listed: what keeps an object has to be as new as the sight of it.
        plan = self._room.complete(walk.plan, self._scope, walk.parts, self._sources, listed_at)
        found = self._room.decide(plan, self._scope, walk.parts)
        gone = self._room.gone(plan, self._scope, walk.parts)
        expires_at = listed_at + timedelta(seconds=self._options.expires_in_s)
        findings = self._findings(found, listed_at, expires_at)
        findings += [
            Finding(each.cause, "", each.tenant, each.detail, 0, 0, FindingState.NOT_RESOLVABLE)
            for each in plan.unresolved
        ]
        findings += [self._nothing_left(each) for each in gone]
        garbage = garbage_of(found)
        report = Report(
            report_id,
            self._room.name,
            self._scope.bucket,
            self._scope.prefix,
            ReportState.REPORTED,
            NOT_ASKED,
            "",
            started,
            datetime.now(UTC),
            listed_at,
            expires_at,
            walk.walked.objects,
            walk.walked.bytes,
            garbage.objects,
            garbage.bytes,
            findings=findings,
        )
        self._resume.done()
        return judged(report, last.garbage if last else None, self._options), gone

    def _walk(self, last: Report | None) -> Walk:
        # What is left of the time until its intents expire has to be enough to execute them.
        kept = self._resume.load(datetime.now(UTC), self._options.expires_in_s / 2)
        if kept is None:
            kept = Walked([Range()]), self._room.plan(self._scope, self._sources), []
        else:
            self._progress.note("resumed", objects=kept[0].objects)
        walked, plan, parts = kept
        self._progress.begin(last.objects if last else 0, walked.objects)
        walk = Walk(
            self._room,
            self._scope,
            self._sources,
            self._resume,
            self._progress,
            plan,
            walked,
            parts,
            self._stopped,
        )
        self._walker()(walk)
        return walk

    def _walker(self) -> Callable[[Walk], None]:
        if not self._options.spark:
            return walk_here
        try:
            from sexton.streaming_jobs.collectors.spark import walk_on_spark
        except ImportError as error:
            raise UsageError(
                f"--spark needs Spark: {error}", hint='pip install "sexton[streaming]"'
            ) from error
        return walk_on_spark

    def _findings(self, found: Sequence[Found], listed_at: datetime, expires_at: datetime) -> list[Finding]:
        covered = covered_by_others(found)
        bases = {base_id(self._room.name, each.identity) for each in found}
        ended = ended_attempts(self._settings, bases)
        asked = self._reports.asked(listed_at) if found else {}
        findings = []
        for each in found:
            base = base_id(self._room.name, each.identity)
            due = next_attempt(ended.get(base, {}), asked.get(base, {}), listed_at)
            intent = self._intent(each, intent_id(base, due.attempt), listed_at, expires_at)
            state, detail = due.state, due.detail
            refusal = intent.action.refusal(self._settings.reaper_prefix_depth)
            if refusal is not None:
                state, detail = FindingState.NOT_EXECUTABLE, refusal.detail
            elif id(each) in covered:
                state, detail = FindingState.COVERED, "another finding covers it"
            told = "; ".join(filter(None, (each.detail, detail)))
            place = f"s3://{self._scope.bucket}/{each.covers}"
            findings.append(
                Finding(each.cause, place, intent.tenant, told, each.objects, each.bytes, state, intent)
            )
        return findings

    def _intent(self, found: Found, name: str, listed_at: datetime, expires_at: datetime) -> DeletionIntent:
        body = found.body(listed_at)
        emitter = f"sexton-collect-{self._room.name}@{socket.gethostname()}/{os.getpid()}"
        vetoes = (*body.vetoes, ExpiresAt(expires_at))
        intent = DeletionIntent(
            name, body.tenant, listed_at, emitter, tuple(body.guards), body.action, vetoes=vetoes
        )
        check_form(intent)
        return intent

    def _emitted(self, report: Report) -> Report:
        emitter = Emitter.open(self._settings, Limits(delivery_timeout=_EMIT_S), any_key=True)
        try:
            emitter.emit(report.intents, _EMIT_S).wait(_EMIT_S)
        finally:
            emitter.close(1.0)
        done = replace(report, state=ReportState.EMITTED, ended_at=datetime.now(UTC))
        self._reports.write(done)
        return done

    def _nothing_left(self, gone: Gone) -> Finding:
        place, state = f"s3://{self._scope.bucket}/{gone.covers}", FindingState.NOTHING_LEFT
        return Finding(gone.cause, place, gone.tenant, gone.detail, 0, 0, state)

    def _noted(self, report: Report, gone: Sequence[Gone]) -> Report:
        """Say to the issuer what is gone; what it was not told of is listed again by the next run."""
        findings = [each for each in report.findings if each.state is not FindingState.NOTHING_LEFT]
        for each in gone:
            if each.note is None:
                findings.append(self._nothing_left(each))
                continue
            offset = each.note(self._sources.issuer)
            told = f"{each.detail}; collected at log offset {offset}"
            findings.append(replace(self._nothing_left(each), state=FindingState.COLLECTED, detail=told))
        done = replace(report, findings=findings, ended_at=datetime.now(UTC))
        self._reports.write(done)
        return done

    def _failed(self, report_id: str, started: datetime, error: SextonError) -> Report:
        reason = _REASONS.get(type(error), type(error).__name__)
        scope, ended = self._scope, datetime.now(UTC)
        return Report(
            report_id,
            self._room.name,
            scope.bucket,
            scope.prefix,
            ReportState.FAILED,
            reason,
            error.with_hint,
            started,
            ended,
        )
