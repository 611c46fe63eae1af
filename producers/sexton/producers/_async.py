"""The same calls for asyncio: each runs in a thread for as long as it may wait, and the loop never does.

A thread for each call and no pool: a pool's threads are not there after a fork, and calls that wait for one
tenant would hold up those that end the wait.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from sexton.producers._client import Sexton
from sexton.producers._emitter import Statistics
from sexton.producers._errors import IndexNotWritten
from sexton.producers._fork import notice_fork, renew_after_fork
from sexton.producers._handle import IndexTurn, Tenant
from sexton.producers._intents import KeyTerms, PrefixTerms
from sexton.producers._issuer import Issuer
from sexton.producers._limits import Deadline, Limits
from sexton.producers._receipt import Receipt
from sexton.producers._transport import Delivered
from sexton.schemas.errors import EnvironmentFault, UsageError
from sexton.schemas.generations import PackedGeneration
from sexton.schemas.settings import Settings

__all__ = ["AsyncReceipt", "AsyncSexton", "AsyncTenant"]

_T = TypeVar("_T")


class AsyncReceipt:
    """A receipt to await: `await receipt`, or `await receipt.wait(timeout)`."""

    __slots__ = ("_hears", "_waiting", "receipt")

    def __init__(self, receipt: Receipt) -> None:
        self.receipt = receipt
        self._waiting: set[Callable[[], None]] = set()
        self._hears = False

    @property
    def intent_ids(self) -> tuple[str, ...]:
        """The ids of the intents, in the order of their keys."""
        return self.receipt.intent_ids

    def done(self) -> bool:
        """Return whether every intent was acknowledged or has failed."""
        return self.receipt.done()

    async def wait(self, timeout: float = 30.0) -> Mapping[str, Delivered]:
        """Return where each intent stands, and raise, as `Receipt.wait` does; `timeout` is in seconds."""
        loop, told = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(told.set)

        self._waiting.add(tell)  # first: what is reported from here on is told
        try:
            self._hear()
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    while not self.done():
                        await told.wait()
                        told.clear()
        finally:
            self._waiting.discard(tell)
        return self.receipt.result(timeout)

    def _hear(self) -> None:
        """Be told of reports, once: a future keeps each that asks, however often somebody looks again."""
        if not self._hears:
            self._hears = True
            for future in self.receipt.futures.values():
                future.add_done_callback(self._tell)

    def _tell(self, _: object) -> None:
        for tell in list(self._waiting):
            tell()

    def __await__(self) -> Generator[Any, None, Mapping[str, Delivered]]:
        return self.wait().__await__()

    def __repr__(self) -> str:
        return f"Async{self.receipt!r}"


class AsyncTenant:
    """A `Tenant` for asyncio: the same calls with the same errors; see there for what they promise.

    A cancelled call is not undone: it may have emitted, and ends in its own time.
    """

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """In a forked child: what the parent's tasks have locked stays locked."""
        self._turn = asyncio.Lock()  # waits on the loop, not in a thread, for the calls before it
        self._putting: asyncio.Task[Any] | None = None

    def relock(self) -> None:
        """Nothing: a loop's lock knows no threads."""

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self.tenant.name

    @property
    def generation(self) -> int:
        """The generation of this attachment."""
        return self.tenant.generation

    @property
    def packed(self) -> PackedGeneration | None:
        """The packed generation of a tenant of the first form, None for the final form."""
        return self.tenant.packed

    def key(self, name: str) -> str:
        """Return `name` with this attachment's suffix, as `Tenant.key` does; it never waits."""
        return self.tenant.key(name)

    async def delete(
        self,
        bucket: str,
        keys: Iterable[str] | None = None,
        *,
        timeout: float | None = None,
        any_key: bool | None = None,
        **terms: Unpack[KeyTerms],
    ) -> AsyncReceipt:
        """Ask for keys to be deleted, as `Tenant.delete` does."""
        listed = _listed(keys)
        async with self._alone(timeout) as left:
            receipt = await _in_thread(
                lambda: self.tenant.delete(bucket, listed, timeout=left, any_key=any_key, **terms)
            )
        return AsyncReceipt(receipt)

    async def replace_index(
        self,
        put: Callable[[], Awaitable[object]],
        unlinked: Iterable[str] | None = None,
        *,
        bucket: str | None = None,
        timeout: float | None = None,
        any_key: bool | None = None,
        **terms: Unpack[KeyTerms],
    ) -> AsyncReceipt:
        """Write an index with the service's own `put`, then ask for what it no longer names.

        `put` is awaited on the loop, and returns only when the store has acknowledged the index; only then
        the intent is emitted. All else is as `Tenant.replace_index` has it: cancelling this call during `put`
        is one of the ways in which nobody knows whether the index was written.
        """
        listed = _listed(unlinked)
        async with self._alone(timeout) as left:
            block = self.tenant.replacing(listed, None, bucket, left, any_key, **terms)
            not_written = IndexNotWritten("the call was cancelled before put was called")

            def undo(_: IndexTurn) -> None:
                with suppress(IndexNotWritten):
                    block.__exit__(IndexNotWritten, not_written, None)

            turn = await _in_thread(block.__enter__, undo)
            self._putting = asyncio.current_task()
            try:
                written = put()
                if not isinstance(written, Awaitable):
                    raise UsageError(f"put must return an awaitable: {type(written).__name__}")
                turn.result = await written
            except BaseException as error:
                # Here and not in a thread: nothing may come between, and nothing waits, as nothing is sent.
                if not block.__exit__(type(error), error, error.__traceback__):
                    raise
            else:
                await _in_thread(lambda: block.__exit__(None, None, None))
            finally:
                self._putting = None
        return AsyncReceipt(turn.receipt)

    async def detach(self) -> None:
        """Give the tenant back, as `Tenant.detach` does."""
        async with self._alone(None):
            await _in_thread(self.tenant.detach)

    def __repr__(self) -> str:
        return f"Async{self.tenant!r}"

    @asynccontextmanager
    async def _alone(self, timeout: float | None) -> AsyncIterator[float]:
        if self._putting is not None and self._putting is asyncio.current_task():
            raise UsageError("put called back into the handle whose index it writes")
        notice_fork()
        turn = self._turn
        deadline = Deadline(self.tenant.limits.call_timeout if timeout is None else timeout)
        try:
            async with asyncio.timeout(deadline.timeout):
                await turn.acquire()
        except TimeoutError as error:
            raise EnvironmentFault(
                f"another call of this handle did not end in {deadline.timeout:g} s"
            ) from error
        try:
            yield deadline.left()
        finally:
            turn.release()


