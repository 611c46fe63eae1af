"""P-2: the SDK in an asyncio service: the same calls, in the right order, and the loop never waits."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.producing import run

from sexton.producers import (
    AsyncReceipt,
    AsyncSexton,
    AsyncTenant,
    AsyncTransaction,
    DeliveryFailed,
    DeliveryPending,
    EnvironmentFault,
    IndexFateUnknown,
    IndexNotWritten,
    InvalidEvent,
    KeyReused,
    Limits,
    Receipt,
    Sexton,
    Tenant,
    Transaction,
    UsageError,
)
from sexton.producers.testing import FakeAsyncSexton, FakeIssuer
from sexton.schemas.events import DeletionIntent

Arrived = Callable[[], list[DeletionIntent]]
NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("front", "real"), [(AsyncSexton, Sexton), (AsyncTenant, Tenant), (AsyncTransaction, Transaction)]
)
def test_p_2_a_front_has_every_call_with_its_arguments(front: type, real: type) -> None:
    """P-2: what the blocking class offers the asyncio one offers, with the same names and defaults."""
    inner = {"renew", "relock", "end", "replacing", "limits", "keep_first"}
    inner.add("sequenced")  # it needs no connection, and its writer has no front
    for name, call in inspect.getmembers(real):
        if not name.startswith("_") and name not in inner:
            own = getattr(front, name)
            if not isinstance(call, property):
                theirs, ours = inspect.signature(call).parameters, inspect.signature(own).parameters
                assert [(p.name, p.kind, p.default) for p in ours.values()] == [
                    (p.name, p.kind, p.default) for p in theirs.values()
                ], name


def test_p_2_intents_arrive_and_receipts_are_awaited(kafka: str, arrived: Arrived) -> None:
    """P-2: attach, replace, delete, promise, flush and close, against a broker."""

    async def service() -> list[str]:
        connected = AsyncSexton.connect("n", issuer=FakeIssuer(), kafka_bootstrap_servers=kafka)
        async with connected as sexton:
            tenant = await sexton.attach("t")
            receipts = [
                await tenant.replace_index(written, ["a", "b"], bucket="bucket"),
                await tenant.delete("bucket", ["c"]),
                await sexton.promise_delete("bucket", ["d"], operation="o"),
                await sexton.promise_delete_prefix("bucket", "p/", operation="o"),
            ]
            for receipt in receipts:
                assert tuple(await receipt) == receipt.intent_ids
                assert receipt.done()
            assert await sexton.flush(5) == 0
            assert await sexton.close(3) == ()
        return [intent_id for receipt in receipts for intent_id in receipt.intent_ids]

    assert sorted(asyncio.run(service())) == sorted(intent.intent_id for intent in arrived())


async def written() -> None:
    """Write an index, in a moment."""
    await asyncio.sleep(0.01)


def test_p_2_put_is_acknowledged_before_the_intent_is_sent() -> None:
    """P-2: while `put` runs nothing is emitted; also not by the handle's other calls."""
    seen: list[list[str]] = []

    async def work(sexton: FakeAsyncSexton) -> None:
        async def put() -> None:
            await asyncio.sleep(0.05)
            seen.append(sexton.keys)

        tenant = await sexton.attach("t")
        one = asyncio.create_task(tenant.replace_index(put, ["a"], bucket="bucket"))
        await asyncio.sleep(0.01)
        await tenant.delete("bucket", ["b"])
        await one

    assert run(work).keys == ["a", "b"]
    assert seen == [[]]


@pytest.mark.parametrize("error", [TimeoutError("late"), ConnectionError("lost"), ValueError("odd")])
def test_p_2_whatever_put_raises_leaves_the_fate_unknown(error: Exception) -> None:
    """P-2: nothing is emitted, now or later, by a handle whose `put` has failed."""

    async def work(sexton: FakeAsyncSexton) -> None:
        async def put() -> None:
            raise error

        tenant = await sexton.attach("t")
        with pytest.raises(IndexFateUnknown, match=str(error)):
            await tenant.replace_index(put, ["a"], bucket="bucket")
        with pytest.raises(IndexFateUnknown):
            await tenant.delete("bucket", ["b"])

    assert run(work).keys == []


