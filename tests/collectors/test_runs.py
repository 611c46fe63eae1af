"""Runs of the collector: the breaker, two at once, crashes, a listing in two halves, again and again."""

from __future__ import annotations

import json
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.collecting import Collecting, lines, report_files, states
from tests.support.s3_recorder import Recorded, Reply, S3Recorder
from tests.support.waits import until

from sexton.schemas.errors import UsageError
from sexton.streaming_jobs.collectors import driver as driver_module
from sexton.streaming_jobs.collectors.decision import NotApprovable
from sexton.streaming_jobs.collectors.report import ReportState
from sexton.streaming_jobs.collectors.reports import UnknownReport

pytestmark = [pytest.mark.real, pytest.mark.faults]

KILLED = """
import os, signal
from sexton.streaming_jobs.collectors import reports
write = reports.Reports.write
def dies(self, report):
    if report.state == "emitted":
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, report)
reports.Reports.write = dies
"""


def test_g_5_more_garbage_than_the_share_is_asked_for_by_a_person_alone(collecting: Collecting) -> None:
    """G-5: 21 % garbage emits nothing and exits with 1; the report has an id, and approved it is emitted."""
    dropped, kept = collecting.tenant(dropped=True), collecting.tenant(dropped=False)
    collecting.put(*(f"{dropped}/{n}" for n in range(21)), *(f"{kept}/{n:02}" for n in range(79)))

    head, finding = lines(collecting.command("--emit", "--format", "json", code=1))
    report = head["report"]
    assert (report["state"], report["reason"], report["breaker_open"]) == ("refused", "max-share", True)
    assert "21 of 100 objects" in report["detail"]
    assert finding["finding"]["intent"]["intent_id"].endswith("-1")
    assert collecting.emitted() == []

    told = collecting.command("--emit", "--approve", report["report_id"])
    assert "state     emitted" in told
    assert [each.intent_id for each in collecting.emitted()] == [finding["finding"]["intent"]["intent_id"]]


def test_g_5_ten_times_the_last_runs_garbage(collecting: Collecting) -> None:
    """G-5: within the share, and more than ten times what the last run found: the same; it stays so."""
    dropped, other = collecting.tenant(dropped=True), collecting.tenant(dropped=True)
    kept = collecting.tenant(dropped=False)
    collecting.put(f"{dropped}/0", *(f"{kept}/{n:02}" for n in range(60)))
    assert collecting.run(max_share=0.2).garbage_objects == 1
    collecting.put(*(f"{other}/{n:02}" for n in range(10)))

    first, again = (collecting.run(emit=True, max_share=0.2) for _ in range(2))

    assert [each.reason for each in (first, again)] == ["ten-times"] * 2
    assert collecting.emitted() == []
    with collecting.driver() as driver:
        assert driver.approve(again.report_id).state is ReportState.EMITTED
    assert len(collecting.emitted()) == 2
    assert collecting.run(emit=True, max_share=0.2).reason == "nothing-to-ask"


