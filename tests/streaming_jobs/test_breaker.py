"""The circuit breaker of a bucket: pure rules over instants."""

from __future__ import annotations

import pytest

from sexton.streaming_jobs.reaper.execute.breaker import CircuitBreaker


def test_nothing_but_failures_for_the_threshold_opens_it() -> None:
    """X-13: the time counts from the first of them, and has to be over."""
    breaker = CircuitBreaker()

    assert [breaker.fails(now, 10.0, None) for now in (5.0, 15.0, 15.1)] == [False, False, True]


def test_a_reply_that_got_something_done_begins_the_threshold_anew() -> None:
    """A bucket that works, however seldom, is not held."""
    breaker = CircuitBreaker()
    breaker.fails(0.0, 10.0, None)
    breaker.works()

    assert not breaker.fails(12.0, 10.0, None)


@pytest.mark.parametrize(("asked", "opens"), [(9.0, False), (10.0, False), (11.0, True)])
def test_a_longer_pause_than_the_threshold_is_given_at_once(asked: float, opens: bool) -> None:
    """X-13: a Retry-After beyond it needs no second failure."""
    assert CircuitBreaker().fails(0.0, 10.0, asked) is opens
