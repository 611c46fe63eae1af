"""Breadth-first search through every state that a small world can reach, for one that breaks a property."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

W = TypeVar("W", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Found:
    """What a search has found: a property that breaks with a shortest trace to it, or nothing."""

    states: int
    broken: str | None = None
    trace: tuple[str, ...] = ()
    taken: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        if self.broken is None:
            return f"{self.states} states, no violation"
        lines = [f"{number:3} {step}" for number, step in enumerate(self.trace, 1)]
        return "\n".join([f"{self.broken}, broken after {len(lines)} steps:", *lines])


def search(
    first: W,
    following: Callable[[W], Iterable[tuple[str, W]]],
    properties: Mapping[str, Callable[[W], bool]],
) -> Found:
    """Search all states of any world from the first one on, breadth first."""
    came: dict[W, tuple[W, str] | None] = {first: None}
    ahead = deque([first])
    taken: Counter[str] = Counter()
    while ahead:
        world = ahead.popleft()
        for name, holds in properties.items():
            if not holds(world):
                return Found(len(came), name, _trace(came, world), taken)
        for step, after in following(world):
            taken[step.split()[0]] += 1
            if after not in came:
                came[after] = (world, step)
                ahead.append(after)
    return Found(len(came), taken=taken)


def _trace(came: Mapping[W, tuple[W, str] | None], world: W) -> tuple[str, ...]:
    trace: list[str] = []
    while (link := came[world]) is not None:
        world, step = link
        trace.append(step)
    return tuple(reversed(trace))
