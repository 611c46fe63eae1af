"""A discrete-event simulation of a throttling store and of tasks that share a budget of it.

The store is the published one: 3,500 writes per second for each prefix, each key of a batch one write, a
small burst, a split that doubles a prefix's limit after minutes of load. The tasks run the reaper's own
budget code; only the clock is this simulation's, so a run takes seconds and gives the same figures each time.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sexton.streaming_jobs.budget import aimd
from sexton.streaming_jobs.budget.board import BoardUnavailable, MemoryBoard
from sexton.streaming_jobs.budget.pacing import SharedBudget

__all__ = ["BATCH", "PREFIX_LIMIT", "Outcome", "Sample", "Scenario", "simulate"]

PREFIX_LIMIT = 3_500.0
BATCH = 1_000
_BUCKET = "bucket"
_SAMPLE_S = 1.0
_LATE_S = 0.003  # a sender wakes up late, at most by this
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One world; times are seconds from its start.

    `weights` is the share of the keys that each prefix gets. `changes` are factors of all limits from a
    moment on, `splits_after` the seconds of load above 80 % after which a prefix's limit doubles, once.
    `settle_s` is how long after the start and after each change, start of a task or split no figure is
    taken: what comes later is the steady state.
    """

    name: str
    weights: tuple[float, ...] = (1.0,)
    starts: tuple[float, ...] = (0.0,)
    per_key: bool = False
    retry_after_s: float | None = None
    burst_s: float = 0.5
    latency_s: float = 0.05
    in_flight: int = 8
    keys: int = BATCH
    changes: tuple[tuple[float, float], ...] = ()
    splits_after: float | None = None
    board_away_from: float | None = None
    board_back_at: float | None = None
    duration_s: float = 1_200.0
    settle_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One second: rates in keys per second, and requests."""

    at: float
    allowed: float
    achieved: float
    budget: float
    requests: int
    throttled: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to; `steady` figures leave out the seconds around each change."""

    achieved: float
    throttled: float
    whole_achieved: float
    whole_throttled: float
    samples: tuple[Sample, ...]


class _Store:
    """Token buckets, one for each prefix."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.weights = np.array(scenario.weights) / sum(scenario.weights)
        self._random = np.random.default_rng(seed)
        self._factor = 1.0
        self._limits: _Floats = np.full(len(self.weights), PREFIX_LIMIT)
        self._tokens: _Floats = np.zeros(len(self.weights))
        self._at = -60.0
        self._loaded_s: _Floats = np.zeros(len(self.weights))
        self._taken: _Floats = np.zeros(len(self.weights))
        self._split: npt.NDArray[np.bool_] = np.zeros(len(self.weights), dtype=bool)
        self.changed_at = [0.0, *(s for s in scenario.starts if s), *(at for at, _ in scenario.changes)]

    def allowed(self) -> float:
        """Return the keys per second at which the hottest prefix is at its limit, given the mix of keys."""
        return float(np.min(self._limits * self._factor / self.weights))

    def delete(self, keys: int, now: float) -> int:
        """Return how many of the keys were throttled."""
        self._refill(now)
        wanted = self._random.multinomial(keys, self.weights).astype(np.float64)
        if not self.scenario.per_key and np.any(wanted > self._tokens):
            return keys
        taken = np.minimum(wanted, np.floor(self._tokens))
        self._tokens -= taken
        self._taken += taken
        return int(keys - taken.sum())

    def second(self, now: float) -> None:
        """Look at the last second's load: changes of the limits and splits."""
        self._refill(now)
        for at, factor in self.scenario.changes:
            if at <= now:
                self._factor = factor
        after = self.scenario.splits_after
        if after is not None:
            self._loaded_s += self._taken > 0.8 * self._limits * self._factor * _SAMPLE_S
            due = (self._loaded_s >= after) & ~self._split
            if due.any():
                self._limits[due] *= 2
                self._split |= due
                self.changed_at.append(now)
        self._taken[:] = 0

    def _refill(self, now: float) -> None:
        rate = self._limits * self._factor
        # The burst holds one request at least: a store that never took one would be no store.
        most = np.maximum(rate * self.scenario.burst_s, 1.25 * self.scenario.keys)
        self._tokens = np.minimum(self._tokens + rate * (now - self._at), most)
        self._at = now