def test_p_2_an_index_that_was_not_written_leaves_the_handle_good() -> None:
    """P-2: `IndexNotWritten` comes through, and the keys may be named again."""

    async def work(sexton: FakeAsyncSexton) -> None:
        async def put() -> None:
            raise IndexNotWritten("412")

        tenant = await sexton.attach("t")
        with pytest.raises(IndexNotWritten):
            await tenant.replace_index(put, ["a"], bucket="bucket")
        await tenant.replace_index(written, ["a"], bucket="bucket")

    assert run(work).keys == ["a"]


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.1])
def test_p_2_a_call_that_is_cancelled_during_put_emits_nothing(after_s: float) -> None:
    """P-2: `put` is cancelled with it; before `put` the handle stays good, afterwards nobody knows."""

    async def work(sexton: FakeAsyncSexton) -> None:
        began = asyncio.Event()

        async def put() -> None:
            began.set()
            await asyncio.sleep(60)

        tenant = await sexton.attach("t")
        task = asyncio.create_task(tenant.replace_index(put, ["a"], bucket="bucket"))
        await asyncio.sleep(after_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if began.is_set():
            with pytest.raises(IndexFateUnknown):
                await tenant.delete("bucket", ["a"])
        else:
            await tenant.delete("bucket", ["a"])
            sexton.transport.records.clear()

    assert run(work).keys == []


@pytest.mark.parametrize("slow_s", [0.05, 0.2, 0.4])
def test_p_2_a_call_that_is_cancelled_before_put_leaves_the_handle_good(slow_s: float) -> None:
    """P-2: while its thread prepares the intents: nothing was written, the keys may be named again."""

    async def work(sexton: FakeAsyncSexton) -> None:
        tenant = await sexton.attach("t")
        prepare = sexton.sexton._emitter.prepare

        def slow(*args: Any, **named: Any) -> Any:
            time.sleep(slow_s)
            return prepare(*args, **named)

        sexton.sexton._emitter.prepare = slow  # type: ignore[method-assign]
        task = asyncio.create_task(tenant.replace_index(written, ["a"], bucket="bucket"))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await tenant.delete("bucket", ["a"], timeout=2 + slow_s)

    assert run(work).keys == ["a"]


def test_p_2_put_must_be_awaitable_and_return_after_it() -> None:
    """P-2: a function that returns nothing to await, and one that returns something not awaited yet."""

    async def work(sexton: FakeAsyncSexton) -> None:
        async def started() -> object:
            return written()

        puts: tuple[Callable[[], Any], ...] = (lambda: None, lambda: 7, started)
        for put in puts:
            tenant = await sexton.attach("t")
            with pytest.raises(IndexFateUnknown):
                await tenant.replace_index(put, ["a"], bucket="bucket")

    assert run(work).keys == []


def test_p_2_put_may_call_others_but_not_its_own_handle() -> None:
    """P-2: other handles emit meanwhile; its own says so at once, or in time from another task."""

    async def work(sexton: FakeAsyncSexton) -> None:
        tenant, other = await sexton.attach("t"), await sexton.attach("u")

        async def put() -> None:
            await other.delete("bucket", ["o"])
            with pytest.raises(UsageError, match="called back"):
                await tenant.delete("bucket", ["x"])
            with pytest.raises(EnvironmentFault, match=r"did not end in 0\.05 s"):
                await asyncio.create_task(tenant.delete("bucket", ["x"], timeout=0.05))

        await tenant.replace_index(put, ["a"], bucket="bucket")

    assert run(work).keys == ["o", "a"]


def test_p_2_many_index_turns_wait_at_once() -> None:
    """P-2: 300 PUTs at once, each of which emits through another handle: nobody waits for a free thread."""

    async def work(sexton: FakeAsyncSexton) -> None:
        other = await sexton.attach("other")

        async def turn(name: str) -> None:
            async def put() -> None:
                await asyncio.sleep(0.3)
                await other.delete("bucket", [f"{name}-other"])

            tenant = await sexton.attach(name)
            await (await tenant.replace_index(put, [name], bucket="bucket"))

        await asyncio.gather(*(turn(f"t{i}") for i in range(300)))

    began = time.monotonic()
    assert len(run(work).keys) == 600
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("call", ["delete", "flush", "close", "wait", "attach"])
def test_p_2_the_loop_is_never_blocked(call: str) -> None:
    """P-2: a full queue, a broker or an issuer that is away holds up the call and nothing else."""

    class Slow(FakeIssuer):
        def attach(self, *args: Any, **named: Any) -> Any:
            if args[1] == "slow":
                time.sleep(2)
            return super().attach(*args, **named)

    async def work() -> float:
        limits = Limits(queue_messages=1, call_timeout=2)
        sexton = AsyncSexton.connect("n", limits=limits, issuer=Slow(), kafka_bootstrap_servers=NOBODY)
        tenant = await sexton.attach("t")
        receipt = await tenant.delete("bucket", ["a"])
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "delete": lambda: tenant.delete("bucket", ["b"]),
            "flush": lambda: sexton.flush(2),
            "close": lambda: sexton.close(2),
            "wait": lambda: receipt.wait(2),
            "attach": lambda: sexton.attach("slow"),
        }
        ticks = asyncio.create_task(longest_gap())
        began = time.monotonic()
        ended = await asyncio.gather(calls[call](), return_exceptions=True)
        took = time.monotonic() - began
        ticks.cancel()
        assert isinstance(ended[0], EnvironmentFault) == (call in ("delete", "wait"))
        assert took < 5
        if call != "close":
            assert await sexton.close(0.5) == receipt.intent_ids
        with pytest.raises(DeliveryFailed):
            await receipt
        return gaps[0]

    gaps = [0.0]

    async def longest_gap() -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.005)
            now = time.monotonic()
            gaps[0], last = max(gaps[0], now - last), now

    assert asyncio.run(work()) < 1.5  # a blocked loop stands still for two seconds


