"""How hard one task works a bucket: requests in flight, items in each, and when the next may go."""

from __future__ import annotations

from dataclasses import dataclass

from sexton.storage import MAX_KEYS

__all__ = ["Pace"]

_FIRST_IN_FLIGHT = 2  # a bucket that hangs holds so many connections, until its first clean reply
_SHORTEST_WAIT_S = 0.05
_LONGEST_WAIT_S = 0.4
_ASKING_AFTER = 2
_ASKING_KEYS = 10


@dataclass(slots=True)
class Pace:
    """How hard a bucket is worked by this task.

    Times are seconds of the executor's clock. The limit of requests in flight doubles with each clean reply:
    a store that hangs is met with few connections, so that the others have theirs.

    `most` is how many items a request carries. A store that says no to everything is asked with a few keys:
    they cost little of the budget, which has shrunk, so that it is asked often within the failure threshold
    of its bucket. From there the number doubles with each clean reply, too.
    """

    limit: int = _FIRST_IN_FLIGHT
    not_before: float = 0.0
    streak: int = 0
    most: int = MAX_KEYS

    def good(self, most: int) -> None:
        """Note a reply in which some key was done."""
        self.limit = min(max(self.limit, 1) * 2, most)
        self.most = min(self.most * 2, MAX_KEYS)
        self.streak = 0

    def bad(self, now: float, retry_after_s: float | None, jitter: float) -> None:
        """Note a reply in which no key was done; `jitter` is between 0 and 1."""
        self.limit = 1
        wait_s = min(_SHORTEST_WAIT_S * 2.0**self.streak, _LONGEST_WAIT_S) * (0.5 + jitter / 2)
        self.not_before = max(self.not_before, now + max(wait_s, retry_after_s or 0.0))
        self.streak += 1
        if self.streak >= _ASKING_AFTER:
            self.most = _ASKING_KEYS
        elif self.most < MAX_KEYS:
            self.most = max(self.most // 2, _ASKING_KEYS)
