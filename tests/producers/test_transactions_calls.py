"""Calls of a transaction's handle that come at the wrong time, or from another process, and are refused."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
from typing import Any

import pytest
from tests.support.children import exit_code, forked
from tests.support.services import GREEN
from tests.support.transactions import count_open, start

from sexton.producers import (
    IndexFateUnknown,
    IndexNotWritten,
    InvalidEvent,
    TransactionLost,
    UsageError,
)
from sexton.producers.testing import FakeSexton


def test_a_persist_that_cannot_be_called_is_refused_before_thestart(fake: FakeSexton) -> None:
    """Nothing of the transaction would be kept: nothing is asked of the issuer either."""
    wrong: Any = 5
    with pytest.raises(UsageError, match="persist must be a function"):
        start(fake, persist=wrong)
    with pytest.raises(UsageError, match="persist must be a function"):
        fake.resume_transaction({}, persist=wrong)
    assert fake.issuer.transactions("t") is None


def test_an_index_put_that_has_only_been_started_is_of_unknown_fate(fake: FakeSexton) -> None:
    """A coroutine or a future is no acknowledgement."""
    txn = start(fake)
    txn.delete("bucket", ["a"])

    async def put() -> None:
        raise AssertionError

    with pytest.raises(IndexFateUnknown, match="before the index was acknowledged"):
        txn.commit(put)

    assert fake.intents == []


def test_calls_of_a_commits_own_put_are_refused(fake: FakeSexton) -> None:
    """The index is in flight; nothing of this handle comes in between."""
    txn = start(fake)

    def put() -> None:
        with pytest.raises(UsageError, match="put called back"):
            txn.delete("bucket", ["a"])
        raise IndexNotWritten("412")

    with pytest.raises(IndexNotWritten):
        txn.commit(put)
    txn.delete("bucket", ["a"])


def test_another_thread_waits_for_its_turn(fake: FakeSexton) -> None:
    """A delete during a commit comes after it, and is refused by then."""
    txn, errors, inside = start(fake), [], threading.Event()

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
        start(fake).commit(pytest.fail, horizons=horizons)


def test_a_commit_needs_an_index(fake: FakeSexton) -> None:
    """Before anything is noted."""
    txn = start(fake)
    with pytest.raises(UsageError, match="an index is to be written first"):
        txn.commit()
    txn.commit(lambda: None)


def test_a_block_that_is_left_gives_nothing_up(fake: FakeSexton) -> None:
    """Uploads may still run: only the service can say that they have ceased."""
    with start(fake) as txn:
        txn.delete("bucket", ["a"])
    assert count_open(fake) == 1
    for call in (lambda: txn.key("a"), lambda: txn.commit(lambda: None)):
        with pytest.raises(TransactionLost, match="its block was left"):
            call()
    txn.acknowledge()

    assert count_open(fake) == 0


def test_p_2_a_transaction_belongs_to_one_process(fake: FakeSexton) -> None:
    """P-2: it is neither copied nor sent."""
    txn = start(fake)
    for send in (copy.copy, pickle.dumps):
        with pytest.raises(UsageError, match="a Transaction belongs to one process"):
            send(txn)


def test_p_2_a_forked_child_has_no_part_in_its_parents_transaction(fake: FakeSexton) -> None:
    """P-2: it neither writes, commits nor acknowledges; its parent goes on."""
    txn = start(fake)

    def child() -> None:
        for call in (
            lambda: txn.key("a"),
            lambda: txn.delete("bucket", ["a"]),
            lambda: txn.commit(lambda: None),
            txn.acknowledge,
        ):
            with pytest.raises(TransactionLost):
                call()

    assert exit_code(forked(child)) == 0
    txn.commit(lambda: None)


def test_p_2_a_child_of_an_index_put_commits_nothing(fake: FakeSexton) -> None:
    """P-2: it comes back from the put, too, and goes no further."""
    txn = start(fake)
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
