"""One time budget for all steps of a call, and the sharing of a step between calls that wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Generic, TypeVar

from sexton.schemas.errors import EnvironmentFault, KafkaUnavailable

__all__ = ["Coalescer", "Deadline"]

_T = TypeVar("_T")
_LEAST_S = 0.01  # less is no time for a step: client libraries may take it for none


@dataclass(frozen=True, slots=True)
class Deadline:
    """An instant of the monotonic clock, seconds, that every step of a call looks at.

    It is over before that once `stopping` is set.
    """

    at: float
    stopping: threading.Event | None = None

    @classmethod
    def after(cls, seconds: float, stopping: threading.Event | None = None) -> Deadline:
        """Return the deadline that many seconds from now."""
        return cls(time.monotonic() + seconds, stopping)

    def within(self, seconds: float) -> Deadline:
        """Return the deadline that many seconds from now, this one if it is sooner."""
        return Deadline(min(self.at, time.monotonic() + seconds), self.stopping)

    def left(self) -> float:
        """Return the seconds left, never below 0."""
        if self.stopping is not None and self.stopping.is_set():
            return 0.0
        return max(0.0, self.at - time.monotonic())

    def require(self, what: str) -> float:
        """Return the seconds left; raises KafkaUnavailable, naming what was waited for, when too few are."""
        left = self.left()
        if left < _LEAST_S:
            raise KafkaUnavailable(f"no time left: {what}")
        return left


class _LeaderLate(EnvironmentFault):
    """The call that was to do the work ran out of time before it began."""


class Coalescer(Generic[_T]):
    """Lets calls that wait at the same moment share one run of `work`.

    A call joins a run only while that run has not begun. A reading that has begun may have happened before
    the caller's own past, so its result proves nothing to that caller.
    """

    def __init__(self, work: Callable[[Deadline], _T]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._running = threading.Lock()
        self._waiting: Future[_T] | None = None

    def get(self, deadline: Deadline) -> _T:
        """Return the result of a run that begins after this call; raises what the run raised."""
        while True:
            with self._lock:
                leads = self._waiting is None
                if self._waiting is None:
                    self._waiting = Future()
                run = self._waiting
            if leads:
                self._lead(run, deadline)
            try:
                return run.result(timeout=deadline.left())
            except FutureTimeout as error:
                raise KafkaUnavailable("no time left: waiting for a shared reading") from error
            except _LeaderLate:
                deadline.require("waiting for a shared reading")

    def _lead(self, run: Future[_T], deadline: Deadline) -> None:
        begun = self._running.acquire(timeout=deadline.left())
        with self._lock:
            self._waiting = None  # from here on nobody may join
        if not begun:
            run.set_exception(_LeaderLate("the leading call ran out of time"))
            return
        try:
            run.set_result(self._work(deadline))
        except BaseException as error:
            run.set_exception(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._running.release()
