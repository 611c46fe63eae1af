"""The pure rule of the log with transactions in it: which event counts, and what it makes of the others."""

from __future__ import annotations

import pytest
from tests.support.logs import NOW
from tests.support.transaction_logs import FIRST, LAST, Log, ends

from sexton.issuer.state.fold import VALID, Void, apply
from sexton.issuer.state.transactions import Status
from sexton.schemas import events
from sexton.schemas.events import PartitionOffsets
from sexton.schemas.generations import MAX_GENERATION


@pytest.fixture
def log() -> Log:
    """A log that holds Genesis."""
    return Log()


def test_a_start_dooms_every_other_open_transaction(log: Log) -> None:
    """M-1: of several that are open only the newest can be committed; the others are rejected for good."""
    log.start("a", 1)
    log.start("b", 2)

    assert log.statuses() == ["reject-pending", "open"]
    assert log.commit("a", 1) == Void("not-open")
    assert log.commit("b", 2) == VALID
    assert log.commit("a", 1) == Void("not-open")
    assert log.statuses() == ["reject-pending", "committed"]


def test_m_13_a_start_builds_on_what_is_committed_at_its_event(log: Log) -> None:
    """M-13: 24 that believes in 22 is void once 23 is committed, and valid with 23; a commit after it is
    void.
    """
    log.start("a", 1)
    log.commit("a", 1)
    log.start("a", 2, 1)
    assert log.commit("a", 2) == VALID

    assert log.start("b", 3, 1) == Void("not-last-committed")
    assert log.start("b", 3, None) == Void("not-last-committed")
    assert log.start("b", 3, 2) == VALID
    assert log.owner.kept[3].base == 2


def test_the_other_way_round_the_commit_is_void(log: Log) -> None:
    """M-13: once 24 has started on 22, 23 is rejected: its commit does not count."""
    log.start("a", 1)
    assert log.start("b", 2) == VALID
    assert log.commit("a", 1) == Void("not-open")
    assert log.owner.committed is None


@pytest.mark.parametrize(
    ("number", "previous", "why"),
    [(3, 1, "not-newest"), (4, 2, "not-next"), (2, 2, "not-next"), (1, 2, "not-next"), (3, 3, "not-newest")],
)
def test_numbers_follow_each_other(log: Log, number: int, previous: int, why: str) -> None:
    """A number is exactly one above the newest, which the event names."""
    log.start("a", 1)
    log.start("a", 2)

    assert log.start("a", number, previous=previous) == Void(why)


def test_the_last_number(log: Log) -> None:
    """Numbers end where generations do."""
    log.imports(events.ImportedTransactions("t", MAX_GENERATION, None, FIRST))

    assert log.start("a", MAX_GENERATION + 1) == Void("not-next")


def test_only_its_node_commits(log: Log) -> None:
    """Another node's question does not count, and one that was never started neither."""
    log.start("a", 1)

    assert log.commit("b", 1) == Void("other-node")
    assert log.commit("a", 2) == Void("unknown-transaction")
    assert log.commit("a", 1, tenant="u") == Void("unknown-tenant")
    assert log.commit("a", 1) == VALID
    assert log.commit("a", 1) == Void("not-open")


@pytest.mark.parametrize(
    ("deadlist", "valid"),
    [
        (None, True),
        (ends(5, 4), True),
        (ends(5), True),
        (ends(6, 4), False),
        (ends(5, 5), False),
        (ends(5, 4, 0), False),
        (ends(5, 4, topic="another"), False),
    ],
)
def test_m_15_a_commit_covers_its_deadlist(log: Log, deadlist: PartitionOffsets | None, valid: bool) -> None:
    """M-15: end offsets below the deadlist make the event void: it would be stale for ever."""
    log.start("a", 1, at=(0, 0))
    verdict = log.commit("a", 1, at=(5, 4), deadlist=deadlist)

    assert verdict == (VALID if valid else Void("deadlist-not-covered"))


def test_m_3_the_window_of_a_deadlist(log: Log) -> None:
    """M-3: from the running maximum up to the start, to the end offsets of the commit, not to the maximum."""
    log.barrier((7, 9))
    log.start("a", 1, at=(5, 9))
    log.barrier((30, 30))
    log.commit("a", 1, at=(20, 21))
    first, other = (log.owner.kept[1].window(partition) for partition in (0, 1))

    assert (first.start, first.until, other.start, other.until) == (7, 20, 9, 21)
    assert (log.owner.kept[1].window(2).start, log.owner.kept[1].window(2).until) == (0, 0)


