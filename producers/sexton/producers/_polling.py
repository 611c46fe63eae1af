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
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

__all__ = ["SLICE", "Polling", "are_eventlets", "are_greenlets", "polling", "real_start"]

SLICE = 0.1  # longest single wait inside the C library, so that Ctrl-C is heard
_NAP = 0.005  # between two looks of a greenlet: how late it may hear of a report
# What gevent (BlockingSwitchOutError) and eventlet raise where their loop itself is to wait: in a handler.
_IN_THE_LOOP = (AssertionError, RuntimeError)
_TOUCH = 0.001  # what a greenlet may wait inside the C library, and its nap when there is more to do


class Polling:
    """How to look after the Kafka client; times in seconds.

    What it calls back with is told once its own call has returned: a service's callback may call the client
    again, or switch to another greenlet, which it does not survive within that call.
    """

    greenlets: bool

    def __init__(self, on_error: Callable[[KafkaError], object]) -> None:
        self._on_error = on_error
        self._said: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._telling: list[int] = []  # who runs callbacks now
        self._within: int | None = None  # who is within a call of the client

    def poll(self, producer: Producer, seconds: float) -> None:
        """Take in the reports that are there; wait for one at most this long."""
        raise NotImplementedError

    def flush(self, producer: Producer, seconds: float) -> None:
        """The same, and let nothing linger."""
        raise NotImplementedError

    def take_down(self, client: list[Producer], reader: threading.Thread | None, seconds: float) -> None:
        """Give up the client, whose reader has been told to end; off the caller's time."""
        raise NotImplementedError

    def tell(self, what: Callable[..., object], *told: Any) -> None:
        """Keep what the client has called back with, for `hand_out`."""
        self._said.append((what, told))

    def hand_out(self) -> None:
        """Tell what the client has called back with."""
        here = threading.get_ident()
        self._telling.append(here)  # first: what is taken out is told by somebody
        try:
            while self._said:
                try:
                    what, told = self._said.popleft()
                except IndexError:
                    return  # another one was faster
                what(*told)
        finally:
            self._telling.remove(here)

    def all_told(self) -> bool:
        """Return whether all that was called back with has been told, but by a callback that asks this."""
        return not self._said and all(who == threading.get_ident() for who in list(self._telling))

    def is_within(self) -> bool:
        """Return whether this is a signal handler or a finaliser that runs within a call of the client."""
        return self._within == threading.get_ident()

    def _call(self, call: Callable[[float], object], seconds: float) -> bool:
        """Call the client and return True; never within one of its calls, which would end the process."""
        if self.is_within():
            return False
        self._within, fatal = threading.get_ident(), None
        try:
            call(seconds)
        except KafkaException as error:  # a fatal error is raised here, once, and told by no callback
            fatal = error.args[0]
        finally:
            self._within = None
        if fatal is not None:
            self._on_error(fatal)
        return True


class Threads(Polling):
    """A thread may block inside the C library."""

    greenlets = False

    def poll(self, producer: Producer, seconds: float) -> None:
        """Block in the C library."""
        if not self._call(producer.poll, seconds):
            time.sleep(min(_NAP, seconds))

    def flush(self, producer: Producer, seconds: float) -> None:
        """Block in the C library."""
        if not self._call(producer.flush, seconds):
            time.sleep(min(_NAP, seconds))

    def take_down(self, client: list[Producer], reader: threading.Thread | None, seconds: float) -> None:
        """Leave the last reference to the reader: its end is the client's."""
        if reader is None:
            # Waited for, as with a reader: a thread that lives on into a fork in C may hold the interpreter.
            ender = threading.Thread(target=client.clear, name="sexton-end", daemon=True)
            ender.start()
            ender.join(seconds)
            return
        client.clear()
        if reader is not threading.current_thread():  # closed by a callback
            reader.join(seconds)


class Greenlets(Polling):
    """Looks, never waits in C."""

    greenlets = True

    def poll(self, producer: Producer, seconds: float) -> None:
        """Look, and let other greenlets run."""
        self._call(producer.poll, 0)
        # Never 0: the timers of others would starve.
        self._let_others_run(producer, _TOUCH if self._said else min(_NAP, seconds))

    def flush(self, producer: Producer, seconds: float) -> None:
        """Look, and let other greenlets run."""
        self._call(producer.flush, min(_TOUCH, seconds))
        self._let_others_run(producer, min(_NAP, seconds))

    def take_down(self, client: list[Producer], reader: threading.Thread | None, seconds: float) -> None:
        """Leave the last reference to a real thread: the client's end waits for threads of its own."""
        if reader is not None and reader is not threading.current_thread():
            with suppress(*_IN_THE_LOOP):
                reader.join(seconds)
        real_start(client.clear, ())

    def _let_others_run(self, producer: Producer, seconds: float) -> None:
        try:
            time.sleep(seconds)
        except _IN_THE_LOOP:
            self._call(producer.poll, seconds)  # nobody else runs before this has returned anyway


def are_greenlets() -> bool:
    """Return whether new threads are greenlets now; nothing of gevent or eventlet is imported for it."""
    return _thread.start_new_thread.__module__ != "_thread"


def are_eventlets() -> bool:
    """Return whether they are eventlet's: these sleep on when another thread has ended what they wait for."""
    return _thread.start_new_thread.__module__.startswith("eventlet")


def polling(on_error: Callable[[KafkaError], object]) -> Polling:
    """Return the way that fits this process; `on_error` is told what ends the client."""
    return Greenlets(on_error) if are_greenlets() else Threads(on_error)


def real_start(work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    """Start a thread that is one, whatever was patched."""
    # A second copy of the built-in module: whoever patched the first one has not seen it.
    spec = importlib.util.find_spec("_thread")
    if spec is None or spec.loader is None:
        raise ImportError("no such module: _thread")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.start_new_thread(work, arguments)
