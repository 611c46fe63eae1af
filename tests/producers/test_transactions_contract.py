"""Transactions: the same behaviour from the fakes and from the real issuer and Kafka."""

from __future__ import annotations

import subprocess
import sys
import uuid
from contextlib import closing
from typing import Any, NoReturn

import pytest
from tests.support.producing import Fake, Losing, Real
from tests.support.services import GREEN
from tests.support.topics import recreate

from sexton.deploy.local import Installation
from sexton.issuer.state.transactions import Status
from sexton.producers import (
    CommitBegun,
    CommitRejected,
    DeliveryPending,
    IndexFateUnknown,
    IndexNotWritten,
    IssuerUnavailable,
    KeyReused,
    RequestRefused,
    Sexton,
    Transaction,
    TransactionOver,
)
from sexton.schemas.events import (
    AdvanceHorizon,
    DeletionIntent,
    PromiseGuard,
    TransactionGuard,
    TransactionState,
)

PREFIX = "tenants/t/"
World = Fake | Real


def _name() -> str:
    return f"tenant {uuid.uuid4()}"


def _start(sexton: Sexton, tenant: str, **given: Any) -> Transaction:
    return sexton.transaction(tenant, prefix=PREFIX, **given)


def _status(world: World, tenant: str) -> dict[int, Status]:
    found = world.issuer().transactions(tenant)
    assert found is not None
    return {each.transaction: each.status for each in found.transactions}


def _guard(tenant: str, number: int) -> TransactionGuard:
    return TransactionGuard(tenant, number, TransactionState.COMMITTED)


def _keys(intents: list[DeletionIntent]) -> list[list[str]]:
    return [list(intent.action.keys) for intent in intents]


def test_a_commit_writes_the_index_then_the_deadlist_then_asks(world: World) -> None:
    """M-3: nothing is sent before; deadlist and horizons stand in the transaction's window."""
    x = _name()
    with world.connect("node-7") as seven:
        with _start(seven, x) as first:
            assert (first.id, first.last_committed) == (1, None)
            assert first.key("layer-1") == "tenants/t/layer-1.1"
            first.commit(lambda: None)
        with _start(seven, x) as second:
            assert (second.id, second.last_committed) == (2, 1)
            assert second.visible("index") == "tenants/t/index.1"
            second.delete("bucket", ["tenants/t/layer-1.1"])
            seen: list[object] = []

            def put_index() -> None:
                seen.extend([world.emitted(seven), _status(world, x)[2]])

            committed = second.commit(put_index, horizons={"main": 70})
        emitted = world.emitted(seven)
        with _start(seven, x) as third:
            assert (third.id, third.last_committed) == (3, 2)
            third.acknowledge()

    assert seen == [[], Status.OPEN]
    assert [intent.guards for intent in emitted] == [[_guard(x, 2)]] * 2
    assert _keys(emitted) == [["tenants/t/layer-1.1"], []]
    assert emitted[1].action == AdvanceHorizon("main", 70)
    assert committed.intent_ids == tuple(intent.intent_id for intent in emitted)
    assert _status(world, x)[2] is Status.COMMITTED


def test_m_1_only_the_newest_commits(world: World) -> None:
    """M-1: the older is rejected, for good, and acknowledges; what it emitted is never in a window."""
    x = _name()
    with world.connect("a") as a, world.connect("b") as b:
        old = _start(a, x)
        new = _start(b, x)
        new.commit(lambda: None)
        old.delete("bucket", ["tenants/t/k.0"])
        with pytest.raises(CommitRejected):
            old.commit(lambda: None)
        for again in (
            lambda: old.commit(lambda: None),
            lambda: old.key("a"),
            lambda: old.delete("bucket", ["c"]),
        ):
            with pytest.raises(CommitRejected):
                again()
        assert _status(world, x)[1] is Status.REJECT_PENDING
        old.acknowledge()
        old.acknowledge()
        with pytest.raises(TransactionOver):
            old.key("a")

    assert _status(world, x) == {1: Status.REJECT_ACKNOWLEDGED, 2: Status.COMMITTED}


