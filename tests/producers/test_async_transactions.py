"""P-2: transactions in an asyncio service: the service's functions run on the loop, in the right order."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Any

import pytest
from tests.support.producing import run

from sexton.producers import (
    AsyncTransaction,
    CommitBegun,
    CommitRejected,
    IndexFateUnknown,
    IndexNotWritten,
    StateNotSaved,
    TransactionOver,
    UsageError,
)
from sexton.producers._async_calls import OnLoop
from sexton.producers.testing import FakeAsyncSexton
from sexton.schemas.events import TransactionGuard


class Store:
    """A service's compare-and-set of states, on the loop."""

    def __init__(self) -> None:
        self.version, self.state, self.threads = 0, dict[str, Any](), set[int]()

    async def save(self, state: dict[str, Any], version: int) -> bool:
        """Keep a state if it is the next one."""
        self.threads.add(threading.get_ident())
        await asyncio.sleep(0)
        if version != self.version + 1:
            return False
        self.version, self.state = version, state
        return True


def test_p_2_a_commit_is_awaited() -> None:
    """P-2, M-10: index first, on the loop's thread, then the deadlist, then the question."""
    before: list[str] = []

    async def work(sexton: FakeAsyncSexton) -> None:
        store, here = Store(), threading.get_ident()
        async with await sexton.transaction("t", prefix="tenants/t/", persist=store.save) as txn:
            assert (txn.id, txn.last_committed, txn.tenant) == (1, None, "t")
            assert txn.key("seg") == "tenants/t/seg.1"
            await (await txn.discard("bucket", [txn.key("tried")]))
            await txn.delete("bucket", ["old"])

            async def put() -> None:
                assert threading.get_ident() == here
                before.extend(sexton.keys)
                with pytest.raises(UsageError, match="called back into the handle"):
                    await txn.delete("bucket", ["late"])

            committed = await txn.commit(put)
            assert len(committed.intent_ids) == 1
            assert await txn.commit() == committed
        assert store.threads == {here}
        with pytest.raises(TransactionOver):
            await txn.delete("bucket", ["more"])

    sexton = run(work)
    assert before == ["tenants/t/tried.1"]
    (deadlist,) = [each for each in sexton.intents if isinstance(each.guards[0], TransactionGuard)]
    assert list(deadlist.action.keys) == ["old"]
    found = sexton.issuer.transactions("t")
    assert found is not None
    assert found.last_committed == 1


def test_p_2_a_commit_that_is_cancelled_during_its_put_emits_nothing() -> None:
    """P-2: nobody knows what the store did: the put is cancelled, nothing is asked, the rest is one call."""

    async def work(sexton: FakeAsyncSexton) -> None:
        txn = await sexton.transaction("t")
        await txn.delete("bucket", ["old"])
        begun = asyncio.Event()

        async def put() -> None:
            begun.set()
            await asyncio.Event().wait()

        commit = asyncio.create_task(txn.commit(put))
        await begun.wait()
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        with pytest.raises(IndexFateUnknown):
            await txn.commit(put)
        assert sexton.keys == []
        assert await txn.acknowledge() >= 0

    run(work)


def test_p_2_a_put_is_not_begun_for_a_commit_that_nobody_awaits() -> None:
    """P-2: cancelled while another thread had the handle: the put is never called, the handle goes on."""

    async def work(sexton: FakeAsyncSexton) -> None:
        store, held, go = Store(), asyncio.Event(), asyncio.Event()

        async def save(state: dict[str, Any], version: int) -> bool:
            if version == 2:
                held.set()
                await go.wait()
            return await store.save(state, version)

        txn = await sexton.transaction("t", persist=save)
        called: list[str] = []

        async def put(name: str) -> None:
            called.append(name)

        commit = asyncio.create_task(txn.commit(lambda: put("nobody's")))
        await held.wait()  # the state that says "PUT under way" is being saved
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        go.set()
        assert (await txn.commit(lambda: put("the next"))).log_offset >= 0
        assert called == ["the next"]

    run(work)


@pytest.mark.parametrize("unbegun", [IndexNotWritten, concurrent.futures.CancelledError])
def test_p_2_what_is_not_called_any_more_is_so_reported(unbegun: type[Exception]) -> None:
    """P-2: a put of an index that is not begun has not written it; of anything else that is not said."""

    async def work(_: FakeAsyncSexton) -> None:
        async def never() -> bool:
            raise AssertionError

        call = OnLoop(never, unbegun=unbegun)
        call.stop()
        with pytest.raises(unbegun, match="not called any more"):
            call()

    run(work)


def test_a_persist_that_cannot_be_called_is_refused_on_the_loop_too() -> None:
    """Before anything is asked of the issuer."""

    async def work(sexton: FakeAsyncSexton) -> None:
        wrong: Any = 5
        with pytest.raises(UsageError, match="persist must be a function"):
            await sexton.transaction("t", persist=wrong)
        assert sexton.sexton.issuer.transactions("t") is None

    run(work)


def test_p_2_errors_are_those_of_the_blocking_calls() -> None:
    """P-2, M-1, M-17, M-18: a rejected commit, a twin's lost save, a put that returns nothing to await."""

    async def work(sexton: FakeAsyncSexton) -> None:
        store = Store()
        first = await sexton.transaction("t", persist=store.save)
        second = await sexton.transaction("t")

        async def put() -> None: ...

        with pytest.raises(CommitRejected):
            await first.commit(put)
        await first.acknowledge()

        with pytest.raises(IndexFateUnknown, match="must return an awaitable"):
            await second.commit(lambda: None)  # type: ignore[arg-type,return-value]

        other = Store()
        paused = await sexton.transaction("u", persist=other.save)
        resumed = await sexton.resume_transaction(dict(other.state), persist=other.save)
        assert isinstance(resumed, AsyncTransaction)
        with pytest.raises(StateNotSaved):
            await paused.commit(put)
        await resumed.commit(put)
        with pytest.raises((CommitBegun, TransactionOver)):
            await resumed.discard("bucket", ["x"])

    run(work)
