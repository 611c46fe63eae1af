"""How a typed call gets to an issuer: the HTTP client and the fake each have their way."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TypeVar

from sexton.issuer.operations.base import Operation
from sexton.issuer.views import View

__all__ = ["Calling"]

_A = TypeVar("_A")


class Calling(ABC):
    """One who has calls carried out; `deadline` of a call is the time that it may take, seconds."""

    _timeout_s = 10.0

    @abstractmethod
    def _call(self, asked: Operation[_A], end: float) -> _A:
        """Have a call carried out until `end`, seconds of the monotonic clock, and return its answer."""

    @abstractmethod
    def _look(self, view: View[_A], name: str, end: float) -> _A | None:
        """Return a view of something, None when the log does not know it."""

    def _end(self, deadline: float | None) -> float:
        return time.monotonic() + (self._timeout_s if deadline is None else deadline)
