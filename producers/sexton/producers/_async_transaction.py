"""A transaction for asyncio: the same calls, to await; the service's own functions run on the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from sexton.producers._async_calls import OnLoop, Turns, as_list, in_thread
from sexton.producers._async_receipt import AsyncReceipt
from sexton.producers._errors import IndexNotWritten
from sexton.producers._intents import KeyTerms
from sexton.producers._transaction import Committed, Transaction

__all__ = ["AsyncSave", "AsyncTransaction"]

AsyncSave = Callable[[dict[str, Any], int], Awaitable[object]]
"""A service's compare-and-set of a transaction's state, to await: what `Save` says holds for it."""


class AsyncTransaction(Turns):
    """A `Transaction` for asyncio: the same calls with the same errors; see there for what they promise.

    A cancelled call is not undone, and ends in its own time. But a `commit` that is cancelled before its
    `put_index` has returned emits nothing and asks for nothing.
    """

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        super().__init__(transaction.limits)

    @property
    def tenant(self) -> str:
        """The tenant's name."""
        return self.transaction.tenant

    @property
    def id(self) -> int:
        """The number of this transaction, which nobody else has."""
        return self.transaction.id

    @property
    def last_committed(self) -> int | None:
        """The number of the transaction that this one builds on, None for a tenant's first."""
        return self.transaction.last_committed

    def key(self, name: str) -> str:
        """Return the key under which this transaction writes an object, as `Transaction.key` does."""
        return self.transaction.key(name)

    def prefix(self, name: str = "") -> str:
        """Return the prefix of this transaction's objects, as `Transaction.prefix` does."""
        return self.transaction.prefix(name)

    def visible(self, name: str) -> str:
        """Return the last committed transaction's key, as `Transaction.visible` does."""
        return self.transaction.visible(name)

    async def delete(
        self,
        bucket: str,
        keys: Iterable[str] | None = None,
        *,
        any_key: bool | None = None,
        **terms: Unpack[KeyTerms],
    ) -> None:
        """Put keys on the deadlist, as `Transaction.delete` does."""
        named = as_list(keys)
        async with self._alone():
            await in_thread(lambda: self.transaction.delete(bucket, named, any_key=any_key, **terms))

    async def discard(
        self, bucket: str, keys: Iterable[str], *, timeout: float | None = None, any_key: bool | None = None
    ) -> AsyncReceipt:
        """Ask for own objects of this transaction to be deleted now, as `Transaction.discard` does."""
        named = as_list(keys)
        async with self._alone(timeout) as left:
            receipt = await in_thread(
                lambda: self.transaction.discard(bucket, named, timeout=left, any_key=any_key)
            )
        return AsyncReceipt(receipt)

    async def commit(
        self,
        put_index: Callable[[], Awaitable[object]] | None = None,
        *,
        read_index: Callable[[], Awaitable[bool]] | None = None,
        horizons: Mapping[str, int] | None = None,
        timeout: float | None = None,
    ) -> Committed:
        """Write the index, then the deadlist, then ask for it to be visible, as `Transaction.commit` does.

        `put_index` and `read_index` are awaited on the loop. Cancelled while one of them runs, it is
        cancelled, too, and nobody knows whether the index was written.
        """
        async with self._alone(timeout) as left:
            put = None if put_index is None else OnLoop(put_index, self._puts, IndexNotWritten)
            read = None if read_index is None else OnLoop(read_index, self._puts)
            try:
                return await in_thread(
                    lambda: self.transaction.commit(put, read_index=read, horizons=horizons, timeout=left)
                )
            except asyncio.CancelledError:
                for call in (put, read):
                    if call is not None:
                        call.stop()
                raise

    async def acknowledge(self) -> int:
        """Say that every upload in its name has ceased, as `Transaction.acknowledge` does."""
        async with self._alone():
            return await in_thread(self.transaction.acknowledge)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.transaction.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"Async{self.transaction!r}"

    def _puts(self, task: asyncio.Task[Any] | None) -> None:
        self._putting = task
