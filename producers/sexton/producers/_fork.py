"""What a forked child must do at once: threads and sockets of its parent are not its own."""

from __future__ import annotations

import gc
import os
import weakref
from typing import Protocol

__all__ = ["renew_after_fork"]


class _Renewable(Protocol):
    def renew(self) -> None:
        """Put fresh locks in place and let go of what belongs to the parent."""


_renewables: weakref.WeakSet[_Renewable] = weakref.WeakSet()


def renew_after_fork(it: _Renewable) -> None:
    """Have `it.renew()` called in every child that is forked while `it` lives."""
    _renewables.add(it)


def _renew_all() -> None:
    if not _renewables:
        return
    # What is garbage already when the parent forks, a Kafka client in a cycle above all, would be taken down
    # by a collection in the child, without the threads that its own clean-up waits for: a crash.
    gc.freeze()
    for it in list(_renewables):
        it.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
