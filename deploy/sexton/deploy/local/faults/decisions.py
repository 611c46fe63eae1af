"""Which rules play on a request. The rules' memory and the instant are passed in; nothing is read or sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from sexton.deploy.local.faults.log import Played
from sexton.deploy.local.faults.request import S3Request
from sexton.deploy.local.faults.rules import (
    Cut,
    Empty,
    Error,
    KeyFailure,
    KeyPlay,
    LeftOut,
    Renamed,
    Rule,
    Throttle,
    Torn,
    When,
    WholePlay,
    status_of,
)
from sexton.deploy.local.faults.throttling import Budgets, take, take_each
from sexton.schemas.text import counted

__all__ = ["Plan", "Presence", "carried_over", "decide"]


@dataclass(slots=True)
class Presence:
    """What one rule remembers: matching requests, times that each of its keys came, writes of late."""

    requests: int = 0
    keys: dict[str, int] = field(default_factory=dict)
    budgets: Budgets = field(default_factory=Budgets)


@dataclass(slots=True)
class Plan:
    """What is played on one request.

    Waits are seconds. `keys` holds the plays on single keys by the index of their entry; those `withheld`
    never reach the store. `played` tells it for the log.
    """

    wait_before_s: float = 0.0
    wait_after_s: float = 0.0
    answer: WholePlay | None = None
    when: When = When.BEFORE
    keys: dict[int, KeyPlay] = field(default_factory=dict)
    withheld: set[int] = field(default_factory=set)
    played: list[Played] = field(default_factory=list)


Remembering = Sequence[tuple[Rule, Presence]]


def decide(rules: Remembering, request: S3Request, now: float) -> Plan:
    """Return what is played: rules in their order, until one gives the whole answer.

    Waits add up, and of several rules about one key the first counts. `now` is in seconds of any clock. Only
    rules that are reached count what they see.
    """
    plan = Plan()
    for rule, seen in rules:
        if not rule.matches(request):
            continue
        keys = request.keys
        chosen = [index for index, key in enumerate(keys) if rule.matches_key(key)]
        if rule.chooses_keys and not chosen:
            continue
        if isinstance(rule.play, Throttle):
            _throttle(rule, rule.play, seen, request, [i for i in chosen if i not in plan.keys], now, plan)
        elif isinstance(rule.play, KeyFailure | LeftOut | Renamed):
            _play_on_keys(rule, rule.play, seen, request, [i for i in chosen if i not in plan.keys], plan)
        else:
            _play_on_request(rule, rule.play, seen, plan)
        if plan.answer is not None:
            break
    return plan


def carried_over(old: Remembering, new: Sequence[Rule]) -> list[tuple[Rule, Presence]]:
    """Return new rules with the memory of those that were there before, verbatim."""
    left = list(old)
    carried = []
    for rule in new:
        at = next((i for i, (known, _) in enumerate(left) if known == rule), None)
        carried.append((rule, Presence() if at is None else left.pop(at)[1]))
    return carried


def _play_on_request(rule: Rule, play: WholePlay | None, seen: Presence, plan: Plan) -> None:
    number = seen.requests
    seen.requests += 1
    drawn = rule.probability >= 1 or _draw(rule.seed, f"{number}") < rule.probability
    if not _due(rule, number) or not drawn:
        return
    _wait(rule, number, plan)
    if play is not None:
        plan.answer, plan.when = play, rule.when
        plan.played.append(Played(rule.name, f"{described(play)}{_described(rule.when)}"))


def _play_on_keys(
    rule: Rule, play: KeyPlay, seen: Presence, request: S3Request, chosen: list[int], plan: Plan
) -> None:
    keys, hit = request.keys, []
    for index in chosen:
        key = keys[index]
        if rule.probability < 1 and _draw(rule.seed, key) >= rule.probability:
            continue
        if rule.times is not None or rule.after:
            number = seen.keys.get(key, 0)
            seen.keys[key] = number + 1
            if not _due(rule, number):
                continue
        hit.append(index)
    if not hit:
        return
    _wait(rule, seen.requests, plan)
    seen.requests += 1
    _fail_keys(rule.name, play, rule.when, request, hit, plan)


def _throttle(
    rule: Rule, play: Throttle, seen: Presence, request: S3Request, chosen: list[int], now: float, plan: Plan
) -> None:
    keys = [request.keys[index] for index in chosen]
    if play.per_key and request.entries:
        refused = take_each(play, seen.budgets, request.bucket, keys, now)
        if refused:
            failure = KeyFailure(play.error.code, play.error.message)
            _fail_keys(rule.name, failure, When.BEFORE, request, [chosen[i] for i in refused], plan)
    elif not take(play, seen.budgets, request.bucket, keys, now):
        plan.answer, plan.when = play.error, When.BEFORE
        plan.played.append(Played(rule.name, f"throttle: {described(play.error)}"))


def _fail_keys(name: str, play: KeyPlay, when: When, request: S3Request, hit: list[int], plan: Plan) -> None:
    keys = tuple(request.keys[index] for index in hit)
    plan.played.append(Played(name, f"{described(play)}{_described(when)}", keys))
    if not request.entries:
        # A call about one key has no other answer than a whole one.
        if isinstance(play, KeyFailure):
            plan.answer, plan.when = Error(play.code, status_of(play.code), play.message), when
        return
    plan.keys.update((index, play) for index in hit)
    if when is When.BEFORE:
        plan.withheld.update(hit)


def _due(rule: Rule, number: int) -> bool:
    return number >= rule.after and (rule.times is None or number < rule.after + rule.times)


def _wait(rule: Rule, number: int, plan: Plan) -> None:
    if not rule.latency_ms and not rule.jitter_ms:
        return
    milliseconds = rule.latency_ms + rule.jitter_ms * _draw(rule.seed, f"wait {number}")
    if rule.when is When.BEFORE:
        plan.wait_before_s += milliseconds / 1000
    else:
        plan.wait_after_s += milliseconds / 1000
    plan.played.append(Played(rule.name, f"latency {milliseconds:.0f} ms{_described(rule.when)}"))


def _draw(seed: int, what: str) -> float:
    """Return a number in [0, 1) that depends on nothing else: not on the order in which requests come."""
    digest = blake2b(what.encode("utf-8", "surrogatepass"), key=f"{seed}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _described(when: When) -> str:
    return "" if when is When.BEFORE else ", after the store has acted"


_NAMES: Mapping[type, str] = {Empty: "empty 200", Cut: "cut", LeftOut: "left out"}


def described(play: WholePlay | KeyPlay) -> str:
    """Return a play in words, for the log."""
    if isinstance(play, Error):
        return f"error {play.status} {play.code}"
    if isinstance(play, KeyFailure):
        return f"key error {play.code}"
    if isinstance(play, Torn):
        return f"torn after {counted(play.keep, 'byte')}"
    return f"renamed to {play.key}" if isinstance(play, Renamed) else _NAMES[type(play)]
