"""The circuit breaker of one bucket within a task: once it is open, nothing more is sent there."""

from __future__ import annotations

from dataclasses import dataclass

from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome

__all__ = ["CircuitBreaker"]


@dataclass(slots=True)
class CircuitBreaker:
    """`opened` is why it is open, None while it is closed; `failing_since` is the first of a row of failures.

    Times are seconds of the executor's clock. It stays open for the rest of the task: what is unsent waits in
    the delay queue, which tries the bucket again.
    """

    opened: ItemOutcome | None = None
    failing_since: float | None = None

    def works(self) -> None:
        """Note that the bucket got something done."""
        self.failing_since = None

    def fails(self, now: float, threshold_s: float, retry_after_s: float | None) -> bool:
        """Note a reply in which nothing was done; return whether that has gone on for too long.

        A store that asks for a longer pause than `threshold_s` is given it at once.
        """
        if self.failing_since is None:
            self.failing_since = now
        return now - self.failing_since > threshold_s or (retry_after_s or 0.0) > threshold_s