def test_m_10_what_kafka_has_not_acknowledged_is_not_asked_for(world: World) -> None:
    """M-10: the error names the intents, nothing is asked; called again, the same ones are waited for."""
    x, puts = _name(), []
    with world.connect("node-7") as seven:
        txn = _start(seven, x)
        txn.delete("bucket", ["tenants/t/a.0"])
        txn.delete("bucket", ["tenants/t/b.0"])
        _hold(seven)
        with pytest.raises(DeliveryPending) as caught:
            txn.commit(lambda: puts.append(1), timeout=0)
        assert _status(world, x)[1] is Status.OPEN
        for refused in (lambda: txn.key("c"), lambda: txn.delete("bucket", ["c"])):
            with pytest.raises(CommitBegun):
                refused()
        _release(seven)
        committed = txn.commit(timeout=20)
        emitted = world.emitted(seven)

    assert set(caught.value.intent_ids) == set(committed.intent_ids)
    assert sorted(_keys(emitted)) == [["tenants/t/a.0"], ["tenants/t/b.0"]]
    assert puts == [1]


def _hold(sexton: Sexton) -> None:
    """Keep acknowledgements back: on Kafka a wait of no time at all does."""
    if (transport := getattr(sexton, "transport", None)) is not None:
        transport.hold = True


def _release(sexton: Sexton) -> None:
    if (transport := getattr(sexton, "transport", None)) is not None:
        transport.hold = False
        transport.release()


@pytest.mark.parametrize("end", ["commit", "acknowledge"])
def test_m_18_after_a_commit_of_unknown_answer_nothing_else_is_done(world: World, end: str) -> None:
    """M-18: writing on is refused; the repeated commit learns it, and so does an acknowledgement."""
    x = _name()
    losing = Losing(world.issuer(), IssuerUnavailable("lost"), commit_transaction=1)
    with world.connect("node-7", issuer=losing) as seven:
        txn = _start(seven, x)
        txn.delete("bucket", ["tenants/t/a.0"])
        with pytest.raises(IssuerUnavailable):
            txn.commit(lambda: None)
        for refused in (
            lambda: txn.key("b"),
            lambda: txn.delete("bucket", ["tenants/t/b.0"]),
            lambda: txn.discard("bucket", ["tenants/t/b.1"]),
            lambda: txn.commit(horizons={"main": 3}),
        ):
            with pytest.raises(CommitBegun):
                refused()
        if end == "commit":
            assert txn.commit() == txn.commit(_never)
        else:
            with pytest.raises(RequestRefused) as caught:
                txn.acknowledge()
            assert caught.value.type == "transaction-committed"
        with pytest.raises(TransactionOver):
            txn.key("c")
        assert _keys(world.emitted(seven)) == [["tenants/t/a.0"]]

    assert _status(world, x) == {1: Status.COMMITTED}


def _never() -> NoReturn:
    raise AssertionError("the index is written once")


def test_m_14_a_commit_under_way_is_repeated_after_a_restart(world: World) -> None:
    """M-14, M-7: the state has topic and offsets; the next process asks the same, and gets the answer."""
    x = _name()
    kept: list[dict[str, Any]] = []
    losing = Losing(world.issuer(), IssuerUnavailable("lost"), commit_transaction=1)
    with world.connect("node-7", issuer=losing) as seven:
        txn = _start(seven, x, persist=lambda state, version: kept.append(state))
        txn.delete("bucket", ["tenants/t/a.0"])
        with pytest.raises(IssuerUnavailable):
            txn.commit(lambda: None)
    with world.connect("node-7") as seven:
        txn = seven.resume_transaction(kept[-1], persist=lambda state, version: kept.append(state))
        with pytest.raises(CommitBegun):
            txn.key("b")
        again = txn.commit(_never)
        emitted = world.emitted(seven)

    assert [state["phase"] for state in kept] == ["open", "put", "deadlist", "commit", "commit"]
    assert [state["version"] for state in kept] == [1, 2, 3, 4, 5]
    offsets = kept[-1]["deadlist"]["offsets"]
    assert kept[-1]["deadlist"]["topic_id"]
    assert sum(offsets) == 1
    assert again.log_offset == max(each.changed for each in _transactions(world, x))
    assert _keys(emitted) == [["tenants/t/a.0"]]
    assert _status(world, x) == {1: Status.COMMITTED}


