"""Deletes beside the batches (of prefixes, of all versions of a key) keep to the bucket's budget, too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from sexton.storage import Abilities, BatchResult, Calls, Delete, Deleter
from sexton.streaming_jobs.reaper.execute.outcomes import is_throttled

__all__ = ["OnePacer", "PacedDeleter", "Pacer"]

_LONGEST_SLEEP_S = 1.0


class Pacer(Protocol):
    """What this stage needs of the buckets' shared budget."""

    def take(self, bucket: str, keys: int) -> float:
        """Return 0.0 when so many deletes may be sent now, else seconds after which to ask again."""

    def in_flight_limit(self, bucket: str) -> int:
        """Return how many requests of the bucket this process may have out."""

    def report(
        self, bucket: str, keys: int, *, throttled: bool, retry_after_s: float | None, seconds: float
    ) -> None:
        """Take in one reply; `keys` are the throttled ones when throttled, else all."""


@dataclass(slots=True)
class OnePacer:
    """A budget for the threads of one task: one of them asks at a time."""

    pacer: Pacer
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, bucket: str, keys: int) -> float:
        """As Pacer's."""
        with self._lock:
            return self.pacer.take(bucket, keys)

    def in_flight_limit(self, bucket: str) -> int:
        """As Pacer's."""
        return self.pacer.in_flight_limit(bucket)

    def took(self, bucket: str, result: BatchResult) -> None:
        """Report what a request's answer says about the bucket's pace."""
        throttled = sum(map(is_throttled, result.states.values())) if result.states else 0
        with self._lock:
            self.pacer.report(
                bucket,
                throttled or result.count,
                throttled=throttled > 0,
                retry_after_s=result.retry_after_s,
                seconds=result.seconds,
            )


@dataclass(slots=True)
class PacedDeleter:
    """A deleter for jobs: waits for the bucket's budget before each request; probes where it may."""

    deleter: Deleter
    pacer: OnePacer
    under: str = ""
    sleep: Callable[[float], None] = time.sleep

    @property
    def calls(self) -> Calls:
        """Single calls."""
        return self.deleter.calls

    def delete_all(
        self, bucket: str, items: Sequence[str | Delete], *, bypass_governance: bool = False
    ) -> Future[BatchResult]:
        """Send once the budget allows it."""
        self.wait(bucket, len(items))
        future = self.deleter.delete_all(bucket, items, bypass_governance=bypass_governance)
        future.add_done_callback(lambda done: self.pacer.took(bucket, done.result()))
        return future

    def wait(self, bucket: str, count: int) -> None:
        """Return once the budget allows so many writes."""
        while (wait_s := self.pacer.take(bucket, count)) > 0:
            self.sleep(min(wait_s, _LONGEST_SLEEP_S))

    def probe(self, bucket: str, under: str = "") -> Abilities:
        """Return what the store can do, tried where probes may be."""
        return self.deleter.probe(bucket, self.under)

    def probe_writes(self, bucket: str, under: str = "") -> Abilities:
        """Return whether conditional writes are real, raced where probes may be."""
        return self.deleter.probe_writes(bucket, self.under)

    def look_up(self, bucket: str) -> Abilities:
        """Return what the bucket says of itself."""
        return self.deleter.look_up(bucket)

    def date_of(self, bucket: str) -> datetime | None:
        """Return the time by the bucket's clock."""
        return self.deleter.date_of(bucket)

    def abilities(self, bucket: str) -> Abilities:
        """Return what is known, asking nobody."""
        return self.deleter.abilities(bucket)