def test_p_2_a_wait_ends_at_its_deadline_and_may_be_asked_again() -> None:
    """P-2: a receipt on its way says so; a cancelled wait takes nothing from the next."""

    async def work(sexton: FakeAsyncSexton) -> None:
        sexton.transport.hold = True
        receipt = await (await sexton.attach("t")).delete("bucket", ["a"])
        with pytest.raises(DeliveryPending, match=r"after 0\.05 s: 1: "):
            await receipt.wait(0.05)
        waiting = asyncio.create_task(receipt.wait(5))
        await asyncio.sleep(0.01)
        waiting.cancel()
        again = asyncio.create_task(receipt.wait(5))
        await asyncio.sleep(0.01)
        sexton.transport.release()
        assert list(await again) == list(receipt.intent_ids)

    run(work)


def test_p_2_errors_are_those_of_the_blocking_calls() -> None:
    """P-2: bad keys, reused names and a bad type are refused with the same errors."""

    async def work(sexton: FakeAsyncSexton) -> None:
        tenant = await sexton.attach("t")
        await tenant.delete("bucket", ["a"])
        for keys, error in (["s3://b/k"], InvalidEvent), (["a"], KeyReused), ("text", InvalidEvent):
            with pytest.raises(error):
                await tenant.delete("bucket", keys)
        assert tenant.key("x") == "x-00000001"
        await tenant.detach()
        assert await sexton.re_attach() == {}
        assert sexton.statistics().delivered == 1

    run(work)


def test_p_2_what_is_on_its_way_fails_the_block() -> None:
    """P-2: leaving the block closes, and raises if something was not delivered."""

    async def work(sexton: FakeAsyncSexton) -> None:
        sexton.transport.hold = True
        await (await sexton.attach("t")).delete("bucket", ["a"])

    with pytest.raises(DeliveryFailed, match="intents not delivered: 1"):
        run(work)


def test_p_2_a_front_shows_what_is_behind_it() -> None:
    """P-2: the texts say which."""
    assert repr(AsyncReceipt(Receipt(()))) == "AsyncReceipt(0 intents, done)"
