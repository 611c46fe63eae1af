"""The pure parts of collectors: attempts, breaker, what covers what, the fold, and reports as lines."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sexton.issuer.testing import FakeIssuer
from sexton.schemas import events
from sexton.schemas.errors import UsageError
from sexton.schemas.outcomes import OutcomeKind
from sexton.storage import Listed
from sexton.streaming_jobs.collectors import attempts, breaker
from sexton.streaming_jobs.collectors.attempts import Ended, FindingState, base_id, next_attempt, parse_id
from sexton.streaming_jobs.collectors.breaker import Amount
from sexton.streaming_jobs.collectors.commands import seconds
from sexton.streaming_jobs.collectors.decision import (
    NotApprovable,
    Options,
    check_approvable,
    covered_by_others,
    garbage_of,
    judged,
)
from sexton.streaming_jobs.collectors.leftovers.room import ROOM, Counted, LeftoversPlan, Promise
from sexton.streaming_jobs.collectors.parquet import to_parquet
from sexton.streaming_jobs.collectors.report import (
    Finding,
    Report,
    ReportState,
    ReportUnreadable,
    from_lines,
    table,
    to_lines,
)
from sexton.streaming_jobs.collectors.room import Scope, Sources
from sexton.streaming_jobs.collectors.spark import split

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
SCOPE = Scope("bucket", "data/")
GOLDEN = Path(__file__).with_name("golden")


@pytest.mark.parametrize(
    ("outcome", "reason", "permits"),
    [
        (OutcomeKind.DELETED, "promise", True),
        (OutcomeKind.ABSENT, "promise", True),
        (OutcomeKind.STALE, "superseded", True),
        (OutcomeKind.CHANGED, "promise", True),
        (OutcomeKind.CANCELLED, "expired", True),
        (OutcomeKind.CANCELLED, "cancelled", False),
        (OutcomeKind.CANCELLED, "vanished", False),
        (OutcomeKind.REFUSED, "prefix-refused", False),
        (OutcomeKind.DEAD_LETTERED, "AccessDenied", False),
    ],
)
def test_what_permits_the_next_attempt(outcome: OutcomeKind, reason: str, permits: bool) -> None:
    """Any final outcome, but after a Cancel, a refusal and a dead letter a person asks."""
    found = next_attempt({1: Ended(outcome, reason)}, {}, NOW)
    assert found.state is (FindingState.ASK if permits else FindingState.NEEDS_A_PERSON)
    assert found.attempt == (2 if permits else 1)


def test_the_number_of_an_attempt() -> None:
    """Without an outcome the number stays; what is asked for and has not expired is pending."""
    done = Ended(OutcomeKind.DELETED, "promise")
    assert next_attempt({}, {}, NOW).attempt == 1
    assert next_attempt({}, {1: LATER}, NOW).state is FindingState.PENDING
    late = next_attempt({}, {1: NOW - timedelta(seconds=1)}, NOW)
    assert (late.attempt, late.state) == (1, FindingState.ASK)
    assert next_attempt({1: done, 2: done}, {2: LATER}, NOW).attempt == 3
    again = next_attempt({1: Ended(OutcomeKind.REFUSED, "x"), 2: done}, {}, NOW)
    assert (again.attempt, again.state) == (3, FindingState.ASK)
    forgotten = next_attempt({1: done}, {3: LATER}, NOW)
    assert (forgotten.attempt, forgotten.state) == (3, FindingState.PENDING)


def test_of_two_outcomes_of_one_attempt_the_better_one_holds() -> None:
    """By precedence, and of equals the one that permits less."""
    expired, cancelled = (Ended(OutcomeKind.CANCELLED, why) for why in ("expired", "by-hand"))
    deleted = Ended(OutcomeKind.DELETED, "promise")
    for one, other, holds in ((expired, cancelled, cancelled), (cancelled, deleted, deleted)):
        assert attempts.better(one, other) == attempts.better(other, one) == holds


def test_ids_say_what_is_deleted_and_why() -> None:
    """Another cause, prefix or collector gives another id; a name that holds a separator does not."""
    names = [("c", ("a", "b")), ("c", ("a", "c")), ("d", ("a", "b")), ("c", ("a b",)), ("c", ("ab",))]
    assert len({base_id(*each) for each in names}) == len(names)
    base = base_id("c", ("a",))
    assert base == base_id("c", ["a"])
    assert parse_id(attempts.intent_id(base, 12)) == (base, 12)
    assert [parse_id(text) for text in ("", "x", "-1", "a-", "a-x")] == [None] * 5


def test_the_breaker() -> None:
    """More than the share of the objects or of the bytes, or ten times the last garbage of either."""

    def reason(garbage: Amount, last: Amount | None = None) -> str | None:
        opened = breaker.check(Amount(100, 1000), garbage, last, 0.2)
        return opened.reason if opened else None

    assert reason(Amount(20, 200)) is None
    assert reason(Amount(21, 0)) == "max-share"
    assert reason(Amount(0, 201)) == "max-share"
    assert reason(Amount(10, 10), Amount(1, 1)) is None
    assert reason(Amount(11, 10), Amount(1, 1)) == "ten-times"
    assert reason(Amount(10, 11), Amount(1, 1)) == "ten-times"
    assert reason(Amount(20, 20), Amount(0, 0)) is None


def report_of(**fields: Any) -> Report:
    """A report of one tenant."""
    action = events.DeletePrefix("bucket", "data/t/", written_before=NOW)
    intent = events.DeletionIntent(
        "leftovers-00000000000000000000000000000000-1",
        "t",
        NOW,
        "sexton-collect-leftovers@host/1",
        (events.PromiseGuard("dropped t"),),
        action,
        vetoes=(events.ExpiresAt(LATER),),
    )
    finding = Finding(
        "dropped-tenant",
        "s3://bucket/data/t/",
        "t",
        "the tenant was dropped: t",
        3,
        30,
        FindingState.ASK,
        intent,
    )
    gone = Finding("written-after-promise", "", "o", "1 left by p: gone", 0, 0, FindingState.NOT_RESOLVABLE)
    made = Report(
        "leftovers-0a1b2c3d-20260301T120000000000-abcdef",
        "leftovers",
        "bucket",
        "data/",
        ReportState.REPORTED,
        "not-asked-to",
        "",
        NOW,
        NOW,
        NOW,
        LATER,
        100,
        1000,
        3,
        30,
        findings=[finding, gone],
    )
    return replace(made, **fields)


def test_without_emit_nothing_is_emitted() -> None:
    """A run emits only if it was asked to, has something to ask for, and its breaker is closed."""
    report, emits = report_of(), Options(SCOPE, emit=True)
    assert judged(report, None, Options(SCOPE)).state is ReportState.REPORTED
    assert judged(report, None, emits).state is ReportState.EMITTING
    assert judged(report_of(findings=[]), None, emits).reason == "nothing-to-ask"
    late = judged(report_of(ended_at=LATER), None, emits)
    assert (late.state, late.reason) == (ReportState.REFUSED, "expired")
    opened = judged(report_of(garbage_objects=21), None, emits)
    assert (opened.state, opened.breaker_open) == (ReportState.REFUSED, True)
    assert judged(report_of(garbage_objects=21), None, Options(SCOPE)).breaker_open


def test_what_may_be_approved() -> None:
    """The report of this collector and scope, before its expiry, with intents, and not emitted yet."""
    check_approvable(report_of(), "leftovers", SCOPE, NOW)
    for report, collector, scope, now in (
        (report_of(), "orphans", SCOPE, NOW),
        (report_of(), "leftovers", Scope("bucket", "data/t/"), NOW),
        (report_of(), "leftovers", Scope("other", "data/"), NOW),
        (report_of(), "leftovers", SCOPE, LATER),
        (report_of(findings=[]), "leftovers", SCOPE, NOW),
        (report_of(state=ReportState.EMITTED), "leftovers", SCOPE, NOW),
    ):
        with pytest.raises(NotApprovable):
            check_approvable(report, collector, scope, now)


def parts_of(plan: LeftoversPlan, keys: Iterable[str], cut: int | None = None) -> list[Counted]:
    """The parts of some objects of ten bytes, by one fold or by two."""
    entries = [Listed(key, "", 10) for key in sorted(keys, key=str.encode)]
    parts: list[Counted] = []
    for some in [entries] if cut is None else [entries[:cut], entries[cut:]]:
        fold = plan.fold()
        for entry in some:
            parts += fold.add(entry)
        parts += fold.end()
    return parts


def promise(prefix: str, **fields: Any) -> Promise:
    """A promise that has left something."""
    action = events.DeletePrefix("bucket", prefix, **fields)
    return Promise("p", "owner", [events.PromiseGuard("op")], action, [events.ExpiresAt(NOW)], 1)


def dropped(*tenants: str) -> Sources:
    """An issuer that knows some tenants, all dropped but `open`."""
    issuer: Any = FakeIssuer()
    for name in (*tenants, "open"):
        issuer.attach("node", name)
        if name != "open":
            issuer.drop(name)
    nothing: Any = None
    return Sources(nothing, issuer, nothing)


def test_tenants_are_whole_segments() -> None:
    """Only `P/<tenant>/…` of a dropped tenant: no longer name, no object right below, no deeper segment."""
    keys = ["data/t/1", "data/t/x/2", "data/t2/1", "data/t", "data/x/t/1", "data//t/1", "data/open/1"]
    plan = LeftoversPlan("data/", [])
    kept = ROOM.sift(parts_of(plan, keys), dropped("t"))
    (found,) = ROOM.decide(plan, SCOPE, kept)
    assert (found.covers, found.objects, found.bytes) == ("data/t/", 2, 20)
    assert found.body(NOW).action == events.DeletePrefix("bucket", "data/t/", written_before=NOW)


def test_parts_of_a_listing_in_pieces_add_up() -> None:
    """Wherever a listing is cut in two, the findings are those of the whole."""
    plan = LeftoversPlan("data/", [promise("data/t/deep/"), promise("data/p/")])
    keys = [f"data/{name}/{n}" for name in ("a", "p", "t", "t/deep", "t-2") for n in range(4)]
    sources = dropped("t")

    def findings(cut: int | None) -> set[tuple[str, str, int, int]]:
        found = ROOM.decide(plan, SCOPE, ROOM.sift(parts_of(plan, keys, cut), sources))
        return {(each.cause, each.covers, each.objects, each.bytes) for each in found}

    assert findings(None) == {
        ("dropped-tenant", "data/t/", 8, 80),
        ("written-after-promise", "data/t/deep/", 4, 40),
        ("written-after-promise", "data/p/", 4, 40),
    }
    assert [findings(cut) for cut in range(len(keys))] == [findings(None)] * len(keys)


def test_what_lies_in_two_findings_counts_once() -> None:
    """A promise within a dropped tenant is covered by it, unless it deletes in another way."""
    plan = LeftoversPlan(
        "data/",
        [
            promise("data/t/in/"),
            promise("data/t/versions/", mode=events.DeleteMode.ERASE_ALL_VERSIONS),
            promise("data/u/", suffix=".log"),
            promise("data/u/in/"),
        ],
    )
    keys = ["data/t/1", "data/t/in/2", "data/t/versions/3", "data/u/4", "data/u/in/5"]
    found = ROOM.decide(plan, SCOPE, ROOM.sift(parts_of(plan, keys), dropped("t")))
    covered = covered_by_others(found)
    assert [each.covers for each in found if id(each) in covered] == ["data/t/in/"]
    assert garbage_of(found) == Amount(6, 60)  # of `data/u/` nobody knows which end in the suffix


def test_a_promise_keeps_its_fields_and_gets_a_new_expiry() -> None:
    """What it names stays; the old expiry goes, else the new intent would be cancelled at once."""
    again = promise("data/p/", tombstone="data/end", suffix="x", mode=events.DeleteMode.ERASE_ALL_VERSIONS)
    again = replace(again, vetoes=[*again.vetoes, events.OnlyWhileExists("data/new")])
    (found,) = ROOM.decide(
        LeftoversPlan("data/", [again]), SCOPE, [Counted("written-after-promise", "data/p/", 1, 1)]
    )
    body = found.body(LATER)
    assert body.action == replace(again.action, written_before=LATER)
    assert list(body.vetoes) == [events.OnlyWhileExists("data/new")]
    assert body.guards == again.guards


def test_ranges_are_everything() -> None:
    """However many folders there are, each key lies in one range."""
    for count in (0, 1, 2, 5, 257, 1000):
        folders = [f"p/{n:04}/" for n in range(count)]
        ranges = split(folders, 10)
        assert (ranges[0].after, ranges[-1].until) == (None, None)
        assert [each.until for each in ranges[:-1]] == [each.after for each in ranges[1:]]
        assert len(ranges) <= 11


def test_a_prefix_ends_in_a_slash() -> None:
    """A prefix that ends in the middle of a name covers neighbours: refused."""
    with pytest.raises(UsageError, match="must end in '/'"):
        Scope("bucket", "data")
    assert Scope("bucket", "").prefix == ""


def test_durations() -> None:
    """A number and a unit."""
    assert [seconds(text) for text in ("90s", "10m", "1.5h", "7d")] == [90, 600, 5400, 604800]
    for text in ("", "10", "-1s", "0m", "1w", "1h30m", "∞s"):
        with pytest.raises(UsageError):
            seconds(text)


def test_the_golden_report_is_read_and_written() -> None:
    """The form of version 1 is read as it was written once, and written so today."""
    text = (GOLDEN / "report.v1.jsonl").read_text(encoding="utf-8")
    assert from_lines(text) == report_of()
    assert "".join(f"{line}\n" for line in to_lines(report_of())) == text


def test_reports_of_other_versions() -> None:
    """A field that came later has its default in an older report; a newer form is refused, not guessed at."""
    head, *rest = [json.loads(line) for line in to_lines(report_of())]
    for name in ("approved_at", "breaker_open", "garbage_bytes"):
        del head["report"][name]
    older = "\n".join(map(json.dumps, [head, *rest]))
    assert from_lines(older) == report_of(garbage_bytes=0)
    head["version"] = 2
    with pytest.raises(ReportUnreadable, match="newer version"):
        from_lines("\n".join(map(json.dumps, [head, *rest])))


def test_a_report_that_is_cut_off_is_none() -> None:
    """With a line too few, half a line, or nothing at all it is refused."""
    text = "".join(f"{line}\n" for line in to_lines(report_of()))
    cuts = random.Random(1).sample(range(len(text) - 1), 60)
    ends = [number + 1 for number, letter in enumerate(text) if letter == "\n"]
    for cut in (0, *cuts, *ends[:-1]):
        with pytest.raises(ReportUnreadable):
            from_lines(text[:cut])


def test_the_three_forms_say_the_same() -> None:
    """Table, JSON lines and Parquet name the report, and each finding with its intent."""
    report = report_of()
    read = pq.read_table(BytesIO(to_parquet(report)))
    assert read.schema.metadata[b"sexton.report"].decode() == next(to_lines(report))
    told = "\n".join(table(report))
    for finding, row in zip(report.findings, read.to_pylist(), strict=True):
        assert (row["cause"], row["state"], row["objects"]) == (finding.cause, finding.state, finding.objects)
        assert finding.cause in told
        assert finding.detail in told
        if finding.intent is not None:
            assert row["intent_id"] == finding.intent.intent_id
            assert finding.intent.intent_id in told
    assert report.report_id in told
    assert "100 objects, 1000 B" in told
