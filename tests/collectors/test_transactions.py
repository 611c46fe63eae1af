"""The collector `transactions` on Kafka, an issuer and a store: what it asks for, what it says is gone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.collecting import Collecting
from tests.support.s3_recorder import Recorded, Reply, S3Recorder

from sexton.issuer.client import IssuerClient, TransactionStatus
from sexton.schemas import events
from sexton.schemas.actions import DeletePrefix
from sexton.schemas.errors import UsageError
from sexton.schemas.events import NumberPlace, TransactionState
from sexton.schemas.forms import from_json, to_json
from sexton.storage import Listed, ListingFault
from sexton.streaming_jobs.collectors.driver import EmptyListing
from sexton.streaming_jobs.collectors.report import Report, ReportState
from sexton.streaming_jobs.collectors.room import Scope, Unresolved
from sexton.streaming_jobs.collectors.transactions.room import (
    ROOM,
    Counted,
    Rejected,
    TransactionsPlan,
)

real = pytest.mark.real
TEMPLATE = "data/{tenant}/"
_numbers = itertools.count(1)


@pytest.fixture
def rejected(recorded: tuple[Collecting, S3Recorder]) -> tuple[Collecting, S3Recorder]:
    """The collector, with a recording store."""
    collecting, recorder = recorded
    collecting.room, collecting.prefix = ROOM, TEMPLATE
    return collecting, recorder


@contextmanager
def tenant(collecting: Collecting, place: NumberPlace) -> Iterator[tuple[IssuerClient, str]]:
    """A tenant whose transactions 1 and 2 are rejected, 3 open, each of a node of its own."""
    name = f"tx-{next(_numbers):03d}-{collecting.bucket}"
    with IssuerClient.of(collecting.settings) as issuer:
        for number in (1, 2, 3):
            issuer.start_transaction(f"node-{number}", name, number_place=place)
        yield issuer, name


def found(report: Report, name: str) -> list[tuple[str, str, int]]:
    """State, place and objects of a tenant's findings."""
    return sorted(
        (each.state.value, each.place.partition("/data/")[2], each.objects)
        for each in report.findings
        if each.tenant == name
    )


def status(issuer: IssuerClient, name: str, number: int) -> TransactionStatus:
    """How a transaction stands in the log."""
    state = issuer.transactions(name)
    assert state is not None
    (one,) = [each for each in state.transactions if each.transaction == number]
    return one.status


@real
@pytest.mark.parametrize("place", NumberPlace)
def test_m_5_what_ended_uploads_left_is_asked_for_and_then_collected(
    rejected: tuple[Collecting, S3Recorder], place: NumberPlace
) -> None:
    """M-5: of acknowledged ones alone; the issuer is told once a listing of its own finds nothing."""
    collecting, s3 = rejected
    last = place is NumberPlace.LAST
    with tenant(collecting, place) as (issuer, name):
        keys = [f"{n}/seg" for n in (1, 2, 3, 1)] if not last else [f"seg.{n}" for n in (1, 2, 3)]
        collecting.put(*(f"{name}/{key}" for key in keys), f"{name}/index")
        assert found(collecting.run(emit=True), name) == []

        issuer.acknowledge_transaction(name, 1, "node-1")
        where = f"{name}/" if last else f"{name}/1/"
        report = collecting.run()
        assert (found(report, name), report.state) == ([("ask", where, 1)], ReportState.REPORTED)
        assert collecting.emitted() == []
        report = collecting.run(emit=True)
        (intent,) = collecting.emitted()
        assert intent.action == DeletePrefix(
            collecting.bucket, f"data/{where}", suffix=".1" if last else None
        )
        assert list(intent.guards) == [events.TransactionGuard(name, 1, TransactionState.REJECTED)]
        assert (intent.tenant, len(intent.vetoes)) == (name, 1)

        collecting.settle(intent.intent_id, events.OutcomeKind.DELETED)  # and it lies there all the same
        report = collecting.run(emit=True)
        assert found(report, name) == [("ask", where, 1)]
        assert report.intents[0].intent_id.endswith("-2")
        assert status(issuer, name, 1) is TransactionStatus.REJECT_ACKNOWLEDGED

        s3.buckets.of(collecting.bucket).delete(f"data/{name}/{keys[0]}", None)
        assert found(collecting.run(), name) == [("nothing-left", where, 0)]
        assert status(issuer, name, 1) is TransactionStatus.REJECT_ACKNOWLEDGED
        report = collecting.run(emit=True)
        assert found(report, name) == [("collected", where, 0)]
        assert found(collecting.reports.read(report.report_id), name) == [("collected", where, 0)]
        assert status(issuer, name, 1) is TransactionStatus.COLLECTED
        assert found(collecting.run(emit=True), name) == []
        assert len(collecting.emitted()) == 2


@real
def test_what_is_acknowledged_while_it_lists_is_for_the_next_run(
    rejected: tuple[Collecting, S3Recorder],
) -> None:
    """The listing has to begin after the acknowledgement: what it has passed may have been written since."""
    collecting, s3 = rejected
    with tenant(collecting, NumberPlace.FIRST) as (issuer, name):
        collecting.put(f"{name}/index")

        def script(request: Recorded) -> Reply | None:
            if "list-type" in request.query:
                issuer.acknowledge_transaction(name, 2, "node-2")
            return None

        s3.script(script)
        assert found(collecting.run(emit=True), name) == []
        assert status(issuer, name, 2) is TransactionStatus.REJECT_ACKNOWLEDGED
        s3.script(None)
        assert found(collecting.run(emit=True), name) == [("collected", f"{name}/2/", 0)]


