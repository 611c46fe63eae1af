"""Queues of keys that are taken by the thousand, and whose keys they are."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sexton.streaming_jobs.reaper.execute.execution import Execution

__all__ = ["Keys", "Users"]

_COMPACT_AT = 100_000


@dataclass(slots=True)
class Keys:
    """A queue of keys that are taken by the thousand; taking costs what is taken, however many wait."""

    items: list[str] = field(default_factory=list)
    start: int = 0

    def __len__(self) -> int:
        return len(self.items) - self.start

    def take(self, most: int) -> list[str]:
        """Take up to so many from the front."""
        taken = self.items[self.start : self.start + most]
        self.start += len(taken)
        if self.start >= _COMPACT_AT:
            del self.items[: self.start]
            self.start = 0
        return taken


@dataclass(slots=True)
class Users:
    """Whose keys stand in a queue, in its order: each with the count of all keys up to its last one."""

    queued: int = 0
    taken: int = 0
    ends: deque[tuple[int, Execution]] = field(default_factory=deque)

    def add(self, execution: Execution, keys: int) -> None:
        """Note that an execution's next keys were queued."""
        if keys:
            self.queued += keys
            self.ends.append((self.queued, execution))

    def take(self, keys: int) -> list[Execution]:
        """Return whose keys the next ones are; the last one may have keys left for the next request."""
        self.taken += keys
        found: list[Execution] = []
        while self.ends:
            end, execution = self.ends[0]
            found.append(execution)
            if end <= self.taken:
                self.ends.popleft()
            if end >= self.taken:
                break
        return found