def test_m_5_only_what_is_rejected_is_acknowledged(log: Log) -> None:
    """M-5: its own node gives an open one up, nobody else does; a committed one never."""
    log.start("a", 1)
    assert log.acknowledge(1) == Void("not-rejected")
    assert log.acknowledge(1, "b") == Void("other-node")
    assert log.acknowledge(1, "a") == VALID
    assert log.acknowledge(1, "a") == Void("not-rejected")

    log.start("a", 2)
    log.start("b", 3)
    assert log.acknowledge(2) == VALID
    log.commit("b", 3)
    assert log.acknowledge(3, "b") == Void("not-rejected")
    assert log.acknowledge(3) == Void("not-rejected")
    assert log.statuses() == ["reject-acknowledged", "reject-acknowledged", "committed"]
    assert log.commit("a", 2) == Void("not-open")


def test_m_5_a_decommissioned_node_is_over_for_every_tenant(log: Log) -> None:
    """M-5: all that it has not committed is acknowledged; it starts and commits nothing any more."""
    log.start("a", 1)
    log.commit("a", 1)
    log.start("a", 2, 1)
    log.start("a", 3, 1)
    log.start("b", 4, 1)
    log.start("a", 1, tenant="u")
    log.start("b", 1, tenant="v")

    assert log.decommission("a") == VALID
    assert log.decommission("a") == Void("node-decommissioned")
    assert log.statuses() == ["committed", "reject-acknowledged", "reject-acknowledged", "open"]
    assert log.start("a", 5, 1) == Void("node-decommissioned")
    assert log.commit("a", 1, tenant="u") == Void("node-decommissioned")
    assert log.commit("b", 4) == VALID
    assert log.commit("b", 1, tenant="v") == VALID


def test_only_what_is_acknowledged_is_collected(log: Log) -> None:
    """Before the acknowledgement an upload may still come: nothing is gone for good."""
    log.start("a", 1)
    assert log.collect(1, 0) == Void("not-acknowledged")
    log.start("b", 2)
    assert log.collect(1, 0) == Void("not-acknowledged")
    log.acknowledge(1, "a")
    assert log.collect(1, 0) == VALID
    assert log.collect(1, 0) == Void("not-acknowledged")
    assert log.collect(9, 0) == Void("unknown-transaction")


def test_after_a_drop_nothing_starts_and_nothing_commits(log: Log) -> None:
    """What is left of a dropped tenant may still be acknowledged and collected."""
    log.start("a", 1)
    log.start("b", 2)
    log.drop()

    assert log.start("a", 3) == Void("dropped")
    assert log.commit("b", 2) == Void("dropped")
    assert log.acknowledge(1) == VALID
    assert log.acknowledge(2, "b") == VALID
    assert log.collect(1, 0) == VALID


def test_each_form_is_for_ever(log: Log) -> None:
    """A tenant of generations starts no transaction, one of transactions gets no generation."""
    log.start("a", 1)
    log.attach("g")

    assert log.attach("t") == Void("other-form")
    assert log.start("a", 1, tenant="g") == Void("other-form")
    assert log.start("a", 2, place=LAST) == Void("number-place-fixed")
    fenced = events.Fenced("f", "c", "t", 2, 1, ends(), NOW)
    assert apply(log.state, len(log.verdicts), fenced) == Void("other-form")


def test_m_16_numbers_from_before_an_import(log: Log) -> None:
    """M-16: at or below the imported newest nothing can be told from what was there before: never."""
    row = events.ImportedTransactions("t", 5, 3, LAST)
    assert log.imports(row) == VALID
    assert log.imports(row) == Void("tenant-known")
    assert log.statuses() == ["imported"] * 5
    assert log.start("a", 6, 3, place=FIRST) == Void("number-place-fixed")
    assert log.start("a", 6, None, place=LAST) == Void("not-last-committed")
    assert log.start("a", 6, 3, place=LAST) == VALID
    assert log.owner.status(7) is Status.NEVER_STARTED


@pytest.mark.parametrize(
    "rows",
    [
        [("x", -1, None)],
        [("x", 5, 6)],
        [("x", 5, -1)],
        [("x", MAX_GENERATION + 1, None)],
        [("x", 5, 5), ("x", 6, 6)],
        [("x", 5, 5), ("g", 6, 6)],
    ],
)
def test_an_import_counts_whole_or_not_at_all(log: Log, rows: list[tuple[str, int, int | None]]) -> None:
    """Numbers that contradict each other, or a tenant that is known, make all of it void."""
    log.attach("g")

    assert log.imports(*[events.ImportedTransactions(*row, FIRST) for row in rows]) != VALID
    assert log.state.tenant("x") is None
