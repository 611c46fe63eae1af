"""How hard one task works a bucket, reply by reply."""

from __future__ import annotations

import pytest

from sexton.storage import MAX_KEYS
from sexton.streaming_jobs.reaper.execute.pace import Pace


def test_clean_replies_double_the_requests_in_flight() -> None:
    """A bucket begins with two connections, and has no more than its budget allows."""
    pace = Pace()
    limits = [pace.limit]
    for _ in range(4):
        pace.good(10)
        limits.append(pace.limit)

    assert limits == [2, 4, 8, 10, 10]
    assert (pace.not_before, pace.most) == (0.0, MAX_KEYS)


def test_x_6_a_store_that_is_busy_is_waited_for_longer_each_time() -> None:
    """X-6: one request at a time, after a pause that doubles up to its longest; work shortens it again."""
    pace, waits = Pace(), []
    for _ in range(5):
        pace.bad(100.0, None, 1.0)
        assert pace.limit == 1
        waits.append(round(pace.not_before - 100.0, 6))
        pace.not_before = 0.0
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.4]

    pace.good(8)
    assert pace.limit == 2
    pace.bad(100.0, None, 1.0)
    assert round(pace.not_before - 100.0, 6) == 0.05


@pytest.mark.parametrize(("jitter", "wait_s"), [(0.0, 0.025), (0.5, 0.0375), (1.0, 0.05)])
def test_a_pause_is_between_a_half_and_the_whole(jitter: float, wait_s: float) -> None:
    """Tasks that are refused together do not come back together."""
    pace = Pace()
    pace.bad(100.0, None, jitter)

    assert round(pace.not_before - 100.0, 6) == wait_s


def test_x_6_the_pause_that_a_store_asks_for_is_never_cut_short() -> None:
    """X-6: neither by our own shorter one nor by a later reply; a longer pause of our own stands."""
    pace = Pace()
    pace.bad(100.0, 30.0, 0.0)
    assert pace.not_before == 130.0
    pace.bad(101.0, None, 1.0)
    assert pace.not_before == 130.0
    pace.bad(200.0, 0.001, 1.0)
    assert round(pace.not_before - 200.0, 6) == 0.2


def test_a_store_that_refuses_everything_is_asked_with_few_keys() -> None:
    """The second refusal in a row makes the requests small; clean replies double them up to a whole batch."""
    pace = Pace()
    pace.bad(0.0, None, 0.0)
    assert pace.most == MAX_KEYS
    pace.bad(0.0, None, 0.0)
    assert pace.most == 10

    found = []
    for _ in range(8):
        pace.good(8)
        found.append(pace.most)
    assert found == [20, 40, 80, 160, 320, 640, 1000, 1000]


def test_a_refusal_on_the_way_up_halves_the_requests() -> None:
    """What passed a moment ago is not asked for with ten keys at once, and never with less."""
    pace = Pace(most=40)
    pace.bad(0.0, None, 0.0)
    assert pace.most == 20

    low = Pace(most=15)
    low.bad(0.0, None, 0.0)
    assert low.most == 10
