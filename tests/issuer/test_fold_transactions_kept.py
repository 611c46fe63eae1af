"""What the fold keeps of transactions: what is final stays so, and what is settled is forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from tests.support.logs import mixed_logs
from tests.support.transaction_logs import Log

from sexton.issuer.state.fold import State, apply
from sexton.issuer.state.transactions import Status
from sexton.schemas import events


@pytest.fixture
def log() -> Log:
    """A log that holds Genesis."""
    return Log()


class TestForgetting:
    """History: a final state goes once everything below it is settled; the last committed one stays."""

    def test_a_committed_one_goes_after_the_next_commit(self, log: Log) -> None:
        """Only once it is not the visible one any more, and all below that commit is settled."""
        log.start("a", 1)
        log.commit("a", 1, at=(4,))
        log.barrier((9,), (9,))
        assert log.statuses() == ["committed"]
        log.start("a", 2, 1, at=(9,))
        log.commit("a", 2, at=(12,))
        log.barrier((20,), (11,))
        assert log.statuses() == ["committed", "committed"]
        log.barrier((20,), (12,))
        assert log.statuses() == ["forgotten", "committed"]
        assert log.owner.committed == 2

    def test_a_rejected_one_stays_until_it_is_collected(self, log: Log) -> None:
        """However much is settled: its objects may still be there."""
        log.start("a", 1)
        log.start("b", 2)
        log.acknowledge(1, "a")
        log.barrier((50,), (50,))
        assert log.statuses() == ["reject-acknowledged", "open"]
        log.collect(1, 60)
        log.barrier((70,), (59,))
        assert log.statuses() == ["collected", "open"]
        log.barrier((70,), (60,))
        assert log.statuses() == ["forgotten", "open"]

    def test_m_12_a_thousand_transactions(self, log: Log) -> None:
        """M-12: with the history cut, what is forgotten is told from what never was, and never passes."""
        base = None
        for number in range(1, 1001):
            log.start("a", number, base, at=(number,))
            if number % 3:
                log.commit("a", number, at=(number + 1,))
                base = number
            else:
                log.acknowledge(number, "a")
                log.collect(number, number + 1)
            log.barrier((number + 1,), (number,))
        log.barrier((2000,), (2000,))
        statuses = log.statuses()

        assert statuses[-1] == "committed"
        assert set(statuses[:-1]) == {"forgotten"}
        assert log.owner.status(1001) is Status.NEVER_STARTED
        assert len(log.owner.kept) == 1


@settings(max_examples=200)
@given(mixed_logs(60))
@pytest.mark.slow
def test_what_is_final_stays_so(log: list[events.GenerationEvent]) -> None:
    """A committed or collected transaction, and the last committed number, never become something else."""
    state = State()
    before: dict[tuple[str, int], Status] = {}
    after = {
        Status.OPEN: set(Status),
        Status.REJECT_PENDING: {Status.REJECT_PENDING, Status.REJECT_ACKNOWLEDGED, Status.COLLECTED},
        Status.REJECT_ACKNOWLEDGED: {Status.REJECT_ACKNOWLEDGED, Status.COLLECTED},
        Status.COMMITTED: {Status.COMMITTED, Status.FORGOTTEN},
        Status.COLLECTED: {Status.COLLECTED, Status.FORGOTTEN},
        Status.FORGOTTEN: {Status.FORGOTTEN},
    }
    for offset, event in enumerate(log):
        apply(state, offset, event)
        for tenant in state:
            owner = tenant.transactions
            if owner is None:
                continue
            now = {
                (tenant.name, n): owner.status(n) for n in range(owner.imported + 1, (owner.newest or 0) + 1)
            }
            for key, status in now.items():
                assert status in after[before.get(key, status)]
            before |= now
            opened = [each for each in owner if each.status is Status.OPEN]
            assert len(opened) <= 1
            assert all(each.number == owner.newest for each in opened)


def test_where_redis_may_have_been_a_moment_ago(log: Log) -> None:
    """An entry that follows the log is late, not wrong: it is compared with what the log has said before."""
    log.start("a", 1)
    log.commit("a", 1)
    log.start("a", 2, 1)
    tenant = log.state.tenant("t")
    assert tenant is not None

    assert tenant.proposed_after == (2, 3)
    assert [tenant.was_at(1, offset) for offset in (1, 2, 3)] == [True, True, False]
    assert [tenant.was_at(number, 3) for number in (2, 3)] == [True, False]
    log.commit("a", 2)
    log.barrier((9,), (9,))
    assert log.statuses() == ["forgotten", "committed"]
    assert [tenant.was_at(1, offset) for offset in (2, 4)] == [True, False]
