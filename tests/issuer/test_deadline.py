"""Deadlines, and readings that calls share."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sexton.issuer.deadline import Coalescer, Deadline
from sexton.schemas.errors import KafkaUnavailable


def test_a_past_deadline_is_refused() -> None:
    """A step that finds no time left says what it was to do."""
    with pytest.raises(KafkaUnavailable, match="end offsets"):
        Deadline.after(-1).require("end offsets")


def test_a_step_has_some_time_or_none() -> None:
    """Less than ten milliseconds are no time for a step: a client library may take them for none."""
    with pytest.raises(KafkaUnavailable, match="end offsets"):
        Deadline.after(0.009).require("end offsets")

    assert Deadline.after(1).require("end offsets") > 0.5


def test_calls_share_a_run_that_has_not_begun() -> None:
    """Calls that arrive while a run is under way share the next one and never get that run's result."""
    gate, begun = threading.Event(), threading.Semaphore(0)
    runs: list[int] = []

    def work(_: Deadline) -> int:
        runs.append(len(runs))
        number = runs[-1]
        begun.release()
        gate.wait(5)
        return number

    shared = Coalescer(work)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(shared.get, Deadline.after(5))
        assert begun.acquire(timeout=5)
        later = [pool.submit(shared.get, Deadline.after(5)) for _ in range(6)]
        while shared._waiting is None:
            pass
        gate.set()

        assert first.result() == 0
        assert {f.result() for f in later} <= {1, 2}
        assert 2 <= len(runs) <= 3


def test_every_caller_gets_the_failure() -> None:
    """A run that fails fails for all that share it, and the next one starts anew."""
    outcomes = iter([KafkaUnavailable("away"), None])

    def work(_: Deadline) -> str:
        if (error := next(outcomes)) is not None:
            raise error
        return "fine"

    shared = Coalescer(work)
    with pytest.raises(KafkaUnavailable, match="away"):
        shared.get(Deadline.after(1))

    assert shared.get(Deadline.after(1)) == "fine"


def test_a_leader_without_time_does_not_take_the_others_along() -> None:
    """A call that joined one whose time is over continues by itself."""
    gate, begun = threading.Event(), threading.Event()

    def work(_: Deadline) -> str:
        begun.set()
        gate.wait(5)
        return "fine"

    shared = Coalescer(work)
    with ThreadPoolExecutor(3) as pool:
        running = pool.submit(shared.get, Deadline.after(5))
        assert begun.wait(5)
        hasty = pool.submit(shared.get, Deadline.after(0.2))
        while shared._waiting is None:
            pass
        patient = pool.submit(shared.get, Deadline.after(5))
        with pytest.raises(KafkaUnavailable):
            hasty.result()
        gate.set()

        assert (running.result(), patient.result()) == ("fine", "fine")
