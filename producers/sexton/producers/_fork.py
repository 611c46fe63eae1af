"""What a forked child must do at once: threads and sockets of its parent are not its own."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from typing import Any, NoReturn, Protocol

from sexton.producers._polling import are_greenlets
from sexton.schemas.errors import UsageError

__all__ = ["OfOneProcess", "notice_fork", "renew_after_fork"]


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


_renewables: weakref.WeakSet[_Renewable] = weakref.WeakSet()
_here = os.getpid()  # of the process that the renewables belong to
_greenlets = are_greenlets()  # as the locks of the renewables know it
_turns: dict[int, Any] = {}  # by process: the parent's may be held for ever in a child


def renew_after_fork(it: _Renewable) -> None:
    """Have `it.renew()` called in every child that is forked while `it` lives."""
    _renewables.add(it)


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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
