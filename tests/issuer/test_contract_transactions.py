"""Transactions: one contract for the fake that ships and for the real service."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from tests.support.issuing import Case, refused

from sexton.issuer.client import TransactionSubject
from sexton.issuer.state.transactions import Status
from sexton.schemas.errors import IssuerUnavailable, RequestRefused, UsageError
from sexton.schemas.events import ImportedTransactions, NumberPlace, PartitionOffsets
from sexton.schemas.windows import Window

LONG_AGO = datetime(1999, 1, 1, tzinfo=UTC)
BEFORE_TIME = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))


def status(case: Case, tenant: str, number: int) -> Status:
    """The status of a transaction, as the judge is told it."""
    subject = TransactionSubject(tenant, number, 0)
    return case.issuer.validate([subject]).transactions[subject].status


def test_m_1_the_second_start_rejects_the_first(case: Case, unique: str) -> None:
    """M-1: A starts, B starts and commits; A is told that it is rejected, acknowledges, and is collected."""
    issuer = case.issuer
    first, second = (issuer.start_transaction(node, unique) for node in "ab")
    assert (first.transaction, second.transaction, second.last_committed) == (1, 2, None)

    issuer.commit_transaction("b", unique, 2)
    with refused("transaction-rejected"):
        issuer.commit_transaction("a", unique, 1)
    with refused("transaction-not-acknowledged"):
        issuer.collect_transaction(unique, 1)
    assert status(case, unique, 1) is Status.REJECT_PENDING
    issuer.acknowledge_transaction(unique, 1, "a")
    assert status(case, unique, 1) is Status.REJECT_ACKNOWLEDGED
    issuer.collect_transaction(unique, 1)
    assert status(case, unique, 1) is Status.COLLECTED
    assert issuer.start_transaction("a", unique).last_committed == 2


def test_m_2_the_same_request_twice(case: Case, unique: str) -> None:
    """M-2: a request id has one answer for ever, also after the tenant went on; another call's is refused."""
    issuer = case.issuer
    started = issuer.start_transaction("a", unique, f"r1-{unique}")
    committed = issuer.commit_transaction("a", unique, 1, None, f"r2-{unique}")
    issuer.start_transaction("b", unique)

    assert issuer.start_transaction("a", unique, f"r1-{unique}") == started
    assert issuer.commit_transaction("a", unique, 1, None, f"r2-{unique}") == committed
    with refused("request-id-conflict"):
        issuer.start_transaction("b", unique, f"r1-{unique}")
    with refused("request-id-conflict"):
        issuer.commit_transaction("a", unique, 2, None, f"r2-{unique}")


def test_m_7_asked_again_under_another_id(case: Case, unique: str) -> None:
    """M-7: who has lost the answer and the request id asks anew, and is told the same."""
    issuer = case.issuer
    issuer.start_transaction("a", unique)
    granted = issuer.commit_transaction("a", unique, 1)
    issuer.start_transaction("b", unique)

    assert issuer.commit_transaction("a", unique, 1) == granted
    said = issuer.acknowledge_transaction(unique, 2, "b")
    assert issuer.acknowledge_transaction(unique, 2, "b") == said
    done = issuer.collect_transaction(unique, 2)
    assert issuer.collect_transaction(unique, 2) == done
    assert issuer.acknowledge_transaction(unique, 2, "b") == done


def test_m_3_a_deadlist_is_closed_with_the_commit(case: Case, unique: str) -> None:
    """M-3: what is written after the commit was asked for lies above the window."""
    issuer = case.issuer
    issuer.start_transaction("a", unique)
    start = issuer.barrier()
    case.written(0, 3)
    issuer.commit_transaction(
        "a", unique, 1, PartitionOffsets(start.topic_id, [start.ends[0] + 3, *start.ends[1:]])
    )
    case.written(0, 2)
    subject = TransactionSubject(unique, 1, 0)
    fact = issuer.validate([subject]).transactions[subject]

    assert fact.window == Window(start.ends[0], start.ends[0] + 3)
    assert fact.place == "last"


def test_m_15_a_deadlist_that_is_not_there_yet(case: Case, unique: str) -> None:
    """M-15: without the end offsets no commit is granted and nothing is appended; with them it is."""
    issuer = case.issuer
    issuer.start_transaction("a", unique)
    start = issuer.barrier()
    deadlist = PartitionOffsets(start.topic_id, [start.ends[0], start.ends[1] + 1])

    with pytest.raises(IssuerUnavailable):
        issuer.commit_transaction("a", unique, 1, deadlist, deadline=1.5)
    assert status(case, unique, 1) is Status.OPEN
    with refused("other-topic"):
        issuer.commit_transaction("a", unique, 1, PartitionOffsets("another", [0]))
    case.written(1, 1)
    issuer.commit_transaction("a", unique, 1, deadlist)


def test_who_may_say_what(case: Case, unique: str) -> None:
    """Only its node commits or gives up an open one; what is committed, or open, nobody forces."""
    issuer = case.issuer
    issuer.start_transaction("a", unique)
    with refused("other-node"):
        issuer.commit_transaction("b", unique, 1)
    with refused("other-node"):
        issuer.acknowledge_transaction(unique, 1, "b")
    with refused("transaction-open"):
        issuer.acknowledge_transaction(unique, 1, why="the node is gone")
    with refused("unknown-transaction"):
        issuer.commit_transaction("a", unique, 2)
    with refused("unknown-tenant"):
        issuer.acknowledge_transaction(f"{unique}-x", 1, "a")
    with refused("invalid-request"):
        issuer.acknowledge_transaction(unique, 1, "a", why="both")
    with refused("invalid-request"):
        issuer.acknowledge_transaction(unique, 1)
    issuer.start_transaction("b", unique)
    issuer.acknowledge_transaction(unique, 1, why="the node is gone")
    issuer.commit_transaction("b", unique, 2)
    with refused("transaction-committed"):
        issuer.acknowledge_transaction(unique, 2, "b")


