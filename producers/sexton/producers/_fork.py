"""What a forked child must do at once: threads and sockets of its parent are not its own."""

from __future__ import annotations

import _socket
import gc
import os
import threading
import time
import weakref
from contextlib import suppress
from typing import Any, NoReturn, Protocol

from sexton.producers._polling import are_greenlets, real_start
from sexton.schemas.errors import UsageError

__all__ = ["OfOneProcess", "can_look_up_names", "notice_fork", "renew_after_fork", "settle_before_fork"]


class OfOneProcess:
    """What holds threads and sockets: forked it is renewed, but it is never sent to another process."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            f"a {type(self).__name__} belongs to one process, it is neither copied nor sent",
            hint="connect in each process: a child that was forked may use its parent's",
        )


class _Renewable(Protocol):
    def relock(self) -> None:
        """Put fresh locks in place: what a greenlet waits for must be one of its own."""

    def renew(self) -> None:
        """Put fresh locks in place and let go of what belongs to the parent."""


class _Settles(Protocol):
    def before_fork(self) -> None:
        """Return when this is no bad moment to fork, soon in any case."""


_LOOK_UP = 1.0  # seconds that a look at this machine's own addresses may take: it has microseconds of work

_renewables: weakref.WeakSet[_Renewable] = weakref.WeakSet()
_settling: weakref.WeakSet[_Settles] = weakref.WeakSet()
_here = os.getpid()  # of the process that the renewables belong to
_greenlets = are_greenlets()  # as the locks of the renewables know it
_turns: dict[int, Any] = {}  # by process: the parent's may be held for ever in a child


def renew_after_fork(it: _Renewable) -> None:
    """Have `it.renew()` called in every child that is forked while `it` lives."""
    _renewables.add(it)


def settle_before_fork(it: _Settles) -> None:
    """Have `it.before_fork()` called before each fork of Python's while `it` lives."""
    _settling.add(it)


def can_look_up_names() -> bool:
    """Return whether this process can use `getaddrinfo` as the Kafka client does, with AI_ADDRCONFIG.

    glibc holds a lock of its own there, which nobody frees in a child that was forked meanwhile: each look-up
    waits for ever then. (POSIX, `fork`: the child of a process with threads may count on very little.)
    """
    back: list[bool] = []

    def look() -> None:  # bytes: a name of text is encoded by what a thread under gevent may not import
        with suppress(OSError):  # an answer too
            _socket.getaddrinfo(b"127.0.0.1", 0, flags=_socket.AI_ADDRCONFIG | _socket.AI_NUMERICHOST)
        back.append(True)

    real_start(look, ())
    until = time.monotonic() + _LOOK_UP
    while not back and time.monotonic() < until:
        time.sleep(0.001)
    return bool(back)


def notice_fork() -> None:
    """Renew what has not been renewed: a server may fork in C, and Python's hooks are not told.

    Each call of the SDK begins with it. Otherwise the child would wait for threads that only its parent has,
    and give its intents the ids of the parent's.
    """
    here = os.getpid()
    if here != _here:
        with _turns.setdefault(here, threading.RLock()):
            if here != _here:
                _renew_all()
    if are_greenlets() != _greenlets:
        _relock_all()


def _relock_all() -> None:
    """Take up what was patched after connect: in a worker, by a server that has loaded the service before."""
    global _greenlets
    _greenlets = are_greenlets()
    for it in list(_renewables):
        it.relock()


def _renew_all() -> None:
    global _here, _greenlets
    _greenlets = are_greenlets()
    if _renewables:
        # What is garbage already when the parent forks, a Kafka client in a cycle above all, would be taken
        # down by a collection in the child, without the threads that its own clean-up waits for: a crash.
        gc.freeze()
        for it in list(_renewables):
            it.renew()
    _here = os.getpid()  # last: another thread of the child waits until all is renewed
    _turns.clear()  # of the ancestors: a process that lives on in its children leaves none behind


def _settle_all() -> None:
    for it in list(_settling):
        it.before_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_settle_all, after_in_child=_renew_all)
