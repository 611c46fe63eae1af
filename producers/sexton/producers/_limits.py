"""Bounds of the SDK: every queue and every call has one."""

from __future__ import annotations

import time
from dataclasses import dataclass

__all__ = ["Deadline", "Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the SDK holds and how long it waits; times in seconds, sizes in bytes.

    `call_timeout` bounds a call that finds the queue full, `delivery_timeout` the time from a call until
    Kafka has acknowledged or the intent has failed, `close_timeout` leaving the `with` block.
    """

    queue_messages: int = 100_000
    queue_bytes: int = 256 * 1024 * 1024
    message_bytes: int = 1_000_000
    keys_per_intent: int = 10_000
    linger: float = 0.005
    call_timeout: float = 30.0
    delivery_timeout: float = 120.0
    close_timeout: float = 30.0


class Deadline:
    """A point on the monotonic clock that several waits share."""

    __slots__ = ("_at", "timeout")

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._at = time.monotonic() + timeout

    def left(self) -> float:
        """Return the seconds that are left, never negative."""
        return max(0.0, self._at - time.monotonic())

    @property
    def passed(self) -> bool:
        """Return whether no time is left."""
        return self.left() == 0.0