def test_m_5_a_node_is_decommissioned(case: Case, unique: str) -> None:
    """M-5: refused until the revocation is old enough, then for every tenant of the node, for ever."""
    issuer, gone = case.issuer, f"gone-{unique}"
    tenants = [f"{unique}-{name}" for name in "xyz"]
    for tenant in tenants:
        issuer.start_transaction(gone, tenant)
    issuer.start_transaction("b", tenants[0])
    assert {found.tenant for found in issuer.unfinished_transactions(gone)} == set(tenants)

    with refused("revocation-too-recent"):
        issuer.decommission_node(gone, datetime.now(UTC) - timedelta(seconds=60))
    with refused("revocation-too-recent"):
        issuer.decommission_node(gone, datetime(2999, 1, 1, tzinfo=UTC))
    issuer.decommission_node(gone, LONG_AGO)
    assert {status(case, tenant, 1) for tenant in tenants} == {Status.REJECT_ACKNOWLEDGED}
    with refused("node-decommissioned"):
        issuer.start_transaction(gone, f"{unique}-new")
    with refused("node-decommissioned"):
        issuer.decommission_node(gone, LONG_AGO)
    with refused("transaction-rejected"):
        issuer.commit_transaction(gone, tenants[1], 1)
    issuer.commit_transaction("b", tenants[0], 2)


def test_m_5_an_instant_that_no_log_can_hold(case: Case, unique: str) -> None:
    """M-5: an instant before the year 1 in UTC is refused, and the log can be read and written afterwards."""
    with pytest.raises((UsageError, RequestRefused), match="before the year 1"):
        case.issuer.decommission_node(f"n-{unique}", BEFORE_TIME)
    assert case.issuer.start_transaction(f"n-{unique}", unique).transaction == 1


def test_each_form_refuses_the_others_calls(case: Case, unique: str) -> None:
    """A tenant has generations or transactions, fixed by its first call."""
    issuer, other = case.issuer, f"{unique}-g"
    issuer.start_transaction("a", unique, number_place=NumberPlace.LAST)
    issuer.attach("a", other)

    with refused("other-form"):
        issuer.attach("a", unique)
    with refused("other-form"):
        issuer.fence_tenant(unique)
    with refused("not-held"):
        issuer.detach("a", unique)
    with refused("other-form"):
        issuer.start_transaction("a", other)
    with refused("other-form"):
        issuer.commit_transaction("a", other, 1)
    with refused("other-form"):
        issuer.acknowledge_transaction(other, 1, "a")
    with refused("number-place-fixed"):
        issuer.start_transaction("a", unique, number_place=NumberPlace.FIRST)
    assert issuer.re_attach("a").get(unique) is None
    assert issuer.transactions(other) is None
    assert status(case, other, 1) is Status.NEVER_STARTED


def test_an_import_starts_above_what_was(case: Case, unique: str) -> None:
    """M-16: numbers from before it are told as such; the next one builds on the imported commit."""
    issuer = case.issuer
    rows = [ImportedTransactions(unique, 5, 4, NumberPlace.LAST)]
    at = issuer.import_transactions(rows, f"i-{unique}")

    assert issuer.import_transactions(rows, f"i-{unique}") == at
    with refused("tenant-known"):
        issuer.import_transactions(rows)
    assert [status(case, unique, n) for n in (5, 6)] == [Status.IMPORTED, Status.NEVER_STARTED]
    started = issuer.start_transaction("a", unique)
    assert (started.transaction, started.last_committed, started.number_place) == (6, 4, NumberPlace.LAST)


def test_a_dropped_tenant(case: Case, unique: str) -> None:
    """Nothing starts or commits in it; what is left can be acknowledged."""
    issuer = case.issuer
    issuer.start_transaction("a", unique)
    issuer.drop(unique)

    with refused("tenant-dropped"):
        issuer.start_transaction("a", unique)
    with refused("tenant-dropped"):
        issuer.commit_transaction("a", unique, 1)
    subject = TransactionSubject(unique, 1, 0)
    assert issuer.validate([subject]).transactions[subject].dropped
    issuer.acknowledge_transaction(unique, 1, "a")


def test_what_people_see(case: Case, unique: str) -> None:
    """A tenant's transactions with their status, the newest first; None for one that has none."""
    issuer = case.issuer
    issuer.start_transaction("a", unique)
    issuer.start_transaction("b", unique)
    found = issuer.transactions(unique)

    assert found is not None
    assert (found.newest, found.last_committed, found.dropped) == (2, None, False)
    assert [(t.transaction, t.node, t.status) for t in found.transactions] == [
        (2, "b", Status.OPEN),
        (1, "a", Status.REJECT_PENDING),
    ]
    assert found.transactions[1].changed == found.transactions[0].log_offset
    assert issuer.transactions(f"{unique}-x") is None
    tenant = issuer.tenant(unique)
    assert tenant is not None
    assert (tenant.form.value, tenant.generation, tenant.history) == ("transactions", None, ())
