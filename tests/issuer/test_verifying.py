"""Redis compared with the log while the service continues."""

from __future__ import annotations

import threading

import pytest
from tests.support.issuing import Serve, attach, keys, log_id, redis_of
from tests.support.logs import GENESIS, NOW

from sexton.deploy.local import Installation
from sexton.issuer.cli.maintenance import _still, verify_projection
from sexton.issuer.redis.projection import Difference
from sexton.issuer.state.fold import apply
from sexton.issuer.state.state import State
from sexton.schemas.events import Grant, Issued, IssueOperation, PartitionOffsets


def issued(*generations: int) -> State:
    """A log in which the tenant "t" has these generations, the first at offset 1."""
    state = State()
    apply(state, 0, GENESIS)
    for offset, generation in enumerate(generations, 1):
        grants = [Grant("t", generation, generation - 1 or None)]
        ends = PartitionOffsets("intents", [offset])
        apply(state, offset, Issued(f"r{offset}", "c", IssueOperation.ATTACH, "n", 0, 1, grants, ends, NOW))
    return state


@pytest.mark.parametrize(
    ("before", "now", "counts"),
    [
        ("1@1", "2@2", False),  # it follows the log
        ("", "1@1", False),
        ("9@9", "2@2", False),
        ("2@2", "2@2", True),  # it stands still
        ("1@1", "2@1", True),  # the log never said so
        ("1@1", "7@2", True),
        ("1@1", "5@5", True),
        ("1@1", "x", True),
        ("1@1", "", True),
    ],
)
def test_an_entry_that_follows_the_log_is_merely_late(before: str, now: str, counts: bool) -> None:
    """Only what moves from one true place of the log to another is no difference."""
    state = issued(1, 2, 3)

    found = _still(state, {"t": Difference("t", "2@2", before)}, [Difference("t", "3@3", now)])

    assert bool(found) == counts


def test_where_the_past_is_forgotten() -> None:
    """A place below the oldest window that is kept may have been a true one."""
    state = issued(1, 2, 3)
    tenant = state.tenant("t")
    assert tenant is not None
    tenant.forget_oldest()

    for raw, counts in (("1@1", False), ("1@2", True), ("2@2", False)):
        found = _still(state, {"t": Difference("t", "2@2", "")}, [Difference("t", "3@3", raw)])
        assert bool(found) == counts


@pytest.mark.real
def test_verify_while_a_tenant_is_attached_all_the_time(fresh: Installation, serve: Serve) -> None:
    """What moves is no difference; what is wrong is reported all the same."""
    service = serve(fresh.settings)
    attach(service, "n", "wrong")
    client, names = redis_of(fresh.settings), keys(fresh.settings, log_id(service))
    stopped = threading.Event()

    def busy(tenant: str) -> None:
        while not stopped.is_set():
            attach(service, "n", tenant)

    threads = [threading.Thread(target=busy, args=(f"hot{number}",)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        quiet = [verify_projection(fresh.settings) for _ in range(2)]
        client.hset(names["newest"], "wrong", "7@1")
        loud = verify_projection(fresh.settings)
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
        client.close()

    assert quiet == [[], []]
    assert [(each.tenant, each.raw) for each in loud] == [("wrong", "7@1")]
