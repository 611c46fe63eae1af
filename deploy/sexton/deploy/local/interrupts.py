"""Signals that arrive while processes are being started: noted at once, acted upon at safe points."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["deferred"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def deferred(noted: threading.Event) -> Iterator[None]:
    """Set `noted` instead of raising for SIGINT, SIGTERM and SIGHUP, as often as they come.

    Raised where it arrives, a Ctrl-C can fall between the start of a thread and the note that there is one:
    nobody would wait for that thread, and the process it starts would be left behind. In another thread than
    the main one nothing is ever raised, and nothing is done here.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(number: int, frame: FrameType | None) -> None:
        noted.set()

    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
