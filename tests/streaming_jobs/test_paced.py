"""Deletes beside the batches take from their bucket's budget, and report to it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.support.execute_stage import BUSY, DENIED, Store

from sexton.storage import Abilities, KeyState
from sexton.streaming_jobs.reaper.execute.paced import OnePacer, PacedDeleter


@dataclass
class Budget:
    """Makes the first requests wait; keeps what was asked of it and reported to it."""

    waits: list[float] = field(default_factory=list)
    asked: list[tuple[str, int]] = field(default_factory=list)
    told: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)

    def take(self, bucket: str, keys: int) -> float:
        """Return the next wait, and none once all are over."""
        self.asked.append((bucket, keys))
        return self.waits.pop(0) if self.waits else 0.0

    def in_flight_limit(self, bucket: str) -> int:
        """Return a limit that shows the bucket."""
        return len(bucket)

    def report(self, bucket: str, keys: int, **reply: Any) -> None:
        """Keep what is reported."""
        self.told.append((bucket, keys, reply))


@dataclass
class Noting(Store):
    """A store that keeps where it was probed."""

    under: list[str] = field(default_factory=list)

    def probe(self, bucket: str, under: str = "") -> Abilities:
        """Note the place."""
        self.under.append(under)
        return super().probe(bucket, under)

    def probe_writes(self, bucket: str, under: str = "") -> Abilities:
        """Note the place."""
        self.under.append(under)
        return super().probe_writes(bucket, under)


def paced(store: Store, budget: Budget, slept: list[float] | None = None) -> PacedDeleter:
    """A deleter that keeps to this budget."""
    sleeps = slept if slept is not None else []
    return PacedDeleter(store, OnePacer(budget), under="own/", sleep=sleeps.append)


def test_x_6_nothing_is_sent_before_the_budget_allows_it() -> None:
    """X-6: it is asked again after each wait, at least once a second, and the request goes once."""
    store, budget, slept = Store(), Budget([0.5, 7.0]), list[float]()
    store.answer = lambda number, bucket, item: BUSY if len(budget.asked) < 3 else None

    result = paced(store, budget, slept).delete_all("b", ["x", "y"]).result()

    assert budget.asked == [("b", 2)] * 3
    assert slept == [0.5, 1.0]
    assert (store.sent, result.clean) == ([("b", ["x", "y"])], True)


@pytest.mark.parametrize(
    ("states", "keys", "throttled"),
    [
        ({}, 3, False),
        ({"x": DENIED}, 3, False),
        ({"x": BUSY, "y": DENIED}, 1, True),
        (dict.fromkeys("xyz", replace(BUSY, retry_after_s=9.0)), 3, True),
    ],
    ids=["all gone", "one denied", "one throttled", "all throttled"],
)
def test_x_6_the_budget_learns_from_each_reply(
    states: dict[str, KeyState], keys: int, throttled: bool
) -> None:
    """X-6: how many keys were throttled, else how many were worked, and the pause that was asked for."""
    store, budget = Store(answer=lambda number, bucket, item: states.get(str(item))), Budget()

    paced(store, budget).delete_all("b", ["x", "y", "z"]).result()

    ((bucket, told, reply),) = budget.told
    assert (bucket, told, reply["throttled"]) == ("b", keys, throttled)
    assert reply["retry_after_s"] == (9.0 if len(states) == 3 else None)


@pytest.mark.parametrize("bypass", [False, True])
def test_retention_is_bypassed_as_the_caller_asks(bypass: bool) -> None:
    """X-18: neither for who did not ask, nor left out for who did."""
    store = Store()
    paced(store, Budget()).delete_all("b", ["x"], bypass_governance=bypass).result()

    assert store.bypassed == [bypass]


def test_a_probe_of_a_paced_deleter_lies_where_the_reaper_may_delete() -> None:
    """X-18: below the prefix that the allow-list gives it, whatever its caller names."""
    store = Noting()
    given = paced(store, Budget())

    assert given.probe("b", "elsewhere/") == given.look_up("b") == given.abilities("b")
    assert given.probe_writes("b", "elsewhere/") == given.abilities("b")
    assert (store.under, given.pacer.in_flight_limit("bbb")) == (["own/", "own/"], 3)
    assert given.calls is store.calls
