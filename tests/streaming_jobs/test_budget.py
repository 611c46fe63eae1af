"""A process's side of the budgets: who pays what, and what happens when the board is away."""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.schemas.settings import load
from sexton.streaming_jobs.budget import NoBudget, aimd, open_budget
from sexton.streaming_jobs.budget.board import BoardUnavailable, MemoryBoard
from sexton.streaming_jobs.budget.pacing import SharedBudget

BUCKET = "bucket"


@dataclass
class World:
    """A clock that stands still until it is moved, and a board that counts its calls and can be away."""

    now: float = 100.0
    away: bool = False
    calls: list[str] = field(default_factory=list)
    board: MemoryBoard = field(init=False)

    def __post_init__(self) -> None:
        self.board = MemoryBoard(lambda: self.now)

    def _called(self, what: str) -> MemoryBoard:
        self.calls.append(what)
        if self.away:
            raise BoardUnavailable("away")
        return self.board

    def peek(self, bucket: str) -> float | None:
        return self._called("peek").peek(bucket)

    def lease(self, bucket: str, keys: int, known: float) -> aimd.Lease | aimd.Wait | None:
        return self._called("lease").lease(bucket, keys, known)

    def throttled(self, bucket: str, reply: aimd.Throttle) -> float:
        return self._called("throttled").throttled(bucket, reply)

    def task(self, tasks: int = 1, in_flight: int = 8) -> SharedBudget:
        """One more process of the cluster."""
        return SharedBudget(self, tasks, in_flight, lambda: self.now, lambda: 0.5)


def said_no(budget: SharedBudget, retry_after_s: float | None = None, seconds: float = 0.0) -> None:
    """Report one throttled request."""
    budget.report(BUCKET, 1_000, throttled=True, retry_after_s=retry_after_s, seconds=seconds)


def clean(budget: SharedBudget, keys: int = 1_000, seconds: float = 0.05) -> None:
    """Report one clean reply."""
    budget.report(BUCKET, keys, throttled=False, retry_after_s=None, seconds=seconds)


_ENDLESS = 10_000_000


def sent(world: World, budgets: list[SharedBudget], seconds: float, step: float = 0.01) -> int:
    """How many keys go out when all tasks send whatever they may."""
    keys, until = 0, world.now + seconds
    while world.now < until:
        for budget in budgets:
            while budget.take(BUCKET, 1_000) == 0.0:
                keys += 1_000
                assert keys < _ENDLESS, "nothing bounds what is sent"
        world.now += step
    return keys


def slowed(world: World, budgets: list[SharedBudget], rate: float) -> None:
    """Let the board hold this rate, and every task know it."""
    world.board.states[BUCKET] = aimd.seeded(rate, world.now)
    world.now += 1.1
    sent(world, budgets, 5.0)


def test_a_bucket_that_is_not_throttled_costs_one_look_a_second() -> None:
    """At full speed take() never waits, and the board is verified once a second."""
    world = World()
    budget = world.task()

    for _ in range(500):
        assert budget.take(BUCKET, 1_000) == 0.0
        clean(budget)
        world.now += 0.01

    assert world.calls == ["peek"] * 5
    assert budget.in_flight_limit(BUCKET) == 8


def test_the_other_tasks_learn_of_a_throttled_reply_within_a_second() -> None:
    """What one task was reported slows all others down at their next look."""
    world = World()
    reported, other = world.task(2), world.task(2)
    assert reported.take(BUCKET, 1_000) == other.take(BUCKET, 1_000) == 0.0
    clean(reported, 4_000)

    said_no(reported)
    world.now += 1.0

    rate = aimd.rate(world.board.states[BUCKET], world.now)
    assert sent(world, [reported, other], 2.0) <= 2.5 * rate * 2 + 2_000


@given(rate=st.floats(1_000.0, 1e5), tasks=st.integers(1, 8))
def test_all_tasks_together_keep_to_the_rate(rate: float, tasks: int) -> None:
    """Many tasks that send whatever they may get together what one would get, and nearly all of it."""
    world = World()
    budgets = [world.task(tasks) for _ in range(tasks)]
    slowed(world, budgets, rate)
    world.board.states[BUCKET] = aimd.seeded(rate, world.now)

    keys = sent(world, budgets, 20.0)

    assert 0.85 * rate * 20 - 2_000 <= keys <= 1.02 * rate * 20 + 2_000


def test_a_lease_serves_many_requests() -> None:
    """A fast bucket costs about seven calls a second, not one for each request."""
    world = World()
    budget = world.task()
    slowed(world, [budget], 100_000.0)
    world.calls.clear()

    keys = sent(world, [budget], 10.0)

    assert keys > 900_000
    assert len(world.calls) <= 150


def test_retry_after_is_a_not_before() -> None:
    """Nothing goes out before the moment that the store named, neither from this task nor from another."""
    world = World()
    reported, other = world.task(2), world.task(2)
    slowed(world, [reported, other], 50_000.0)

    said_no(reported, retry_after_s=5.0)

    assert reported.take(BUCKET, 1_000) == pytest.approx(5.0)
    assert sent(world, [reported], 4.99) == 0
    world.now += 0.3
    assert sent(world, [reported], 5.0) > 0
    said_no(reported, retry_after_s=5.0)
    assert sent(world, [other], 4.9) <= 50_000 * aimd.RULE.slice + 1_000  # what it had leased before


