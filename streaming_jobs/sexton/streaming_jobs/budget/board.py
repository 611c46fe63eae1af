"""Where a bucket's budget is kept: the port, and a board in the memory of one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sexton.schemas.errors import EnvironmentFault
from sexton.streaming_jobs.budget import aimd

__all__ = ["Board", "BoardUnavailable", "MemoryBoard"]


class BoardUnavailable(EnvironmentFault):
    """The shared budgets cannot be reached."""


class Board(Protocol):
    """The budgets of all buckets; every method raises BoardUnavailable when it cannot be asked now."""

    def peek(self, bucket: str) -> float | None:
        """Return the rate in force, None for a bucket that was not throttled so far."""

    def lease(self, bucket: str, keys: int, known: float) -> aimd.Lease | aimd.Wait | None:
        """Reserve time for `keys`; None for a bucket that was not throttled so far.

        A budget that is not there although the caller knows its rate was lost: it starts from `known`.
        """

    def throttled(self, bucket: str, reply: aimd.Throttle) -> float:
        """Take a throttled reply in and return the rate in force after it."""


class MemoryBoard:
    """A board of this process: what tests and simulations share, and what stands for the others alone."""

    def __init__(self, clock: Callable[[], float], rule: aimd.Rule = aimd.RULE) -> None:
        self._clock = clock
        self._rule = rule
        self.states: dict[str, aimd.State] = {}

    def peek(self, bucket: str) -> float | None:
        """Return the rate in force."""
        state = self.states.get(bucket)
        return None if state is None else aimd.rate(state, self._clock(), self._rule)

    def lease(self, bucket: str, keys: int, known: float) -> aimd.Lease | aimd.Wait | None:
        """Reserve time."""
        state = self.states.get(bucket)
        if state is None:
            if not known:
                return None
            state = aimd.seeded(known, self._clock(), self._rule)
        self.states[bucket], answer = aimd.lease(state, self._clock(), keys, self._rule)
        return answer

    def throttled(self, bucket: str, reply: aimd.Throttle) -> float:
        """Take a throttled reply in."""
        now = self._clock()
        state = aimd.throttled(self.states.get(bucket), now, reply, self._rule)
        self.states[bucket] = state
        return aimd.rate(state, now, self._rule)
