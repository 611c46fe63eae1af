"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(what: Callable[[], object], seconds: float = 60, every_s: float = 0.05) -> None:
    """Return once something holds; fail if it does not in time."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(every_s)
