"""The pure rules of a bucket's budget: what no sequence of leases and throttled replies may do."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.streaming_jobs.budget import aimd
from sexton.streaming_jobs.budget.aimd import RULE, Lease, State, Throttle, Wait

NOW = 1_000.0
RATES = st.floats(200.0, 1e6)
AGES = st.floats(0.0, 900.0)
KEYS = st.integers(1, 1_000)
STATES = st.builds(
    lambda low, grown, age, ahead: State(low, low * grown, NOW - age, NOW - age, NOW + ahead),
    RATES,
    st.floats(1.0, 3.0),
    AGES,
    st.floats(-1.0, 0.1),
)


def busy(state: State, now: float) -> State:
    """The state as if the budget had been in use all the time."""
    return replace(state, free_at=now)


@given(state=STATES)
def test_a_throttled_reply_lowers_the_rate_at_once(state: State) -> None:
    """After a throttled reply the rate is below the one in force, by one of the two factors."""
    before = aimd.rate(state, NOW)
    ago = max(0.0, NOW - state.holds_from)

    after = aimd.throttled(state, NOW, Throttle(0.0 if ago else -1.0, 0.0))

    expected = max(RULE.floor, before * RULE.hard), max(RULE.floor, before * RULE.gentle)
    assert aimd.rate(after, NOW) == pytest.approx(expected[0]) or aimd.rate(after, NOW) == pytest.approx(
        expected[1]
    )


@given(state=STATES, more=st.lists(st.floats(0.0, 5.0), max_size=30))
def test_one_round_trip_decreases_once(state: State, more: list[float]) -> None:
    """However many replies to requests that were sent before the decrease held: it stays one decrease."""
    once = aimd.throttled(state, NOW, Throttle(-1.0, 0.0))
    later = once
    for ago in more:
        later = aimd.throttled(later, NOW + 0.001, Throttle(ago + 0.002, 0.0))

    assert later == once


@given(state=STATES, pause=st.floats(0.001, 1e6), keys=KEYS, later=st.floats(0.0, 400.0))
def test_nothing_starts_before_retry_after(state: State, pause: float, keys: int, later: float) -> None:
    """No lease begins before the moment that Retry-After named, or 300 s when it named more."""
    held = aimd.throttled(state, NOW, Throttle(0.0, 0.0, pause))
    now = NOW + later

    _, answer = aimd.lease(held, now, keys)

    if isinstance(answer, Lease):
        assert now + answer.starts_in >= NOW + min(pause, RULE.longest_pause) - 1e-6


@given(state=STATES, asks=st.lists(st.tuples(st.floats(0.0, 2.0), KEYS), min_size=2, max_size=40))
def test_leases_do_not_overlap(state: State, asks: list[tuple[float, int]]) -> None:
    """The time of each lease begins when that of the one before has ended: together they are the rate."""
    now, spans = NOW, []
    for after, keys in asks:
        now += after
        state, answer = aimd.lease(state, now, keys)
        if isinstance(answer, Lease):
            assert answer.keys >= keys
            begin = now + answer.starts_in
            spans.append((begin, begin + answer.keys / answer.rate))

    assert all(begin >= end - 1e-6 for (_, end), (begin, _) in pairwise(spans))


@given(state=STATES, keys=KEYS)
def test_who_waits_is_told_until_when(state: State, keys: int) -> None:
    """When much is handed out the answer is a wait, and after it there is a turn."""
    answer: Lease | Wait
    while True:
        state, answer = aimd.lease(state, NOW, keys)
        if isinstance(answer, Wait):
            break

    _, later = aimd.lease(state, NOW + answer.seconds + answer.spread, keys)

    assert isinstance(later, Lease)


@given(low=RATES, step=st.floats(0.1, 60.0))
def test_the_rate_never_doubles_in_less_than_its_time(low: float, step: float) -> None:
    """Growth is bounded even towards a peak that is far away."""
    state = State(low, 1e9, NOW, NOW, NOW)
    now = NOW + step

    assert aimd.rate(busy(state, now), now) <= low * 2 ** (step / RULE.doubling) * 1.000001


@given(peak=st.floats(2_000.0, 1e6))
def test_the_curve_comes_back_to_its_peak_and_goes_beyond(peak: float) -> None:
    """After one period the rate is where the store said no, after three it has more than doubled."""
    state = aimd.throttled(State(peak, peak, NOW - 1, 0.0, NOW), NOW, Throttle(0.0, 0.0))
    period = max(RULE.shortest_period, min(RULE.longest_period, RULE.period_keys / state.peak))
    back, beyond = NOW + period, NOW + 3 * period

    assert aimd.rate(busy(state, back), back) == pytest.approx(state.peak)
    assert aimd.rate(busy(state, beyond), beyond) > 2 * state.peak


@given(state=STATES, idle=st.floats(1.0, 1e5))
def test_an_unused_budget_does_not_grow(state: State, idle: float) -> None:
    """Time in which nobody wanted the budget is no evidence that the store takes more."""
    state = replace(state, free_at=NOW)
    used = aimd.rate(state, NOW)

    assert aimd.rate(state, NOW + RULE.credit + idle) <= aimd.rate(busy(state, NOW + RULE.credit), NOW + 0.2)
    assert aimd.rate(state, NOW + RULE.credit + idle) >= used


@given(state=STATES, share=RATES, steps=st.lists(st.tuples(st.floats(0.0, 100.0), st.booleans())))
def test_nothing_grows_above_a_ceiling(state: State, share: float, steps: list[tuple[float, bool]]) -> None:
    """With a ceiling no time, lease or reply brings the rate above it."""
    state, now = replace(state, ceiling=share), NOW
    for after, no in steps:
        now += after
        if no:
            state = aimd.throttled(state, now, Throttle(0.0, 1e9))
        state, answer = aimd.lease(busy(state, now), now, 1_000)
        assert answer.rate <= share


@given(state=STATES, back=st.floats(1.0, 1e9))
def test_a_clock_set_back_holds_nobody_up(state: State, back: float) -> None:
    """When the clock jumps back, for example to another server's, a turn comes within seconds."""
    now = NOW - back

    _, answer = aimd.lease(replace(state, not_before=NOW + 10), now, 1_000)

    held = RULE.longest_pause + RULE.furthest
    assert (answer.starts_in if isinstance(answer, Lease) else answer.seconds) <= held


def test_a_bucket_seen_for_the_first_time_starts_below_what_was_seen() -> None:
    """The first throttled reply sets the rate to 0.7 of what the store took; a lost budget keeps its rate."""
    assert aimd.rate(aimd.throttled(None, NOW, Throttle(0.05, 10_000.0)), NOW) == pytest.approx(7_000.0)
    assert aimd.rate(aimd.throttled(None, NOW, Throttle(0.05, 0.0)), NOW) == RULE.floor
    assert aimd.rate(aimd.seeded(4_000.0, NOW), NOW) == pytest.approx(4_000.0)
    lost = aimd.throttled(None, NOW, Throttle(0.05, 1e9, known=4_000.0))
    assert aimd.rate(lost, NOW) == pytest.approx(4_000.0 * RULE.hard)
    assert math.isinf(aimd.seeded(4_000.0, NOW).ceiling)
