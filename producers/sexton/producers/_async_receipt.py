"""A receipt to await."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from typing import Any

from sexton.producers._receipt import Receipt
from sexton.producers._transport import Delivered

__all__ = ["AsyncReceipt"]


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