class _Away:
    """A board that cannot be reached for a while."""

    def __init__(self, board: MemoryBoard, clock: Callable[[], float], scenario: Scenario) -> None:
        self._board, self._clock, self._scenario = board, clock, scenario

    def peek(self, bucket: str) -> float | None:
        return self._reached().peek(bucket)

    def lease(self, bucket: str, keys: int, known: float) -> aimd.Lease | aimd.Wait | None:
        return self._reached().lease(bucket, keys, known)

    def throttled(self, bucket: str, reply: aimd.Throttle) -> float:
        return self._reached().throttled(bucket, reply)

    def _reached(self) -> MemoryBoard:
        away, back = self._scenario.board_away_from, self._scenario.board_back_at
        now = self._clock()
        if away is not None and now >= away and (back is None or now < back):
            raise BoardUnavailable("simulated")
        return self._board


@dataclass(slots=True)
class _Task:
    """One task with endless work."""

    budget: SharedBudget
    in_flight: int = 0
    wakes_at: float = 0.0


@dataclass(slots=True)
class _World:
    scenario: Scenario
    store: _Store
    board: MemoryBoard
    random: random.Random
    now: float = 0.0
    tasks: list[_Task] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _order: itertools.count[int] = field(default_factory=itertools.count)
    _done: int = 0
    _requests: int = 0
    _throttled: int = 0

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), what))

    def run(self) -> None:
        for start, task in zip(self.scenario.starts, self.tasks, strict=True):
            self.at(start, lambda task=task: self._work(task))  # type: ignore[misc]
        self.at(_SAMPLE_S, self._second)
        while self._events and self._events[0][0] <= self.scenario.duration_s:
            self.now, _, what = heapq.heappop(self._events)
            what()

    def _work(self, task: _Task) -> None:
        """Send as long as the budget and the limit of requests in flight allow."""
        while task.in_flight < task.budget.in_flight_limit(_BUCKET):
            if task.wakes_at > self.now:
                return
            wait = task.budget.take(_BUCKET, self.scenario.keys)
            if wait:
                task.wakes_at = self.now + wait + self.random.random() * _LATE_S
                self.at(task.wakes_at, lambda: self._work(task))
                return
            task.in_flight += 1
            half = self.scenario.latency_s * (0.4 + 0.2 * self.random.random())
            sent = self.now
            self.at(self.now + half, lambda sent=sent: self._arrive(task, sent))  # type: ignore[misc]

    def _arrive(self, task: _Task, sent: float) -> None:
        throttled = self.store.delete(self.scenario.keys, self.now)
        self._requests += 1
        self._throttled += throttled > 0
        self._done += self.scenario.keys - throttled
        half = self.scenario.latency_s * (0.4 + 0.2 * self.random.random())
        self.at(self.now + half, lambda: self._reply(task, sent, throttled))

    def _reply(self, task: _Task, sent: float, throttled: int) -> None:
        task.in_flight -= 1
        task.budget.report(
            _BUCKET,
            throttled or self.scenario.keys,
            throttled=throttled > 0,
            retry_after_s=self.scenario.retry_after_s if throttled else None,
            seconds=self.now - sent,
        )
        self._work(task)

    def _second(self) -> None:
        state = self.board.states.get(_BUCKET)
        budget = aimd.rate(state, self.now) if state else 0.0
        allowed = self.store.allowed()
        self.samples.append(
            Sample(self.now, allowed, self._done / _SAMPLE_S, budget, self._requests, self._throttled)
        )
        self._done = self._requests = self._throttled = 0
        self.store.second(self.now)
        self.at(self.now + _SAMPLE_S, self._second)


def simulate(scenario: Scenario, seed: int) -> Outcome:
    """Run one world."""
    store = _Store(scenario, seed)
    rng = random.Random(seed)
    world: _World

    def clock() -> float:
        return world.now

    board = MemoryBoard(clock)
    world = _World(scenario, store, board, rng)
    away = _Away(board, clock, scenario)
    for _ in scenario.starts:
        budget = SharedBudget(away, len(scenario.starts), scenario.in_flight, clock, rng.random)
        world.tasks.append(_Task(budget))
    world.run()
    if scenario.board_away_from is not None:
        store.changed_at.append(scenario.board_away_from)
    moved = store.changed_at

    def steady(sample: Sample) -> bool:
        return not any(at < sample.at <= at + scenario.settle_s for at in moved)

    achieved, throttled = _figures([s for s in world.samples if steady(s)])
    whole_achieved, whole_throttled = _figures(world.samples)
    return Outcome(achieved, throttled, whole_achieved, whole_throttled, tuple(world.samples))


def _figures(samples: list[Sample]) -> tuple[float, float]:
    allowed, done = sum(s.allowed for s in samples), sum(s.achieved for s in samples)
    requests, throttled = sum(s.requests for s in samples), sum(s.throttled for s in samples)
    return done / allowed, throttled / max(1, requests)
