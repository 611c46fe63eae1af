"""A process's side of the budgets: leased time spent request by request, without a call for each."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from sexton.streaming_jobs.budget import aimd
from sexton.streaming_jobs.budget.board import Board, BoardUnavailable

__all__ = ["Budget", "NoBudget", "SharedBudget"]

_log = logging.getLogger("sexton.streaming_jobs.budget")
_PEEK_S = 1.0  # a bucket that runs free looks this often whether another task was throttled
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 0.5, 30.0
_LEASE_KEPT_S = 1.0  # what is left of a lease is lost this long after its end
_SOON_S = 2e-4
_NO_REQUESTS = 1_000_000
_WINDOW_S = 1.0


class Budget(Protocol):
    """How fast and how much at once may be deleted from each bucket; called from one thread."""

    def take(self, bucket: str, keys: int) -> float:
        """Return 0.0 when `keys` deletes may be sent now (they are then counted).

        Else the seconds after which to ask again; nothing is taken then.
        """

    def in_flight_limit(self, bucket: str) -> int:
        """Return how many requests of this bucket this process may have out now, at least 1."""

    def report(
        self, bucket: str, keys: int, *, throttled: bool, retry_after_s: float | None, seconds: float
    ) -> None:
        """Take in a reply that came `seconds` after its request was sent; asks nothing of the store.

        `keys` is how many were throttled when some were, else all of the request.
        """


class NoBudget:
    """Never waits: for dry runs, which send nothing."""

    def take(self, bucket: str, keys: int) -> float:
        """Return 0.0."""
        return 0.0

    def in_flight_limit(self, bucket: str) -> int:
        """Return a number that nobody reaches."""
        return _NO_REQUESTS

    def report(
        self, bucket: str, keys: int, *, throttled: bool, retry_after_s: float | None, seconds: float
    ) -> None:
        """Do nothing."""


@dataclass(slots=True)
class _Bucket:
    """What this process knows of a bucket; instants are its own clock's."""

    began: float
    limited: bool = False
    next_peek: float = -math.inf
    # The lease: keys left, when the next request may go, the pace, when what is left is lost.
    left: float = 0.0
    next_at: float = 0.0
    rate: float = 0.0
    lost_at: float = 0.0
    ask_at: float = 0.0
    not_before: float = 0.0
    asked_at: float = -math.inf
    local: aimd.State | None = None
    # What the store was seen to do.
    decreased_at: float = -math.inf
    latency: float = 0.0
    least_latency: float = 0.0
    request_keys: float = 0.0
    window_at: float = 0.0
    acked: int = 0
    acked_before: int = 0


