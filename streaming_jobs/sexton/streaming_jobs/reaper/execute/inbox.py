"""What comes back to the thread of a task: replies to requests, results of jobs, one after the other.

Requests and jobs run beside that thread; it alone takes in what they bring, so that no bucket needs a lock.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TypeVar

__all__ = ["JOBS", "Inbox"]

T = TypeVar("T")

JOBS = 4
"""Verifications, probes, erasures and prefixes under way at a time in one task."""


@dataclass(slots=True)
class Inbox:
    """Counts what is under way (`out` requests, `jobs`) and keeps what has come back until it is taken in."""

    out: int = 0
    jobs: int = 0
    _back: SimpleQueue[Callable[[], None]] = field(default_factory=SimpleQueue)
    _pool: ThreadPoolExecutor | None = None

    @property
    def awaits(self) -> bool:
        """Return whether something is under way."""
        return bool(self.out or self.jobs)

    def expect(self, request: Future[T], then: Callable[[T], None]) -> None:
        """Let `then` take in what a request brings."""
        self.out += 1

        def landed(done: Future[T]) -> None:
            self.out -= 1
            then(done.result())

        self._when_done(request, landed)

    def run(self, job: Callable[[], T], then: Callable[[Future[T]], None]) -> None:
        """Run a job beside the requests; `then` takes in what it brings, or raised."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(JOBS, thread_name_prefix="sexton-execute")
        self.jobs += 1

        def landed(done: Future[T]) -> None:
            self.jobs -= 1
            then(done)

        self._when_done(self._pool.submit(job), landed)

    def _when_done(self, future: Future[T], landed: Callable[[Future[T]], None]) -> None:
        # A callback that held the future would be a cycle, and the collector rests while a task runs.
        future.add_done_callback(lambda done: self._back.put(lambda: landed(done)))

    def take_in(self) -> None:
        """Take in all that has come back."""
        while not self._back.empty():
            self._back.get_nowait()()

    def wait(self, timeout_s: float | None) -> None:
        """Take in the next thing that comes back; nothing if it takes longer."""
        with suppress(Empty):
            self._back.get(timeout=timeout_s)()

    def close(self) -> None:
        """Start no more jobs."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
