"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(
    what: Callable[[], object],
    seconds: float = 60,
    every_s: float = 0.05,
    *,
    told: Callable[[], object] = lambda: "",
) -> None:
    """Return once something holds; fail if it does not in time, with what is told then."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"it did not become true {told()}"
        time.sleep(every_s)
