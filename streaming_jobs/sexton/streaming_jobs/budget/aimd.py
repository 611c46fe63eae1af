"""The rule of one bucket's budget: how fast may all tasks together delete, and whose turn is it?

Pure: `now` and the state come in, the next state goes out. `lua/budget_v1.lua` is the same rule where it must
be atomic; a property test holds the two equal.

The rate is in keys per second, since a store counts each key of a DeleteObjects request as one write. After a
throttled reply it drops by a factor and then follows a cubic curve: quickly back to near the rate at which
the store had said no, long on a plateau just below it, then faster and faster upwards, for limits grow (a
store that splits a prefix doubles it). The plateau is where the time is spent: it is what makes throttled
replies rare and the loss small at once.

Time is handed out, not tokens: a lease reserves the stretch in which its keys may be sent at the present
rate, after the stretches of all others. So the requests of many tasks are evenly spaced without talking to
each other, and the store never sees a burst.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

__all__ = [
    "RULE",
    "Lease",
    "Rule",
    "State",
    "Throttle",
    "Wait",
    "lease",
    "rate",
    "sane",
    "seeded",
    "throttled",
]


@dataclass(frozen=True, slots=True)
class Rule:
    """The constants, as they are handed to the script; times are in seconds, rates in keys per second."""

    gentle: float = 0.85
    """Factor of a decrease that comes after the rate has grown again."""
    hard: float = 0.7
    """Factor when the store continues to say no although the rate has hardly grown since the last
    decrease.
    """
    hardly: float = 1.05
    """Growth since the last decrease below which the store is taken to continue saying no."""
    period_keys: float = 300_000.0
    """From a decrease until the rate is back where it was: the time of so many keys, within these bounds.

    It is what bounds the share of throttled requests: one or two for each 300 of full size.
    """
    shortest_period: float = 30.0
    longest_period: float = 180.0
    doubling: float = 2.0
    """The rate never doubles in less than this."""
    growth: float = 0.15
    """Share of the old rate that is gained in the second period."""
    floor: float = 100.0
    """The rate never falls below this; a bucket that takes nothing is its intents' matter."""
    slice: float = 0.15
    """A lease is for at least this long, so that a fast bucket costs seven calls a second and task."""
    rest: float = 0.15
    """After a decrease nothing is handed out for this long: the store's own bucket has run dry."""
    credit: float = 0.1
    """Time that nobody used is kept for this long, and lost after."""
    idle: float = 600.0
    """A bucket that nobody used for this long is forgotten."""
    longest_pause: float = 300.0
    """More than this is not believed of a Retry-After."""
    furthest: float = 30.0
    """Time is handed out no further ahead than this, unless the clock was set back."""


RULE = Rule()
_HIGHEST = 1e9


@dataclass(frozen=True, slots=True)
class State:
    """One bucket's budget; times are instants of the clock that `now` is read from.

    `low` is the rate right after the last decrease and `peak` the one before it; what is sent from
    `holds_from` on is sent at the lower rate. `since` is where the curve starts: the decrease, moved on by
    the time in which nobody used the budget. All time before `free_at` is handed out; nothing may be sent
    before `not_before`. `ceiling` bounds the rate.
    """

    low: float
    peak: float
    since: float
    holds_from: float
    free_at: float
    not_before: float = 0.0
    ceiling: float = math.inf


@dataclass(frozen=True, slots=True)
class Lease:
    """`keys` may be sent from `starts_in` seconds on, evenly at `rate`."""

    starts_in: float
    keys: float
    rate: float


@dataclass(frozen=True, slots=True)
class Wait:
    """The next time is taken: ask again after `seconds` and a random part of `spread`."""

    seconds: float
    spread: float
    rate: float


@dataclass(frozen=True, slots=True)
class Throttle:
    """A throttled reply to a request that was sent `ago` seconds before it came.

    `estimate` is the rate that the store was seen to take, for a bucket that was never throttled before.
    `known` is the rate of a budget that existed when it was last asked, for one that was lost since; else 0.
    """

    ago: float
    estimate: float
    retry_after: float = 0.0
    known: float = 0.0


def rate(state: State, now: float, rule: Rule = RULE) -> float:
    """Return the rate in force, keys per second."""
    elapsed = now - _since(state, now, rule)
    period = max(rule.shortest_period, min(rule.longest_period, rule.period_keys / state.peak))
    x = elapsed / period - 1
    scale = state.peak - state.low if x < 0 else rule.growth * state.peak
    curve = state.peak + scale * x * x * x
    doubled = state.low * math.pow(2.0, min(elapsed / rule.doubling, 60.0))
    return max(rule.floor, min(curve, doubled, state.ceiling, _HIGHEST))


def lease(state: State, now: float, keys: int, rule: Rule = RULE) -> tuple[State, Lease | Wait]:
    """Reserve the time for `keys` or more, unless so much is handed out that others may still come first."""
    state = sane(state, now, rule)
    current = rate(state, now, rule)
    begin = max(state.free_at, state.not_before, now - rule.credit)
    ahead = max(rule.slice, keys / current)
    if begin - now > ahead:
        return state, Wait(begin - now - ahead, ahead, current)
    granted = max(float(keys), current * rule.slice)
    after = replace(state, since=_since(state, now, rule), free_at=begin + granted / current)
    return after, Lease(begin - now, granted, current)


def throttled(state: State | None, now: float, reply: Throttle, rule: Rule = RULE) -> State:
    """Return the state after a throttled reply.

    A request that was sent before the last decrease held, on time handed out before it, says nothing about
    the rate since.
    """
    if state is not None:
        state = sane(state, now, rule)
    elif reply.known:
        state = seeded(reply.known, now, rule)
    if state is None:
        low = max(rule.floor, reply.estimate * rule.hard)
        state = State(low, _HIGHEST, now, now, now)  # a guess: it doubles until the store says no again
    elif now - reply.ago >= state.holds_from:
        current = rate(state, now, rule)
        again = current < state.low * rule.hardly
        low = max(rule.floor, current * (rule.hard if again else rule.gentle))
        peak = max(low, state.peak if again else current)
        holds_from = max(now, state.free_at)
        state = replace(
            state, low=low, peak=peak, since=now, holds_from=holds_from, free_at=holds_from + rule.rest
        )
    pause = min(max(reply.retry_after, 0.0), rule.longest_pause)
    return replace(state, not_before=max(state.not_before, now + pause)) if pause else state


def sane(state: State, now: float, rule: Rule = RULE) -> State:
    """Return the state as it can be: after its clock was set back, instants lie too far ahead of it."""
    free_at = min(state.free_at, now + rule.furthest)
    return replace(
        state,
        since=min(state.since, now),
        holds_from=min(state.holds_from, free_at),
        free_at=free_at,
        not_before=min(state.not_before, now + rule.longest_pause),
    )


def _since(state: State, now: float, rule: Rule) -> float:
    # Time in which nobody wanted the budget proves nothing about the limit: the curve stood still in it.
    unused = max(0.0, now - rule.credit - state.free_at)
    return min(now, state.since + unused)


def seeded(rate_before: float, now: float, rule: Rule = RULE) -> State:
    """Return the state of a bucket whose shared one was lost, from the rate that a task still knows."""
    low = max(rule.floor, rate_before)
    return State(low, low, now, 0.0, now)
