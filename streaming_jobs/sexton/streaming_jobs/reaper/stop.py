"""Ending the reaper: between micro-batches when asked, in the middle of one only at the grace limit."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

__all__ = ["StopFlag", "StopRequested"]

EXIT_ABANDONED = 75


class StopRequested(Exception):  # control flow of the job, not an error for callers
    """The running query ends here: a stop was asked for, and no micro-batch is under way."""


class StopFlag:
    """Set by SIGTERM and SIGINT, here or to the JVM; a second one, or the grace limit, abandons the running
    micro-batch.

    An abandoned micro-batch has committed nothing: it is processed again at the next start, with the same
    verdicts. What it has deleted stays deleted; its receipts are written then.
    """

    def __init__(self, grace_s: float, abandon: Callable[[], None]) -> None:
        self._grace_s = grace_s
        self._abandon = abandon
        self._event = threading.Event()
        self._told: set[str] = set()

    def install(self) -> None:
        """Take SIGTERM and SIGINT; to be called in the main thread."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    @property
    def is_set(self) -> bool:
        """Return whether a stop was asked for."""
        return self._event.is_set()

    def set(self) -> None:
        """Ask for the stop."""
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait, but not past a stop; returns whether one was asked for."""
        return self._event.wait(seconds)

    def check(self) -> None:
        """Raise StopRequested if a stop was asked for; called where no micro-batch is under way."""
        if self._event.is_set():
            raise StopRequested

    def told_by_jvm(self) -> None:
        """Take a signal that the JVM has got; called in any thread."""
        self._take("the JVM")

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._take("this process")

    def _take(self, to: str) -> None:
        # What is sent to all processes at once comes here from each of them, and is one request.
        if to in self._told:
            self._give_up("as asked twice")
            return
        self._told.add(to)
        if self._event.is_set():
            return
        self._event.set()
        timer = threading.Timer(self._grace_s, self._give_up, args=(f"after {self._grace_s:g} s",))
        timer.daemon = True
        timer.start()

    def _give_up(self, why: str) -> None:
        message = f"running micro-batch abandoned {why}; nothing of it is committed"
        print(f"reaper: {message}: the next start processes it again", file=sys.stderr)
        sys.stderr.flush()
        self._abandon()
        os._exit(EXIT_ABANDONED)
