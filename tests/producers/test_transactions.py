"""What a transaction's handle does on the way to a commit, and what it refuses."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.mock_kafka import mock_kafka
from tests.support.services import GREEN

from sexton.producers import (
    CommitBegun,
    DeliveryFailed,
    IndexFateUnknown,
    IndexNotWritten,
    InvalidEvent,
    KafkaUnavailable,
    KeyReused,
    Limits,
    QueueFull,
    RequestRefused,
    Sexton,
    Transaction,
    TransactionLost,
    UsageError,
)
from sexton.producers.testing import FakeIssuer, FakeSexton, FakeTransport
from sexton.schemas.events import AdvanceHorizon, DeleteObjects, ExpiresAt

PREFIX = "tenants/t/"


def _start(sexton: Sexton, **given: Any) -> Transaction:
    return sexton.transaction("t", prefix=PREFIX, **given)


def _open(sexton: FakeSexton) -> int:
    return sum(each.status == "open" for each in sexton.issuer.unfinished_transactions())


def test_keys_that_carry_the_number_first(fake: FakeSexton) -> None:
    """Below the tenant's prefix, which has to be named; the place is fixed by the first transaction."""
    with pytest.raises(UsageError, match="need the tenant's prefix"):
        fake.transaction("t", number_place="first")
    with pytest.raises(UsageError, match="first or last"):
        _start(fake, number_place="middle")
    assert fake.issuer.transactions("t") is None
    txn = _start(fake, number_place="first")
    assert (txn.key("a/b"), txn.prefix(), txn.prefix("a")) == (
        "tenants/t/1/a/b",
        "tenants/t/1/",
        "tenants/t/1/a/",
    )
    txn.commit(lambda: None)
    txn = _start(fake, number_place="first")
    assert txn.visible("a/b") == "tenants/t/1/a/b"
    txn.discard("bucket", [txn.key("x")])
    with pytest.raises(InvalidEvent, match="not a key of transaction 2 of t"):
        txn.discard("bucket", ["tenants/t/1/x"])
    with pytest.raises(RequestRefused) as caught:
        _start(fake)

    assert caught.value.type == "number-place-fixed"


def test_nothing_is_visible_before_the_first_commit(fake: FakeSexton) -> None:
    """There is no key to name."""
    with pytest.raises(UsageError, match="no committed transaction"):
        _start(fake).visible("index")


def test_keys_of_the_deadlist_are_checked_at_once_and_named_once(fake: FakeSexton) -> None:
    """A bad one is refused at the call, with all others; an own one is never written again."""
    txn = _start(fake)
    for bad in (["tenants/t/a.0", ""], ["s3://bucket/a"]):
        with pytest.raises(InvalidEvent):
            txn.delete("bucket", bad)
    txn.delete("bucket", [txn.key("a"), "tenants/t/a.0"])
    with pytest.raises(KeyReused):
        txn.key("a")
    with pytest.raises(KeyReused):
        txn.delete("bucket", ["tenants/t/a.0"])
    with pytest.raises(KeyReused):
        txn.discard("bucket", ["tenants/t/a.1"])
    txn.commit(lambda: None)

    assert fake.keys == ["tenants/t/a.1", "tenants/t/a.0"]


