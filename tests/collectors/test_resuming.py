"""Kept states of listings, and where reports lie, without servers."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.collectors.test_decisions import SCOPE, promise, report_of

from sexton.schemas.errors import EnvironmentFault, InvalidSettings
from sexton.schemas.settings import load
from sexton.streaming_jobs.collectors.leftovers.room import ROOM, Counted, LeftoversPlan
from sexton.streaming_jobs.collectors.progress import Progress
from sexton.streaming_jobs.collectors.report import ReportState, ReportUnreadable
from sexton.streaming_jobs.collectors.reports import Folder, Reports, open_place
from sexton.streaming_jobs.collectors.resume import MOST_AGE_S, Range, Resume, Walked
from sexton.streaming_jobs.collectors.room import Scope
from sexton.streaming_jobs.collectors.walk import Walk

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PLAN = LeftoversPlan("data/", (promise("data/p/"),), ())
PARTS = [Counted("dropped-tenant", "t", 3, 30)]
WALKED = Walked((Range("data/x", None),), NOW, 5, 50)
NOTHING: Any = None


def kept(folder: Path, scope: Scope = SCOPE, endpoint: str | None = "http://store") -> Resume:
    """The state of a scope in a folder."""
    return Resume(Folder(folder), ROOM, scope, endpoint)


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    """Ranges, amounts, plan and parts are read as they were written, until the run is done."""
    resume = kept(tmp_path)
    assert resume.load(NOW) is None
    resume.save(WALKED, PLAN, PARTS)

    walked, plan, parts = resume.load(NOW + timedelta(seconds=MOST_AGE_S)) or pytest.fail("nothing")
    assert (walked, parts) == (WALKED, PARTS)
    assert [each.action for each in plan.promises] == [PLAN.promises[0].action]  # type: ignore[attr-defined]
    resume.done()
    assert resume.load(NOW) is None


def test_a_state_that_is_stale_or_of_something_else_is_not_believed(tmp_path: Path) -> None:
    """Too old, from the future, of another store, scope or version, or cut off: the listing begins anew."""
    resume = kept(tmp_path)
    resume.save(WALKED, PLAN, PARTS)
    assert resume.load(NOW + timedelta(seconds=MOST_AGE_S + 1)) is None
    assert resume.load(NOW - timedelta(seconds=1)) is None
    assert resume.load(NOW + timedelta(seconds=61), 60.0) is None
    assert kept(tmp_path, endpoint="http://other").load(NOW) is None
    assert kept(tmp_path, Scope("bucket", "data/t/")).load(NOW) is None
    (file,) = (tmp_path / "leftovers/state").iterdir()
    text = file.read_text()
    for other in (text[:-20], "[]", "{}", json.dumps({**json.loads(text), "version": 2})):
        file.write_text(other)
        assert resume.load(NOW) is None
    file.write_text(text)
    assert resume.load(NOW) is not None


def test_the_date_of_a_listing_is_its_oldest(tmp_path: Path) -> None:
    """What was written while it was listed is for the next run, whichever page came first."""
    walk = Walk(ROOM, SCOPE, NOTHING, kept(tmp_path), Progress(), PLAN, Walked((Range(),)))
    for seconds in (5, 0, 9):
        walk.count(1, 10, NOW + timedelta(seconds=seconds))
    assert (walk.walked.listed_at, walk.walked.objects, walk.walked.bytes) == (NOW, 3, 30)


def test_the_last_report_that_can_be_compared_with(tmp_path: Path) -> None:
    """Of the same scope, whole, and within its breaker or approved."""
    reports = Reports(Folder(tmp_path), "leftovers")

    def write(minute: int, scope: Scope = SCOPE, **fields: Any) -> str:
        name = reports.new_id(scope, NOW + timedelta(minutes=minute))
        reports.write(report_of(report_id=name, bucket=scope.bucket, prefix=scope.prefix, **fields))
        return name

    def last() -> str | None:
        found = reports.last(SCOPE)
        return found.report_id if found else None

    assert last() is None
    first = write(0)
    write(1, Scope("bucket", "other/"))
    write(2, state=ReportState.FAILED, listed_at=None)
    write(3, state=ReportState.REFUSED, breaker_open=True)
    assert last() == first
    approved = write(4, state=ReportState.EMITTED, breaker_open=True, approved_at=NOW)
    assert last() == approved


def test_what_was_asked_for(tmp_path: Path) -> None:
    """Attempts of reports that Kafka has acknowledged, by base; a report that was only tried is none."""
    reports, (base, number) = Reports(Folder(tmp_path), "leftovers"), ("leftovers-" + 32 * "0", 1)
    for state in (ReportState.REPORTED, ReportState.EMITTING, ReportState.REFUSED):
        reports.write(report_of(report_id=reports.new_id(SCOPE, NOW), state=state))
    assert reports.asked(NOW) == {}
    reports.write(report_of(report_id=reports.new_id(SCOPE, NOW), state=ReportState.EMITTED))
    assert reports.asked(NOW) == {base: {number: report_of().expires_at}}
    assert reports.asked(NOW + timedelta(days=8)) == {}


def test_a_report_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Who has to look at it is told which it is."""
    reports = Reports(Folder(tmp_path), "leftovers")
    reports.write(report_of())
    name = report_of().report_id
    (tmp_path / f"leftovers/{name}.jsonl").write_text("{")
    with pytest.raises(ReportUnreadable, match=name):
        reports.read(name)


def test_where_reports_lie(tmp_path: Path) -> None:
    """A folder, by default below the state's; a bucket; anything else is refused when settings are read."""
    default: Any = open_place(load({"SEXTON_STATE_DIR": str(tmp_path)}), NOTHING)
    default.write("leftovers/x", b"1")
    assert (tmp_path / "reports/leftovers/x").read_bytes() == b"1"
    for wrong in ("http://host/x", "s3://", "s3://_/x", "gs://bucket/x"):
        with pytest.raises(InvalidSettings, match="SEXTON_REPORTS"):
            load({"SEXTON_REPORTS": wrong})
    assert load({"SEXTON_REPORTS": "s3://reports/of/collectors"}).reports


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    """An environment fault that names the folder and the setting."""
    (tmp_path / "file").write_text("")
    place = Folder(tmp_path / "file")
    with pytest.raises(EnvironmentFault, match="reports cannot be kept"):
        place.write("leftovers/x", b"")
    with pytest.raises(EnvironmentFault, match="reports cannot be kept"):
        place.names("leftovers")
    with pytest.raises(EnvironmentFault, match="reports cannot be kept"):
        place.read("leftovers/x")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        """It is one."""
        return True


def test_progress_on_a_terminal_and_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that is rewritten, with the rate and the time that is left; elsewhere JSON lines."""
    clock = iter(range(1000))
    monkeypatch.setattr(
        "sexton.streaming_jobs.collectors.progress.time.monotonic", lambda: next(clock) * 20.0
    )
    terminal, file = _Terminal(), io.StringIO()
    for out in (terminal, file):
        progress = Progress(out)
        progress.begin(expected=3000, already=1000)
        progress.listed(2000)
        progress.note("run", runs=1)
    told = terminal.getvalue()
    assert "\r\033[Klisted 2000 objects, 50/s, about 20 s left" in told
    assert told.endswith("\r\033[Kcollect: run: runs 1\n")
    assert [json.loads(line) for line in file.getvalue().splitlines()] == [
        {"event": "listing", "objects": 2000, "objects_per_s": 50, "left_s": 20},
        {"event": "run", "runs": 1},
    ]
