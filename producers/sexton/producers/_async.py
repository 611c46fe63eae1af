"""The same calls for asyncio: each runs in a thread for as long as it may wait, and the loop never does.

A thread for each call and no pool: a pool's threads are not there after a fork, and calls that wait for one
tenant would hold up those that end the wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, Unpack

from sexton.producers._async_calls import OnLoop, Turns, as_list, in_thread
from sexton.producers._async_receipt import AsyncReceipt
from sexton.producers._async_transaction import AsyncSave, AsyncTransaction
from sexton.producers._client import Sexton
from sexton.producers._emitter import Statistics
from sexton.producers._errors import IndexNotWritten
from sexton.producers._handle import IndexTurn, Tenant
from sexton.producers._intents import KeyTerms, PrefixTerms
from sexton.producers._issuer import Issuer
from sexton.producers._limits import Limits
from sexton.producers._transaction_kept import Save, check_save
from sexton.schemas.errors import UsageError
from sexton.schemas.generations import PackedGeneration
from sexton.schemas.settings import Settings

__all__ = ["AsyncSexton", "AsyncTenant"]


class AsyncTenant(Turns):
    """A `Tenant` for asyncio: the same calls with the same errors; see there for what they promise.

    A cancelled call is not undone: it may have emitted, and ends in its own time.
    """

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant
        super().__init__(tenant.limits)

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
        listed = as_list(keys)
        async with self._alone(timeout) as left:
            receipt = await in_thread(
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
        listed = as_list(unlinked)
        async with self._alone(timeout) as left:
            block = self.tenant.replacing(listed, None, bucket, left, any_key, **terms)
            not_written = IndexNotWritten("the call was cancelled before put was called")

            def undo(_: IndexTurn) -> None:
                with suppress(IndexNotWritten):
                    block.__exit__(IndexNotWritten, not_written, None)

            turn = await in_thread(block.__enter__, undo)
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
                await in_thread(lambda: block.__exit__(None, None, None))
            finally:
                self._putting = None
        return AsyncReceipt(turn.receipt)

    async def detach(self) -> None:
        """Give the tenant back, as `Tenant.detach` does."""
        async with self._alone():
            await in_thread(self.tenant.detach)

    def __repr__(self) -> str:
        return f"Async{self.tenant!r}"


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
        return AsyncTenant(await in_thread(lambda: self.sexton.attach(tenant)))

    async def re_attach(self) -> dict[str, AsyncTenant]:
        """Take a new generation of every tenant that this node holds, as `Sexton.re_attach` does."""
        held = await in_thread(self.sexton.re_attach)
        return {name: AsyncTenant(tenant) for name, tenant in held.items()}

    async def transaction(
        self,
        tenant: str,
        *,
        prefix: str = "",
        number_place: str = "last",
        persist: AsyncSave | None = None,
    ) -> AsyncTransaction:
        """Start a tenant's next transaction, as `Sexton.transaction` does; `persist` runs on the loop."""
        start, save = self.sexton.transaction, _save(persist)
        return AsyncTransaction(
            await in_thread(lambda: start(tenant, prefix=prefix, number_place=number_place, persist=save))
        )

    async def resume_transaction(
        self,
        state: Mapping[str, Any] | None,
        *,
        persist: AsyncSave | None = None,
        tenant: str | None = None,
        transaction: int | None = None,
    ) -> AsyncTransaction:
        """Return a handle of one that an earlier process has started, as `Sexton.resume_transaction` does."""
        resume, save = self.sexton.resume_transaction, _save(persist)
        return AsyncTransaction(
            await in_thread(lambda: resume(state, persist=save, tenant=tenant, transaction=transaction))
        )

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
        listed = as_list(keys)
        receipt = await in_thread(
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
        receipt = await in_thread(
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
        return await in_thread(lambda: self.sexton.flush(timeout))

    async def close(self, timeout: float | None = None) -> tuple[str, ...]:
        """Deliver what can be delivered in `timeout` seconds, as `Sexton.close` does."""
        return await in_thread(lambda: self.sexton.close(timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(lambda: self.sexton.__exit__(kind, error, trace))

    def __repr__(self) -> str:
        return f"Async{self.sexton!r}"


def _save(persist: AsyncSave | None) -> Save | None:
    check_save(persist)
    return None if persist is None else OnLoop(persist)