def test_requests_in_flight_follow_the_rate() -> None:
    """A slow bucket gets few requests in flight, a fast one as many as the settings allow."""
    world = World()
    budget = world.task(in_flight=16)
    clean(budget)
    slowed(world, [budget], 3_500.0)
    assert budget.in_flight_limit(BUCKET) == 2

    slowed(world, [budget], 1e6)
    assert budget.in_flight_limit(BUCKET) == 16


def test_a_store_that_gets_slower_gets_no_more_requests() -> None:
    """Latency that grows without a throttled reply counts three times its least at most."""
    world = World()
    budget = world.task(in_flight=64)
    clean(budget)
    slowed(world, [budget], 20_000.0)

    for _ in range(100):
        clean(budget, seconds=5.0)

    assert budget.in_flight_limit(BUCKET) <= 8


@given(rate=st.floats(2_000.0, 1e5), tasks=st.integers(1, 6), noes=st.integers(0, 3))
@pytest.mark.slow
def test_without_the_board_all_together_are_stricter(rate: float, tasks: int, noes: int) -> None:
    """Each task keeps to its share of the last rate and never grows above it."""
    world = World()
    budgets = [world.task(tasks) for _ in range(tasks)]
    slowed(world, budgets, rate)
    last = max(b._buckets[BUCKET].rate for b in budgets if BUCKET in b._buckets)
    world.away = True
    sent(world, budgets, 1.0)  # what was leased before

    for _ in range(noes):
        said_no(budgets[0])
    keys = sent(world, budgets, 60.0)

    assert keys <= last * 61 + 1_000 * tasks


def test_a_first_throttled_reply_without_the_board_slows_down_alone() -> None:
    """A task that never reached the board keeps below what it was seen to achieve itself."""
    world = World(away=True)
    budget = world.task(4)
    for _ in range(10):
        assert budget.take(BUCKET, 1_000) == 0.0
        clean(budget)
        world.now += 0.1

    said_no(budget)

    assert sent(world, [budget], 30.0) <= 30 * 10_000 + 1_000


def test_the_board_comes_back_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    """One warning when it is lost, one line when it is back, and the rate that is known is not forgotten."""
    world = World()
    budget = world.task(4)
    slowed(world, [budget], 20_000.0)
    caplog.set_level(logging.INFO, "sexton.streaming_jobs.budget")

    world.away = True
    alone = sent(world, [budget], 60.0) / 60
    world.board.states.clear()  # it was flushed meanwhile
    world.away = False
    sent(world, [budget], 35.0)
    shared = sent(world, [budget], 10.0) / 10

    assert alone <= 20_000 * 1.1 / 4
    assert alone * 1.5 < shared <= 22_000
    assert [r.levelname for r in caplog.records] == ["WARNING", "INFO"]


def test_a_bucket_nobody_used_is_free_again() -> None:
    """After ten minutes without a request the limit is looked for anew."""
    world = World()
    budget = world.task()
    slowed(world, [budget], 2_000.0)
    world.board.states.clear()

    world.now += aimd.RULE.idle + 1

    assert [budget.take(BUCKET, 1_000) for _ in range(50)] == [0.0] * 50


def test_buckets_do_not_slow_each_other_down() -> None:
    """A throttled bucket costs its neighbour nothing."""
    world = World()
    budget = world.task()
    said_no(budget, retry_after_s=100.0)

    assert budget.take(BUCKET, 1_000) > 0
    assert [budget.take("other", 1_000) for _ in range(50)] == [0.0] * 50


def test_no_budget_never_waits() -> None:
    """A dry run sends nothing and waits for nothing."""
    budget = NoBudget()
    budget.report(BUCKET, 1_000, throttled=True, retry_after_s=100.0, seconds=0.0)

    assert budget.take(BUCKET, 10**9) == 0.0
    assert budget.in_flight_limit(BUCKET) > 1_000


def test_a_process_has_one_budget_and_a_forked_one_another() -> None:
    """Two processes never talk over one connection."""
    settings = load({"SEXTON_REDIS_URL": "redis://127.0.0.1:1/0"})
    mine = open_budget(settings, tasks=2)
    assert open_budget(settings, tasks=2) is mine
    assert open_budget(settings, tasks=3) is not mine

    read, write = os.pipe()
    forked = multiprocessing.get_context("fork").Process(
        target=lambda: os.write(write, b"other" if open_budget(settings, tasks=2) is not mine else b"same")
    )
    forked.start()
    forked.join(10)
    os.close(write)

    with os.fdopen(read, "rb") as reported:
        assert reported.read() == b"other"


@pytest.mark.parametrize("limited", [False, True])
def test_a_request_costs_microseconds(limited: bool) -> None:
    """take() and report() cost far less than 20 microseconds each, apart from the board."""
    budget = SharedBudget(MemoryBoard(time.monotonic), 1, 8)
    if limited:
        budget.report(BUCKET, 1_000_000, throttled=False, retry_after_s=None, seconds=0.05)
        said_no(budget)

    def fastest(call: Callable[[], object]) -> float:
        best = float("inf")
        for _ in range(20):
            begun = time.perf_counter()
            for _ in range(100):
                call()
            best = min(best, time.perf_counter() - begun)
        return best / 100

    assert fastest(lambda: budget.take(BUCKET, 1_000)) < 20e-6
    assert fastest(lambda: clean(budget)) < 20e-6
