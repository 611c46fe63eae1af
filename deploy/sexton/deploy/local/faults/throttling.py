"""A store that takes so many writes per second and prefix: token buckets, with the instant passed in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sexton.deploy.local.faults.rules import Throttle

__all__ = ["Budgets", "prefix_of", "take", "take_each"]


@dataclass(slots=True)
class Budgets:
    """Tokens left by bucket and prefix, and the instant (seconds) at which they were counted."""

    tokens: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)


def prefix_of(key: str, parts: int) -> str:
    """Return a key's beginning up to its `parts`-th slash, or its last one if it has fewer."""
    end = 0
    for _ in range(parts):
        slash = key.find("/", end)
        if slash < 0:
            break
        end = slash + 1
    return key[:end]


def take(throttle: Throttle, budgets: Budgets, bucket: str, keys: Iterable[str], now: float) -> bool:
    """Count the writes of one request if every prefix has room for its own; else count none.

    A request larger than the burst passes on a full budget and leaves it in debt: else it never would.
    """
    wanted = Counter(prefix_of(key, throttle.prefix_parts) for key in keys)
    left = {prefix: _left(throttle, budgets, bucket, prefix, now) for prefix in wanted}
    if any(left[prefix] < min(count, throttle.burst) for prefix, count in wanted.items()):
        return False
    for prefix, count in wanted.items():
        budgets.tokens[bucket, prefix] = (left[prefix] - count, now)
    return True


def take_each(
    throttle: Throttle, budgets: Budgets, bucket: str, keys: Sequence[str], now: float
) -> list[int]:
    """Count the writes for which there is room, in order; return the indexes of the others."""
    refused = []
    for index, key in enumerate(keys):
        prefix = prefix_of(key, throttle.prefix_parts)
        left = _left(throttle, budgets, bucket, prefix, now)
        if left < 1:
            refused.append(index)
        else:
            budgets.tokens[bucket, prefix] = (left - 1, now)
    return refused


def _left(throttle: Throttle, budgets: Budgets, bucket: str, prefix: str, now: float) -> float:
    tokens, at = budgets.tokens.get((bucket, prefix), (throttle.burst, now))
    return min(throttle.burst, tokens + (now - at) * throttle.writes_per_s)