@real
def test_a_listing_that_proves_nothing_says_nothing(rejected: tuple[Collecting, S3Recorder]) -> None:
    """Not exact, empty, above the breaker's share, or nothing of the tenant: the issuer hears nothing."""
    collecting, s3 = rejected
    with tenant(collecting, NumberPlace.FIRST) as (issuer, name):
        issuer.acknowledge_transaction(name, 1, "node-1")
        issuer.acknowledge_transaction(name, 2, "node-2")
        with pytest.raises(EmptyListing):
            collecting.run(emit=True)

        collecting.put("other/index")
        assert found(collecting.run(emit=True), name) == [
            ("nothing-left", f"{name}/1/", 0),
            ("nothing-left", f"{name}/2/", 0),
        ]

        collecting.put(f"{name}/2/seg")
        report = collecting.run(emit=True, max_share=0.2)
        assert (report.state, report.reason) == (ReportState.REFUSED, "max-share")
        assert ("nothing-left", f"{name}/1/", 0) in found(report, name)

        unsure = Reply(200, b"<ListBucketResult><EncodingType>url</EncodingType></ListBucketResult>")
        s3.script(lambda request: unsure if "list-type" in request.query else None)
        with pytest.raises(ListingFault):
            collecting.run(emit=True)

        assert [status(issuer, name, n) for n in (1, 2)] == [TransactionStatus.REJECT_ACKNOWLEDGED] * 2
        assert [each for each in collecting.emitted() if each.tenant == name] == []


@real
@pytest.mark.slow
def test_the_prefix_is_the_reapers_and_has_a_tenant(
    rejected: tuple[Collecting, S3Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere nothing would seem to be left: another prefix than the reaper's ends with exit code 2."""
    collecting, _ = rejected
    collecting.put("other/index")
    collecting.command(SEXTON_REAPER_TENANT_PREFIX=TEMPLATE)
    collecting.command(SEXTON_REAPER_TENANT_PREFIX="tenants/{tenant}/", code=2)
    collecting.prefix = "data/"
    with pytest.raises(UsageError, match="as a whole segment"):
        collecting.run(emit=True)


@real
def test_a_tenant_without_a_prefix_of_its_own_is_reported(rejected: tuple[Collecting, S3Recorder]) -> None:
    """Nobody can tell what is its own: neither asked for nor collected."""
    collecting, _ = rejected
    with IssuerClient.of(collecting.settings) as issuer:
        name = f"tx/{next(_numbers)}-{collecting.bucket}"
        issuer.start_transaction("node-1", name, number_place=NumberPlace.FIRST)
        issuer.acknowledge_transaction(name, 1, "node-1")
        collecting.put(f"{name}/1/seg", f"{name}/index")

        assert [state for state, *_ in found(collecting.run(emit=True), name)] == ["not-resolvable"]
        assert status(issuer, name, 1) is TransactionStatus.REJECT_ACKNOWLEDGED
        assert [each for each in collecting.emitted() if each.tenant == name] == []


def of(name: str, number: int, *, last: bool = False, dropped: bool = False) -> Rejected:
    """A rejected transaction below `data/`."""
    home = f"data/{name}/"
    own = (home, f".{number}") if last else (f"{home}{number}/", None)
    return Rejected(name, number, 7, dropped, home, *own)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.text("./12a", max_size=8)), max_size=20))
def test_what_is_counted_is_what_would_be_deleted(below: list[tuple[str, str]]) -> None:
    """Whatever the keys: a transaction has as many objects as its intent reaches; no objects, no intent."""
    plan = TransactionsPlan([of("a", 1), of("a", 2), of("b", 1, last=True), of("b", 12, last=True)])
    scope = Scope("bucket", TEMPLATE)
    keys = sorted({f"data/{name}/{key}" for name, key in below})
    fold = plan.fold()
    parts: list[Counted] = []
    for number, key in enumerate(keys):
        parts += fold.add(Listed(key, "e", 3, written_at=datetime(2026, 1, 1, tzinfo=UTC)))
        if number % 5 == 4:
            parts += fold.end()
    parts += fold.end()

    counts = {
        (each.identity[1], each.detail): (each.objects, each.bytes)
        for each in ROOM.decide(plan, scope, parts)
    }
    gone = {(each.tenant, each.detail.partition(";")[0]): each.note for each in ROOM.gone(plan, scope, parts)}

    for each in plan.rejected:
        action = DeletePrefix("bucket", each.prefix, suffix=each.suffix)
        reached = sum(map(action.may_delete, keys))
        assert counts.get((each.tenant, each.text), (0, 0)) == (reached, 3 * reached)
        assert ((each.tenant, each.text) in gone) == (reached == 0)
        if reached == 0:
            at_home = any(key.startswith(each.home) for key in keys)
            assert (gone[each.tenant, each.text] is not None) == at_home


def test_a_dropped_tenants_transactions_need_no_object_of_it() -> None:
    """Where all of a tenant is gone there is nothing that could lie elsewhere."""
    plan = TransactionsPlan([of("a", 1, dropped=True), of("b", 1)])

    notes = {each.tenant: each.note for each in ROOM.gone(plan, Scope("b", TEMPLATE), [])}

    assert {name: note is not None for name, note in notes.items()} == {"a": True, "b": False}


def test_a_plan_and_its_parts_have_a_form_that_is_kept() -> None:
    """A run that was killed continues with what it knew before it listed."""
    plan = TransactionsPlan((of("a", 1), of("b", 2, last=True)), (Unresolved("cause", "t", "why"),))
    parts = [Counted("a", 1, 2, 3), Counted("a", None, 4, 5)]

    assert from_json(TransactionsPlan, to_json(plan)) == plan
    assert [from_json(Counted, to_json(part)) for part in parts] == parts