@dataclass(slots=True)
class SharedBudget:
    """The budget of this process's tasks, `tasks` of which run at most at once on the whole cluster.

    While the board cannot be reached each process keeps to its share, the last rate it knew divided by
    `tasks`: stricter than together, for nobody knows how many of the others are at work.
    """

    board: Board
    tasks: int
    requests_in_flight: int
    clock: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random.random
    rule: aimd.Rule = aimd.RULE
    _buckets: dict[str, _Bucket] = field(default_factory=dict)
    _away_until: float = -math.inf
    _failures: int = 0

    def take(self, bucket: str, keys: int) -> float:
        """Return 0.0 when the keys may go now, else the seconds after which to ask again."""
        now = self.clock()
        b = self._buckets.get(bucket) or self._new(bucket, now)
        if not b.limited and now >= b.next_peek:
            self._peek(bucket, b, now)
        elif b.limited and now - b.asked_at > self.rule.idle:
            b.limited, b.local, b.left = False, None, 0.0  # as the board has forgotten it, too
        if not b.limited or keys <= 0:
            return 0.0
        if now < b.not_before:
            return b.not_before - now
        return self._take_leased(bucket, b, keys, now)

    def in_flight_limit(self, bucket: str) -> int:
        """Return how many requests this process may have out.

        That is what keeps the rate up at the latency seen (Little's law), twice for unevenness. Of a store
        that gets slower instead of saying no it is not more than three times the least latency would need.
        """
        b = self._buckets.get(bucket)
        if b is None or not b.limited or not b.request_keys:
            return self.requests_in_flight
        latency = min(b.latency, 3 * b.least_latency)
        needed = math.ceil(2 * b.rate * latency / b.request_keys) + 1
        return max(1, min(self.requests_in_flight, needed))

    def report(
        self, bucket: str, keys: int, *, throttled: bool, retry_after_s: float | None, seconds: float
    ) -> None:
        """Take a reply in; a throttled one reaches the board, once for all that were sent before it."""
        now = self.clock()
        b = self._buckets.get(bucket) or self._new(bucket, now)
        if throttled:
            self._throttled(bucket, b, keys, now, seconds, retry_after_s or 0.0)
            return
        if now - b.window_at >= _WINDOW_S:
            b.acked_before = b.acked if now - b.window_at < 2 * _WINDOW_S else 0
            b.acked, b.window_at = 0, now
        b.acked += keys
        if b.request_keys:
            b.latency += (seconds - b.latency) / 8
            b.request_keys += (keys - b.request_keys) / 8
            b.least_latency = min(seconds, b.least_latency * 1.0005)
        else:
            b.latency, b.request_keys, b.least_latency = seconds, float(keys), seconds

    # --- leases ---

    def _take_leased(self, bucket: str, b: _Bucket, keys: int, now: float) -> float:
        if now > b.lost_at:
            b.left = 0.0
        if b.left < keys:
            if now < b.ask_at:
                return b.ask_at - now
            wait = self._lease(bucket, b, keys - b.left)
            if wait or not b.limited:
                return wait
            now = self.clock()
        if b.next_at - now > _SOON_S:
            return b.next_at - now
        b.left -= keys
        b.next_at += keys / b.rate
        return 0.0

    def _lease(self, bucket: str, b: _Bucket, keys: float) -> float:
        wanted = math.ceil(keys)
        answer = self._ask_lease(bucket, b, wanted)
        now = b.asked_at = self.clock()
        if answer is None:
            b.limited, b.next_peek = False, now + _PEEK_S
            return 0.0
        b.rate = answer.rate
        if isinstance(answer, aimd.Wait):
            # Full jitter: those who wait for the same moment come one by one.
            wait = answer.seconds + self.random() * answer.spread
            b.ask_at = now + wait
            return max(wait, _SOON_S)
        starts = now + answer.starts_in
        # What was left of the last lease could have gone before this one starts.
        b.next_at = max(b.next_at, starts - b.left / answer.rate) if b.left else starts
        b.left += answer.keys
        b.lost_at = starts + b.left / answer.rate + _LEASE_KEPT_S
        return 0.0

    def _ask_lease(self, bucket: str, b: _Bucket, keys: int) -> aimd.Lease | aimd.Wait | None:
        now = self.clock()
        if now >= self._away_until:
            known = b.rate if b.local is None else aimd.rate(b.local, now, self.rule) * self.tasks
            try:
                answer = self.board.lease(bucket, keys, known)
            except BoardUnavailable as error:
                self._lost(error)
            else:
                self._found()
                b.local = None
                return answer
        if b.local is None:
            b.local = self._share(b, now)
        b.local, alone = aimd.lease(b.local, self.clock(), keys, self.rule)
        return alone

    # --- throttled ---

    def _throttled(
        self, bucket: str, b: _Bucket, keys: int, now: float, seconds: float, retry_after: float
    ) -> None:
        pause = min(max(retry_after, 0.0), self.rule.longest_pause)
        if pause:
            b.not_before = max(b.not_before, now + pause)
            b.left = 0.0
        if now - seconds < b.decreased_at and not pause:
            return  # sent before the last decrease: one decrease for each round trip
        ago = max(0.0, seconds)
        reply = aimd.Throttle(ago, max(keys, self._acked_rate(b, now) * self.tasks), pause)
        known = b.rate if b.limited and b.local is None else 0.0
        if now >= self._away_until:
            if b.local is not None:
                known = aimd.rate(b.local, now, self.rule) * self.tasks
            try:
                b.rate = self.board.throttled(bucket, replace(reply, known=known))
            except BoardUnavailable as error:
                self._lost(error)
            else:
                self._found()
                b.local = None
                self._slowed(b)
                return
        if b.local is None:
            b.local = self._share(b, now) if b.limited else self._first_share(b, now)
        b.local = aimd.throttled(b.local, self.clock(), reply, self.rule)
        b.rate = aimd.rate(b.local, self.clock(), self.rule)
        self._slowed(b)

    def _slowed(self, b: _Bucket) -> None:
        b.asked_at = b.decreased_at = self.clock()
        b.next_at = max(b.next_at, b.asked_at + self.rule.rest)
        b.limited, b.ask_at = True, 0.0

    def _share(self, b: _Bucket, now: float) -> aimd.State:
        share = max(self.rule.floor, b.rate) / self.tasks
        # A decrease of the shared rate may still be under way: what was sent before it does not count again.
        return aimd.State(share, share, now, b.decreased_at, now, b.not_before, ceiling=share)

    def _first_share(self, b: _Bucket, now: float) -> aimd.State:
        seen = max(self.rule.floor, self._acked_rate(b, now))
        return aimd.State(seen, seen, now, -math.inf, now, b.not_before, ceiling=seen)

    # --- the board ---

    def _peek(self, bucket: str, b: _Bucket, now: float) -> None:
        b.next_peek = now + _PEEK_S
        if now < self._away_until:
            return
        try:
            rate = self.board.peek(bucket)
        except BoardUnavailable as error:
            self._lost(error)
            return
        self._found()
        if rate is not None:
            b.limited, b.rate, b.asked_at, b.ask_at = True, rate, now, 0.0

    def _lost(self, error: BoardUnavailable) -> None:
        if not self._failures:
            _log.warning("budgets are not shared, each task keeps to its share of the last rate: %s", error)
        self._failures += 1
        longest = min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** min(self._failures, 10))
        self._away_until = self.clock() + longest * (0.5 + self.random() / 2)

    def _found(self) -> None:
        if self._failures:
            _log.info("budgets are shared again")
        self._failures, self._away_until = 0, -math.inf

    def _new(self, bucket: str, now: float) -> _Bucket:
        made = self._buckets[bucket] = _Bucket(began=now, window_at=now)
        return made

    def _acked_rate(self, b: _Bucket, now: float) -> float:
        """Return the keys per second that the store took from this process in the last second or two."""
        age = now - b.window_at
        if age >= 2 * _WINDOW_S:
            return 0.0
        before = b.acked_before if b.window_at - b.began >= _WINDOW_S else 0
        span = age + (_WINDOW_S if before else 0.0)
        return (b.acked + before) / max(span, _WINDOW_S / 4)
