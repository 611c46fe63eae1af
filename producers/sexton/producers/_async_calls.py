"""How a blocking call is awaited: in a thread of its own, one call of a handle after another."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Generic, ParamSpec, TypeVar

from sexton.producers._fork import notice_fork, renew_after_fork
from sexton.producers._limits import Deadline, Limits
from sexton.schemas.errors import EnvironmentFault, UsageError

__all__ = ["OnLoop", "Turns", "as_list", "in_thread"]

_T = TypeVar("_T")
_P = ParamSpec("_P")


class Turns:
    """A handle whose calls wait on the loop, and not in a thread, for the calls before them."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """In a forked child: what the parent's tasks have locked stays locked."""
        self._turn = asyncio.Lock()
        self._putting: asyncio.Task[Any] | None = None

    def relock(self) -> None:
        """Nothing: a loop's lock knows no threads."""

    @asynccontextmanager
    async def _alone(self, timeout: float | None = None) -> AsyncIterator[float]:
        """Have the handle to itself; yields what is left of the time, that of any call if None is given."""
        if self._putting is not None and self._putting is asyncio.current_task():
            raise UsageError("put called back into the handle whose index it writes")
        notice_fork()
        turn, deadline = self._turn, Deadline(self._limits.call_timeout if timeout is None else timeout)
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


class OnLoop(Generic[_P, _T]):
    """A service's coroutine function as a blocking call: it runs on the loop while a thread waits for it.

    `begun` is told the task that it runs in, None after it; `unbegun` is raised where it was stopped before.
    """

    def __init__(
        self,
        work: Callable[_P, Awaitable[_T]],
        begun: Callable[[asyncio.Task[Any] | None], object] = lambda task: None,
        unbegun: type[Exception] = concurrent.futures.CancelledError,
    ) -> None:
        self._work, self._begun, self._unbegun = work, begun, unbegun
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._stopped = False
        self._running: concurrent.futures.Future[_T] | None = None

    def __call__(self, *args: _P.args, **named: _P.kwargs) -> _T:
        """Call it and wait; raises what it raises, `unbegun` where it was stopped before."""
        with self._lock:
            if self._stopped:
                raise self._unbegun("it was not called any more: who awaited it was cancelled before")
            self._running = asyncio.run_coroutine_threadsafe(self._run(*args, **named), self._loop)
        return self._running.result()

    def stop(self) -> None:
        """Cancel it if it runs, and never call it again: who awaited it has gone."""
        with self._lock:
            self._stopped = True
        if self._running is not None:
            self._running.cancel()

    async def _run(self, *args: _P.args, **named: _P.kwargs) -> _T:
        self._begun(asyncio.current_task())
        try:
            result = self._work(*args, **named)
            if not isinstance(result, Awaitable):
                raise UsageError(f"it must return an awaitable: {type(result).__name__}")
            return await result
        finally:
            self._begun(None)


def as_list(keys: Iterable[str] | None) -> Any:
    """Return keys as a list: a generator of the service's is run where the service runs, not in a thread."""
    return keys if keys is None or isinstance(keys, str | bytes) else list(keys)


async def in_thread(work: Callable[[], _T], undo: Callable[[_T], object] | None = None) -> _T:
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