class AsyncSexton:
    """A node's connection for asyncio services; use it in an `async with` block, or await `close`.

    A front of `Sexton`, which says what each call promises; `sexton` is the one behind it.
    """

    def __init__(self, sexton: Sexton) -> None:
        self.sexton = sexton

    @classmethod
    def connect(
        cls,
        node: str,
        settings: Settings | None = None,
        *,
        limits: Limits | None = None,
        issuer: Issuer | None = None,
        bucket: str | None = None,
        form: str = "final",
        number: int | None = None,
        any_key: bool = False,
        **overrides: Any,
    ) -> Self:
        """Return a connection for a node, as `Sexton.connect` does: nothing is contacted, nothing awaited."""
        return cls(
            Sexton.connect(
                node,
                settings,
                limits=limits,
                issuer=issuer,
                bucket=bucket,
                form=form,
                number=number,
                any_key=any_key,
                **overrides,
            )
        )

    @property
    def node(self) -> str:
        """The node's name."""
        return self.sexton.node

    async def attach(self, tenant: str) -> AsyncTenant:
        """Take a tenant and return its handle, as `Sexton.attach` does."""
        return AsyncTenant(await _in_thread(lambda: self.sexton.attach(tenant)))

    async def re_attach(self) -> dict[str, AsyncTenant]:
        """Take a new generation of every tenant that this node holds, as `Sexton.re_attach` does."""
        held = await _in_thread(self.sexton.re_attach)
        return {name: AsyncTenant(tenant) for name, tenant in held.items()}

    async def promise_delete(
        self,
        bucket: str,
        keys: Iterable[str] | None = None,
        *,
        operation: str,
        tenant: str | None = None,
        timeout: float | None = None,
        any_key: bool | None = None,
        **terms: Unpack[KeyTerms],
    ) -> AsyncReceipt:
        """Ask for keys that their owner has given up for good, as `Sexton.promise_delete` does."""
        listed = _listed(keys)
        receipt = await _in_thread(
            lambda: self.sexton.promise_delete(
                bucket,
                listed,
                operation=operation,
                tenant=tenant,
                timeout=timeout,
                any_key=any_key,
                **terms,
            )
        )
        return AsyncReceipt(receipt)

    async def promise_delete_prefix(
        self,
        bucket: str,
        prefix: str,
        *,
        operation: str,
        tenant: str | None = None,
        drop: bool = False,
        tombstone: str | None = None,
        timeout: float | None = None,
        any_key: bool | None = None,
        **terms: Unpack[PrefixTerms],
    ) -> AsyncReceipt:
        """Ask for everything under a prefix, as `Sexton.promise_delete_prefix` does."""
        receipt = await _in_thread(
            lambda: self.sexton.promise_delete_prefix(
                bucket,
                prefix,
                operation=operation,
                tenant=tenant,
                drop=drop,
                tombstone=tombstone,
                timeout=timeout,
                any_key=any_key,
                **terms,
            )
        )
        return AsyncReceipt(receipt)

    def statistics(self) -> Statistics:
        """Return how many intents were emitted; they add up: delivered + failed + pending."""
        return self.sexton.statistics()

    async def flush(self, timeout: float) -> int:
        """Wait until nothing is on its way, as `Sexton.flush` does."""
        return await _in_thread(lambda: self.sexton.flush(timeout))

    async def close(self, timeout: float | None = None) -> tuple[str, ...]:
        """Deliver what can be delivered in `timeout` seconds, as `Sexton.close` does."""
        return await _in_thread(lambda: self.sexton.close(timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _in_thread(lambda: self.sexton.__exit__(kind, error, trace))

    def __repr__(self) -> str:
        return f"Async{self.sexton!r}"


def _listed(keys: Iterable[str] | None) -> Iterable[str] | None:
    # A generator of the service's is run where the service runs, not in a thread.
    return keys if keys is None or isinstance(keys, str | bytes) else list(keys)


async def _in_thread(work: Callable[[], _T], undo: Callable[[_T], object] | None = None) -> _T:
    """Return what `work` returns, from a thread of its own; if cancelled first, `undo` gets the result."""
    future: concurrent.futures.Future[_T] = concurrent.futures.Future()
    context = contextvars.copy_context()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = context.run(work)
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="sexton-call", daemon=True).start()
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        if undo is not None and not future.cancelled():
            future.add_done_callback(lambda it: undo(it.result()) if it.exception() is None else None)
        raise
