"""How the Kafka client is given its turns: by a thread, or where threads are greenlets without blocking.

Under gevent's or eventlet's `monkey_patch` a `threading.Thread` is a greenlet: while it waits inside the C
library nothing else of the process runs, and the greenlet that was to end the wait never comes to it.
"""

from __future__ import annotations

import _thread
import importlib.util
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from confluent_kafka import Producer

__all__ = ["SLICE", "Polling", "are_greenlets", "polling"]

SLICE = 0.1  # longest single wait inside the C library, so that Ctrl-C is heard
_NAP = 0.005  # between two looks of a greenlet: how late it may hear of a report
_TOUCH = 0.001  # what a greenlet may wait inside the C library, and its nap when there is more to do


class Polling(Protocol):
    """The ways to wait for the Kafka client; times in seconds."""

    greenlets: bool

    def poll(self, producer: Producer, seconds: float) -> int:
        """Hand out the reports that are there; wait for one at most this long."""

    def flush(self, producer: Producer, seconds: float) -> None:
        """The same, and let nothing linger."""

    def tell(self, what: Callable[..., object], *told: Any) -> None:
        """Pass on what the client has called back with."""

    def take_down(self, client: list[Producer], reader: threading.Thread | None, seconds: float) -> None:
        """Give up the client, whose reader has been told to end; off the caller's time."""


class Threads:
    """A thread may block inside the C library."""

    greenlets = False

    def poll(self, producer: Producer, seconds: float) -> int:
        """Block in the C library."""
        return producer.poll(seconds)

    def flush(self, producer: Producer, seconds: float) -> None:
        """Block in the C library."""
        producer.flush(seconds)

    def tell(self, what: Callable[..., object], *told: Any) -> None:
        """Tell at once."""
        what(*told)

    def take_down(self, client: list[Producer], reader: threading.Thread | None, seconds: float) -> None:
        """Leave the last reference to the reader: its end is the client's."""
        if reader is None:
            _real_start(client.clear, ())
            return
        client.clear()
        reader.join(seconds)


class Greenlets:
    """Looks, never waits in C; what the client says is told after the C call has returned.

    A service's own callback may switch to another greenlet. Inside the C call that one could call the client
    again, which it does not survive.
    """

    greenlets = True

    def __init__(self) -> None:
        self._said: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    def poll(self, producer: Producer, seconds: float) -> int:
        """Look, and let other greenlets run."""
        served = producer.poll(0)
        self._hand_out()
        time.sleep(_TOUCH if served else min(_NAP, seconds))  # never 0: the timers of others would starve
        return served

    def flush(self, producer: Producer, seconds: float) -> None:
        """Look, and let other greenlets run."""
        producer.flush(min(_TOUCH, seconds))
        self._hand_out()
        time.sleep(min(_NAP, seconds))

    def tell(self, what: Callable[..., object], *told: Any) -> None:
        """Keep it until the C call has returned."""
        self._said.append((what, told))

    def take_down(self, client: list[Producer], reader: threading.Thread | None, seconds: float) -> None:
        """Leave the last reference to a real thread: the client's end waits for threads of its own."""
        if reader is not None:
            reader.join(seconds)
        _real_start(client.clear, ())

    def _hand_out(self) -> None:
        while self._said:
            what, told = self._said.popleft()
            what(*told)


def are_greenlets() -> bool:
    """Return whether new threads are greenlets now; nothing of gevent or eventlet is imported for it."""
    return _thread.start_new_thread.__module__ != "_thread"


def polling() -> Polling:
    """Return the way that fits this process."""
    return Greenlets() if are_greenlets() else Threads()


def _real_start(work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    # A second copy of the built-in module: whoever patched the first one has not seen it.
    spec = importlib.util.find_spec("_thread")
    if spec is None or spec.loader is None:
        raise ImportError("no such module: _thread")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.start_new_thread(work, arguments)
