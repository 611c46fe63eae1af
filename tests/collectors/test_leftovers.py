"""The collector `leftovers` on Kafka, an issuer and a store: what it finds, and what it asks for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.collecting import Collecting, states
from tests.support.s3_recorder import S3Recorder

from sexton.issuer.client import IssuerClient
from sexton.schemas import events, records
from sexton.schemas.events import OutcomeKind
from sexton.streaming_jobs.collectors.report import ReportState

pytestmark = pytest.mark.real


def test_only_dropped_tenants_are_asked_for(collecting: Collecting) -> None:
    """Objects of open, unknown and only similarly named tenants are no candidates; nothing without --emit."""
    dropped, open_ = collecting.tenant(dropped=True), collecting.tenant(dropped=False)
    collecting.put(f"{dropped}/a", f"{dropped}/deep/b", f"{open_}/a", "unknown/a", f"{dropped}-2/a", dropped)

    first = collecting.run()
    assert states(first) == {f"s3://{collecting.bucket}/data/{dropped}/": "ask"}
    assert (first.objects, first.garbage_objects, first.garbage_bytes) == (6, 2, 20)
    assert (first.state, first.reason) == (ReportState.REPORTED, "not-asked-to")
    assert collecting.emitted() == []

    second = collecting.run(emit=True)
    assert second.state is ReportState.EMITTED
    (intent,) = collecting.emitted()
    assert second.listed_at is not None
    assert intent.action == events.DeletePrefix(
        collecting.bucket, f"data/{dropped}/", written_before=second.listed_at
    )
    assert intent.tenant == dropped
    assert list(intent.guards) == [events.PromiseGuard(f"dropped {dropped}")]
    assert list(intent.vetoes) == [events.ExpiresAt(second.listed_at + timedelta(hours=24))]
    assert [each.intent_id for each in second.intents] == [intent.intent_id]


def test_g_8_what_was_written_after_a_promise_is_asked_for_again(collecting: Collecting) -> None:
    """G-8: the intent is read where the outcome says it stands, and asked for under the same promise."""
    at = collecting.promise("data/gone/", "promise-1", tombstone="data/gone-for-good", suffix=".log")
    later = {"deleted": 5, "written-later": 2}
    collecting.settle("promise-1", OutcomeKind.DELETED, effects=later, position=at)
    collecting.settle("promise-2", OutcomeKind.DELETED, effects={"deleted": 5}, position=at)
    collecting.put("gone/a.log", "gone/b.log", "kept/a.log")

    report = collecting.run(emit=True)

    assert states(report) == {f"s3://{collecting.bucket}/data/gone/": "ask"}
    assert report.garbage_objects == 2
    intent = collecting.emitted()[-1]
    assert intent.action == events.DeletePrefix(
        collecting.bucket,
        "data/gone/",
        tombstone="data/gone-for-good",
        suffix=".log",
        written_before=report.listed_at,
    )
    assert list(intent.guards) == [events.PromiseGuard("give-up")]
    assert intent.tenant == "owner"


def test_a_promise_whose_intent_is_gone_is_reported(collecting: Collecting) -> None:
    """Where the intents topic does not hold the intent any more, a person is told, and nobody is asked."""
    gone = events.Position(collecting.topic_id("intents"), 0, 1_000_000)
    collecting.settle("promise-3", OutcomeKind.DELETED, effects={"written-later": 1}, position=gone)
    collecting.put("somewhere/a")

    report = collecting.run(emit=True)

    (finding,) = report.findings
    assert (finding.state.value, finding.objects) == ("not-resolvable", 0)
    assert "1 left by promise-3" in finding.detail
    assert (report.state, report.reason) == (ReportState.REPORTED, "nothing-to-ask")


def test_attempts_follow_final_outcomes(collecting: Collecting) -> None:
    """The next number is asked for after a final outcome; not while one is pending, nor after a refusal."""
    dropped = collecting.tenant(dropped=True)
    collecting.put(f"{dropped}/a")

    first = collecting.run(emit=True)
    assert list(states(collecting.run(emit=True)).values()) == ["pending"]
    (one,) = first.intents
    collecting.settle(one.intent_id, OutcomeKind.CANCELLED, "expired")
    (two,) = collecting.run(emit=True).intents
    collecting.settle(two.intent_id, OutcomeKind.DELETED)
    (three,) = collecting.run(emit=True).intents
    collecting.settle(three.intent_id, OutcomeKind.REFUSED, "prefix-refused")
    last = collecting.run(emit=True)

    base = one.intent_id.removesuffix("-1")
    assert [each.intent_id for each in (two, three)] == [f"{base}-2", f"{base}-3"]
    assert list(states(last).values()) == ["needs-a-person"]
    assert [each.intent_id for each in collecting.emitted()] == [f"{base}-{n}" for n in (1, 2, 3)]


def test_what_was_dead_lettered_needs_a_person(collecting: Collecting) -> None:
    """A dead letter ends an attempt, also where no outcome stands beside it."""
    dropped = collecting.tenant(dropped=True)
    collecting.put(f"{dropped}/a")
    (one,) = collecting.run(emit=True).intents
    at, now = events.Position("topic", 0, 0), datetime.now(UTC)
    letter = events.DeadLetter(
        "intents", at, now, "internal", "", one.intent_id, dropped, collecting.bucket, (), None, b"", now
    )
    collecting.produce(records.DEAD_LETTERS, letter)

    assert list(states(collecting.run(emit=True)).values()) == ["needs-a-person"]
    assert len(collecting.emitted()) == 1


def test_a_promise_whose_intent_is_another_one_is_reported(collecting: Collecting) -> None:
    """What stands at the position has to be the intent: of another id, or topic, it is not taken for it."""
    at = collecting.promise("data/t/", "promise-4")
    later = {"written-later": 1}
    collecting.settle("promise-5", OutcomeKind.DELETED, effects=later, position=at)
    elsewhere = replace(at, topic_id="another")
    collecting.settle("promise-4", OutcomeKind.DELETED, effects=later, position=elsewhere)
    collecting.put("t/a")

    report = collecting.run(emit=True)

    assert [each.state.value for each in report.findings] == ["not-resolvable"] * 2
    told = " ".join(each.detail for each in report.findings)
    assert "another intent stands there" in told
    assert "its intents topic is another one" in told
    assert [each.intent_id for each in collecting.emitted()] == ["promise-4"]


def test_names_of_any_kind_are_asked_about(recorded: tuple[Collecting, S3Recorder]) -> None:
    """A folder's name may hold what a URL cannot, or be too long for a tenant: no run fails by it."""
    collecting, s3 = recorded
    odd = f"moss ?#%2F+ü {id(collecting)}"
    with IssuerClient.of(collecting.settings) as issuer:
        issuer.attach("node-1", odd)
        issuer.drop(odd)
    others = ("..", ".", "%2e%2e", "a\tb", "a\x7fb", "x" * 600, "\N{GRINNING FACE}", "a\\b", "a;b", "-")
    keys = [f"data/{name}/1" for name in (odd, *others)]
    s3.buckets.fill(collecting.bucket, dict.fromkeys(keys, b"1"))

    report = collecting.run()

    assert report.objects == len(keys)
    assert states(report) == {f"s3://{collecting.bucket}/data/{odd}/": "ask"}