def test_a_deadlist_says_all_that_a_delete_says(fake: FakeSexton) -> None:
    """Phases, instants and vetoes; it is emitted when it is sent, not when it is collected."""
    at = datetime(2027, 1, 1, tzinfo=UTC)
    txn = _start(fake)
    txn.delete("bucket", phases=[["a"], ["b"]], pause_s=60, expires_at=at)
    before = datetime.now(UTC)
    txn.commit(lambda: None)
    (intent,) = fake.intents

    assert intent.action == DeleteObjects("bucket", [["a"], ["b"]], pause_s=60)
    assert list(intent.vetoes) == [ExpiresAt(at)]
    assert intent.emitted_at >= before.replace(microsecond=before.microsecond // 1000 * 1000)


def test_own_objects_only_are_discarded(fake: FakeSexton) -> None:
    """A promise is asked by nobody: another's key is refused, and any where no prefix says whose it is."""
    txn = _start(fake)
    for key in ("tenants/t/a.2", "tenants/u/a.1", "tenants/t/1/a", "tenants/t/2/a.1"):
        with pytest.raises(InvalidEvent):
            txn.discard("bucket", [key])
    with pytest.raises(UsageError, match="prefix"):
        fake.transaction("u").discard("bucket", ["a.1"])

    assert fake.intents == []


def test_m_10_what_failed_is_written_again_and_nothing_else(fake: FakeSexton) -> None:
    """M-10: the first error names the intents; the same ones, with the same ids, are asked for in the end."""
    txn, puts = _start(fake), []
    txn.delete("bucket", ["a"])
    fake.transport.refuse = "too large"
    with pytest.raises(DeliveryFailed, match="too large") as caught:
        txn.commit(lambda: puts.append(1), horizons={"main": 7})
    assert len(caught.value.intent_ids) == 2
    assert _open(fake) == 1
    with pytest.raises(CommitBegun):
        txn.commit(horizons={"main": 8})
    fake.transport.refuse = None
    committed = txn.commit(lambda: puts.append(2), horizons={"main": 7})

    assert committed.intent_ids == caught.value.intent_ids
    assert [intent.intent_id for intent in fake.intents] == list(committed.intent_ids)
    assert fake.intents[1].action == AdvanceHorizon("main", 7)
    assert puts == [1]


def test_m_10_a_full_queue_is_not_asked_for() -> None:
    """M-10: those that were sent may be in the log; all are named again by the same ids."""
    with FakeSexton("n", limits=Limits(keys_per_intent=1)) as fake:
        txn = _start(fake)
        txn.delete("bucket", ["a", "b", "c"])
        fake.transport.hold, fake.transport.capacity = True, 2
        with pytest.raises(QueueFull) as caught:
            txn.commit(lambda: None)
        assert (len(caught.value.accepted), len(caught.value.intent_ids)) == (2, 1)
        assert _open(fake) == 1
        fake.transport.hold, fake.transport.capacity = False, None
        fake.transport.release()
        txn.commit()

        assert {*caught.value.accepted, *caught.value.intent_ids} == {i.intent_id for i in fake.intents}
        assert fake.issuer.transactions("t").last_committed == 1  # type: ignore[union-attr]


class _Moving(FakeTransport):
    """A topic that is another one each time somebody asks."""

    ids: list[str]

    def topic_id(self, topic: str, deadline: Any) -> str:
        return self.ids.pop(0) if self.ids else super().topic_id(topic, deadline)


def test_a_topic_that_is_made_anew_in_between_is_not_asked_for() -> None:
    """Offsets of the old one say nothing of the new one; the whole deadlist is written to that."""
    transport = _Moving()
    transport.ids = ["old", "new"]
    with FakeSexton("n", transport=transport) as fake:
        txn = _start(fake)
        txn.delete("bucket", ["a"])
        with pytest.raises(KafkaUnavailable, match="made anew"):
            txn.commit(lambda: None)
        assert _open(fake) == 1
        transport.ids = ["new", "new"]
        with pytest.raises(RequestRefused) as caught:
            txn.commit()
        assert _open(fake) == 1
        with pytest.raises(CommitBegun):
            txn.delete("bucket", ["b"])
        txn.acknowledge()

        assert caught.value.type == "other-topic"
        assert fake.keys == ["a", "a"]


def test_the_offsets_behind_the_deadlist_are_its_own() -> None:
    """What was written last counts, whatever others wrote before, in between and after."""
    kept: list[dict[str, Any]] = []
    issuer = FakeIssuer()
    with FakeSexton("n", issuer, limits=Limits(keys_per_intent=1)) as fake:
        issuer.written(0, 5)
        txn = _start(fake, persist=lambda state, _: kept.append(state))
        txn.delete("bucket", ["a", "b"])
        txn.commit(lambda: issuer.written(0, 3))
        assert issuer.written(0, 2) == 12

    assert kept[-1]["deadlist"] == {"topic_id": "fake-intents", "offsets": [10]}


def test_a_persist_that_cannot_be_called_is_refused_before_the_start(fake: FakeSexton) -> None:
    """Nothing of the transaction would be kept: nothing is asked of the issuer either."""
    wrong: Any = 5
    with pytest.raises(UsageError, match="persist must be a function"):
        _start(fake, persist=wrong)
    with pytest.raises(UsageError, match="persist must be a function"):
        fake.resume_transaction({}, persist=wrong)
    assert fake.issuer.transactions("t") is None


def test_an_index_put_that_has_only_been_started_is_of_unknown_fate(fake: FakeSexton) -> None:
    """A coroutine or a future is no acknowledgement."""
    txn = _start(fake)
    txn.delete("bucket", ["a"])

    async def put() -> None:
        raise AssertionError

    with pytest.raises(IndexFateUnknown, match="before the index was acknowledged"):
        txn.commit(put)

    assert fake.intents == []


def test_calls_of_a_commits_own_put_are_refused(fake: FakeSexton) -> None:
    """The index is in flight; nothing of this handle comes in between."""
    txn = _start(fake)

    def put() -> None:
        with pytest.raises(UsageError, match="put called back"):
            txn.delete("bucket", ["a"])
        raise IndexNotWritten("412")

    with pytest.raises(IndexNotWritten):
        txn.commit(put)
    txn.delete("bucket", ["a"])


def test_another_thread_waits_for_its_turn(fake: FakeSexton) -> None:
    """A delete during a commit comes after it, and is refused by then."""
    txn, errors, inside = _start(fake), [], threading.Event()

    def late() -> None:
        inside.wait(5)
        try:
            txn.delete("bucket", ["a"])
        except Exception as error:  # noqa: BLE001 - looked at below
            errors.append(type(error).__name__)

    thread = threading.Thread(target=late)
    thread.start()

    def put() -> None:
        inside.set()
        thread.join(0.2)
        assert thread.is_alive()

    txn.commit(put)
    thread.join(5)

    assert errors == ["TransactionOver"]
    assert fake.intents == []


@pytest.mark.parametrize("horizons", [{"main": -1}, {"": 1}, {"main": "7"}, [("main", 7)]])
def test_horizons_that_are_none_are_refused_before_the_index_is_written(
    fake: FakeSexton, horizons: Any
) -> None:
    """A negative position, no timeline, no number, no mapping."""
    with pytest.raises(InvalidEvent):
        _start(fake).commit(pytest.fail, horizons=horizons)


def test_a_commit_needs_an_index(fake: FakeSexton) -> None:
    """Before anything is noted."""
    txn = _start(fake)
    with pytest.raises(UsageError, match="an index is to be written first"):
        txn.commit()
    txn.commit(lambda: None)


def test_a_block_that_is_left_gives_nothing_up(fake: FakeSexton) -> None:
    """Uploads may still run: only the service can say that they have ceased."""
    with _start(fake) as txn:
        txn.delete("bucket", ["a"])
    assert _open(fake) == 1
    for call in (lambda: txn.key("a"), lambda: txn.commit(lambda: None)):
        with pytest.raises(TransactionLost, match="its block was left"):
            call()
    txn.acknowledge()

    assert _open(fake) == 0


def test_p_2_a_transaction_belongs_to_one_process(fake: FakeSexton) -> None:
    """P-2: it is neither copied nor sent."""
    txn = _start(fake)
    for send in (copy.copy, pickle.dumps):
        with pytest.raises(UsageError, match="a Transaction belongs to one process"):
            send(txn)


def _in_child(work: Any) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_p_2_a_forked_child_has_no_part_in_its_parents_transaction(fake: FakeSexton) -> None:
    """P-2: it neither writes, commits nor acknowledges; its parent goes on."""
    txn = _start(fake)

    def child() -> None:
        for call in (
            lambda: txn.key("a"),
            lambda: txn.delete("bucket", ["a"]),
            lambda: txn.commit(lambda: None),
            txn.acknowledge,
        ):
            with pytest.raises(TransactionLost):
                call()

    assert _in_child(child) == 0
    txn.commit(lambda: None)


def test_p_2_a_child_of_an_index_put_commits_nothing(fake: FakeSexton) -> None:
    """P-2: it comes back from the put, too, and goes no further."""
    txn = _start(fake)
    txn.delete("bucket", ["a"])
    parent, codes = os.getpid(), []

    def put() -> None:
        child = os.fork()
        if child:
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    try:
        txn.commit(put)
    except TransactionLost:
        if os.getpid() != parent:
            os._exit(7 if fake.intents == [] else 8)
        raise
    finally:
        if os.getpid() != parent:
            os._exit(9)

    assert codes == [7]
    assert fake.keys == ["a"]


def test_p_2_there_are_no_transactions_under_eventlet() -> None:
    """P-2: said before anything is started, as a commit's question to the brokers would never be answered."""
    body = """
from sexton.producers import UsageError
from sexton.producers.testing import FakeSexton
with FakeSexton("n") as sexton:
    for call in (
        lambda: sexton.transaction("t"),
        lambda: sexton.resume_transaction(None, tenant="t", transaction=1),
    ):
        try:
            call()
        except UsageError as error:
            print(error)
    assert sexton.issuer.transactions("t") is None
"""
    done = subprocess.run(
        [sys.executable, "-c", f"{GREEN['eventlet']}\n{body}"],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    said = "there are no transactions under eventlet\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said * 2, "")


def test_a_broker_that_is_away_is_told_before_anything_is_asked() -> None:
    """The index is written, and the deadlist waits: the commit is repeated when the broker is back."""
    with mock_kafka("sexton.intents") as address:
        gone = address
    issuer = FakeIssuer()
    with Sexton.connect("n", issuer=issuer, kafka_bootstrap_servers=gone) as sexton:
        txn = _start(sexton)
        txn.delete("bucket", ["a"])
        with pytest.raises(KafkaUnavailable):
            txn.commit(lambda: None, timeout=0.2)
        with pytest.raises(CommitBegun):
            txn.key("b")

    assert issuer.unfinished_transactions()[0].status == "open"
