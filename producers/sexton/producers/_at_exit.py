"""The last word of a process that ends without `close`: which intents nobody will hear of any more."""

from __future__ import annotations

import atexit
import logging
import weakref
from collections.abc import Sequence
from typing import Protocol

from sexton.schemas.text import counted

__all__ = ["tell_at_exit"]

_log = logging.getLogger("sexton.producers")
_SHOWN = 3


class _Emitting(Protocol):
    def unacknowledged(self) -> tuple[int, Sequence[str]]:
        """Return how many intents were not acknowledged, and ids of them; none after its end."""


_open: weakref.WeakSet[_Emitting] = weakref.WeakSet()


def tell_at_exit(it: _Emitting) -> None:
    """Have it told, if the interpreter ends while `it` lives, what was not acknowledged."""
    _open.add(it)


@atexit.register
def _tell() -> None:
    for it in list(_open):
        many, ids = it.unacknowledged()
        if many:
            shown = ", ".join(ids[:_SHOWN]) + (", ..." if many > _SHOWN else "")
            _log.warning(
                "the process ends without close, not acknowledged: %s: %s", counted(many, "intent"), shown
            )