def _transactions(world: World, tenant: str) -> Any:
    found = world.issuer().transactions(tenant)
    assert found is not None
    return found.transactions


def test_an_index_of_unknown_fate_is_never_committed(world: World) -> None:
    """Nothing is emitted or asked; where PUTs are conditional the index is read back first."""
    x = _name()

    def put_index() -> NoReturn:
        raise TimeoutError("read timed out")

    def refused() -> NoReturn:
        raise IndexNotWritten("412")

    with world.connect("node-7") as seven:
        txn = _start(seven, x)
        txn.delete("bucket", ["tenants/t/a.0"])
        with pytest.raises(IndexNotWritten):
            txn.commit(refused)
        txn.key("goes on")
        with pytest.raises(IndexFateUnknown):
            txn.commit(put_index)
        for again in (lambda: txn.commit(lambda: None), lambda: txn.discard("bucket", ["tenants/t/b.1"])):
            with pytest.raises(IndexFateUnknown):
                again()
        with pytest.raises(IndexNotWritten):
            txn.commit(put_index, read_index=lambda: False)
        assert world.emitted(seven) == []
        assert _status(world, x) == {1: Status.OPEN}
        txn.commit(_never, read_index=lambda: True)
        assert _keys(world.emitted(seven)) == [["tenants/t/a.0"]]

    assert _status(world, x) == {1: Status.COMMITTED}


def test_discarded_names_are_promised_and_never_written_again(world: World) -> None:
    """Own objects of an open transaction go at once, by a promise; the name is refused after a resume too."""
    x = _name()
    kept: list[dict[str, Any]] = []
    with world.connect("node-7") as seven:
        txn = _start(seven, x, persist=lambda state, version: kept.append(state))
        txn.discard("bucket", [txn.key("a")]).wait(10)
        with pytest.raises(KeyReused):
            txn.key("a")
        (intent,) = world.emitted(seven)
        assert len(kept) == 2
        resumed = seven.resume_transaction(kept[-1], persist=lambda *_: True)
        with pytest.raises(KeyReused):
            resumed.key("a")
        assert resumed.key("b") == "tenants/t/b.1"

    assert intent.guards == [PromiseGuard("discarded by transaction 1")]
    assert _keys([intent]) == [["tenants/t/a.1"]]


@pytest.mark.real
def test_a_deadlist_in_a_topic_that_was_made_anew_is_refused(installation: Installation) -> None:
    """The id of the topic goes with the offsets: they mean nothing in another one."""
    x = _name()
    kept: list[dict[str, Any]] = []
    with closing(Real(installation)) as world, world.connect("node-7") as seven:
        txn = _start(seven, x, persist=lambda state, version: kept.append(state))
        txn.delete("bucket", ["tenants/t/a.0"])
        with pytest.raises((RequestRefused, IssuerUnavailable)) as caught:
            txn.commit(lambda: recreate(world.settings, "intents"))
        with pytest.raises(CommitBegun):
            txn.key("b")

    assert "topic" in str(caught.value)
    assert kept[-1]["phase"] == "commit"


@pytest.mark.real
def test_p_2_a_transaction_commits_under_gevent(installation: Installation) -> None:
    """P-2: the question which topic it is holds up nobody for ever."""
    body = """
from sexton.producers import Sexton
with Sexton.connect("node-7") as sexton:
    txn = sexton.transaction("t")
    txn.delete("bucket", ["a.0"])
    txn.commit(lambda: None)
"""
    done = subprocess.run(
        [sys.executable, "-c", f"{GREEN['gevent']}\n{body}"],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    with closing(Real(installation)) as world:
        assert _status(world, "t") == {1: Status.COMMITTED}