def test_only_a_report_of_the_scope_that_has_not_expired_is_approved(
    collecting: Collecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown, of another scope, expired, or emitted already: a typed error, and nothing is emitted."""
    dropped = collecting.tenant(dropped=True)
    collecting.put(f"{dropped}/a")
    report = collecting.run(max_share=0.2)
    assert report.expires_at is not None
    whole = Collecting(collecting.bucket, collecting.env, prefix="")
    with collecting.driver() as driver, whole.driver() as elsewhere:
        for name in ("leftovers-none", "../leftovers/x", ""):
            with pytest.raises(UnknownReport):
                driver.approve(name)
        with pytest.raises(NotApprovable, match="another scope"):
            elsewhere.approve(report.report_id)
        late = report.expires_at + timedelta(seconds=1)
        with monkeypatch.context() as patch:
            patch.setattr(driver_module, "datetime", _Clock(late))
            with pytest.raises(NotApprovable, match="has expired"):
                driver.approve(report.report_id)
        assert collecting.emitted() == []
        driver.approve(report.report_id)
        with pytest.raises(NotApprovable, match="emitted already"):
            driver.approve(report.report_id)
    whole.store.close()
    assert len(collecting.emitted()) == 1


def test_g_6_twice_at_once(collecting: Collecting) -> None:
    """G-6: two runs at the same time ask under one id for each deletion."""
    dropped = collecting.tenant(dropped=True)
    collecting.put(f"{dropped}/a")
    runs = [collecting.start("--emit", "--max-share", "1.0") for _ in range(2)]
    for run in runs:
        out, err = run.communicate(timeout=150)
        assert run.returncode == 0, (out, err)

    found = collecting.emitted()
    assert len({each.intent_id for each in found}) == 1
    assert len(found) in (1, 2)


def test_g_6_a_crash_between_emit_and_report(collecting: Collecting, tmp_path: Path) -> None:
    """G-6: killed once Kafka had the intents, it has left a report that says so, and is asked for as one."""
    dropped = collecting.tenant(dropped=True)
    collecting.put(f"{dropped}/a")
    collecting.command("--emit", "--max-share", "1.0", patch=KILLED, code=-signal.SIGKILL)
    (one,) = collecting.emitted()
    (name,) = [each for each in report_files(tmp_path / "reports") if each.endswith(".jsonl")]
    assert collecting.reports.read(name.removesuffix(".jsonl")).state is ReportState.EMITTING

    assert collecting.run(emit=True).state is ReportState.EMITTED
    assert list(states(collecting.run(emit=True)).values()) == ["pending"]
    assert [each.intent_id for each in collecting.emitted()] == [one.intent_id] * 2


def test_a_listing_continues_where_it_was_killed(
    recorded: tuple[Collecting, S3Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the middle, it lists the rest alone: the report is that of one listing, as of its start."""
    collecting, s3 = recorded
    dropped = collecting.tenant(dropped=True)
    keys = [f"data/{dropped}/{n:05}" for n in range(2500)] + [f"data/{dropped}2/{n:05}" for n in range(9500)]
    s3.buckets.fill(collecting.bucket, dict.fromkeys(keys, b"12345"))
    expected = collecting.run()
    patch = """
import os, signal
from sexton.streaming_jobs.collectors import walk
save, walk._SAVE_EVERY_S = walk.Walk.save, 0.0
walk.Walk.__dataclass_fields__["save_every_s"].default = 0.0
walk.Walk.__init__.__defaults__ = tuple(0.0 if x == 5.0 else x for x in walk.Walk.__init__.__defaults__)
def dies(self, left):
    save(self, left)
    if self.walked.objects >= 2000:
        os.kill(os.getpid(), signal.SIGKILL)
walk.Walk.save = dies
"""
    collecting.command(patch=patch, code=-signal.SIGKILL)
    s3.requests.clear()

    report = collecting.run()

    listed = [request for request in s3.requests if request.query.get("list-type") == "2"]
    assert len(listed) == 10  # all thousands but the first two
    assert listed[0].query["start-after"] == f"data/{dropped}/01999"
    facts = ("objects", "bytes", "garbage_objects", "garbage_bytes")
    assert [getattr(report, name) for name in facts] == [getattr(expected, name) for name in facts]
    assert states(report) == states(expected)
    s3.requests.clear()
    collecting.run()
    assert len([r for r in s3.requests if r.query.get("list-type") == "2"]) == 12  # it was done


def test_every_some_time_until_sigterm(collecting: Collecting) -> None:
    """It runs again and again; a run that fails is reported and counted, and SIGTERM ends it with 0."""
    dropped = collecting.tenant(dropped=True)
    process = collecting.start("--every", "1s", "--format", "json", "--max-share", "1.0")
    reports = Path(os.environ["SEXTON_REPORTS"])
    try:
        until(lambda: any(each.endswith("jsonl") for each in report_files(reports)))  # nothing is listed yet
        collecting.put(f"{dropped}/a")
        until(lambda: any(collecting.reports.last(scope) for scope in [_scope(collecting)]))
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    ended = [json.loads(line) for line in err.splitlines() if line.startswith("{")][-1]
    assert ended["event"] == "stopped"
    assert ended["failed"] >= 1
    assert ended["runs"] > ended["failed"]
    assert "the listing is empty" in err
    assert '"state": "reported"' in out


def test_a_stop_in_the_middle_keeps_how_far_it_is(recorded: tuple[Collecting, S3Recorder]) -> None:
    """A stop ends a run after the page that is under way, and the next one continues there."""
    collecting, s3 = recorded
    s3.buckets.fill(collecting.bucket, dict.fromkeys([f"data/t/{n:05}" for n in range(5000)], b"1"))
    with (
        collecting.driver(stopped=lambda: len(s3.requests) >= 3) as driver,
        pytest.raises(driver_module.Stopped),
    ):
        driver.run()
    s3.requests.clear()

    assert collecting.run().objects == 5000
    assert len(s3.requests) == 2


def test_nothing_but_reads_leaves(recorded: tuple[Collecting, S3Recorder]) -> None:
    """A run that emits, on reports in a bucket: beside its reports it only lists and reads."""
    collecting, s3 = recorded
    s3.create_bucket("reports")
    dropped = collecting.tenant(dropped=True)
    s3.buckets.fill(collecting.bucket, {f"data/{dropped}/a": b"1", "data/other/b": b"1"})

    def refuses_writes(request: Recorded) -> Reply | None:
        is_read = request.method in ("GET", "HEAD")
        is_report = request.method == "PUT" and request.bucket == "reports"
        return None if is_read or is_report else Reply(403)

    s3.script(refuses_writes)
    collecting.command("--emit", "--max-share", "1.0", SEXTON_REPORTS="s3://reports/of/collectors")

    assert {request.method for request in s3.requests if request.bucket == collecting.bucket} == {"GET"}
    assert {request.method for request in s3.requests} == {"GET", "PUT"}
    names = {key.rpartition(".")[2] for key in s3.objects("reports")}
    assert names == {"jsonl", "parquet", "json"}
    assert all(key.startswith("of/collectors/leftovers/") for key in s3.objects("reports"))
    assert len([each for each in collecting.emitted() if each.tenant == dropped]) == 1


def test_expiry_is_bounded(collecting: Collecting) -> None:
    """An expiry beyond seven days, no duration, and an approval without --emit are wrong usage."""
    for arguments in (
        ("--expires-in", "8d"),
        ("--expires-in", "soon"),
        ("--approve", "x"),
        ("--every", "0s"),
    ):
        collecting.command(*arguments, code=UsageError.exit_code)


def _scope(collecting: Collecting) -> Any:
    with collecting.driver() as driver:
        return driver._scope


class _Clock:
    """The time, at one instant."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self, zone: Any) -> datetime:
        """Return the instant."""
        assert zone is UTC
        return self._at
