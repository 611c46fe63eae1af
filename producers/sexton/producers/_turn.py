"""Calls of one handle, one after another: an index PUT in flight is of unknown outcome to everybody else."""

from __future__ import annotations

import concurrent.futures
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from sexton.producers._errors import HandleUnusable, IndexFateUnknown, IndexNotWritten
from sexton.producers._fork import OfOneProcess, notice_fork
from sexton.producers._limits import Deadline
from sexton.schemas.errors import EnvironmentFault, UsageError

__all__ = ["OneAtATime"]


class OneAtATime(OfOneProcess, ABC):
    """A handle whose calls take turns, and that knows when nobody knows whether an index was written."""

    _after_unknown: ClassVar[str]
    """What a service does after an index PUT of unknown fate."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._calling: int | None = None  # the thread whose turn it is
        self._putting: int | None = None  # the thread whose index PUT is in flight

    @abstractmethod
    def end(self, why: HandleUnusable) -> None:
        """Take note of what ends the handle, an index PUT of unknown fate above all."""

    def renew(self) -> None:
        """In a forked child: an index PUT that runs in the parent is of unknown outcome here."""
        self.relock()
        self._calling = None
        if self._putting is not None:
            self._putting = None
            self.end(self._unknown("the process was forked during an index PUT"))

    def relock(self) -> None:
        """Put a fresh lock in place."""
        self._turn = threading.Lock()

    @contextmanager
    def _alone(self, deadline: Deadline, thread: int) -> Iterator[None]:
        here = threading.get_ident()
        if self._putting == here:
            raise UsageError("put called back into the handle whose index it writes")
        notice_fork()
        if self._calling == here:
            raise UsageError("a signal handler or finaliser called the handle in the middle of its call")
        turn = self._turn  # a child that is forked meanwhile has another one
        if not turn.acquire(timeout=deadline.left()):
            raise EnvironmentFault(f"another call of this handle did not end in {deadline.timeout:g} s")
        self._calling = thread
        try:
            yield
        finally:
            self._calling = None
            turn.release()

    @contextmanager
    def _writing(self, thread: int) -> Iterator[None]:
        """Have the block write an index; IndexFateUnknown for all that it raises but IndexNotWritten."""
        self._putting = thread
        try:
            yield
        except IndexNotWritten:
            raise
        except BaseException as error:
            what = f"{type(error).__name__}: {error}"
            outcome = self._unknown(f"nobody knows whether the index was written: {what}")
            self.end(outcome)
            if isinstance(error, Exception):
                raise outcome from error
            raise  # Ctrl-C, a cancelled task: not ours to turn into another error
        finally:
            notice_fork()  # a child of the PUT goes on from here too, and must not emit
            self._putting = None

    def _acknowledged(self, result: object) -> None:
        """Raise IndexFateUnknown where a put has only started: it must return after the acknowledgement."""
        if inspect.isawaitable(result) or isinstance(result, concurrent.futures.Future):
            if inspect.iscoroutine(result):
                result.close()
            only_started = self._unknown("put returned before the index was acknowledged")
            self.end(only_started)
            raise only_started

    def _unknown(self, what: str) -> IndexFateUnknown:
        return IndexFateUnknown(what, hint=self._after_unknown)
