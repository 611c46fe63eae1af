"""Breadth-first search through every state that a small world can reach, for one that breaks a property."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.model.steps import read_index, steps
from tests.model.world import TENANT, Rules, Setup, World

I1 = "I1 nothing buried alive"
I3 = "I3 no number twice"
ONE_ANSWER = "one answer for one request id"
I2 = "I2 nothing lost"
STABLE = "a verdict once given stays"
Property = Callable[[World, Rules], bool]


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


def explore(setup: Setup, off: str | None = None, properties: Mapping[str, Property] | None = None) -> Found:
    """Search all states; `off` switches one safeguard off, or one thing that is trusted."""
    rules = Rules(off)
    with rules.in_force():
        return _search(setup, rules, PROPERTIES if properties is None else properties)


def _search(setup: Setup, rules: Rules, properties: Mapping[str, Property]) -> Found:
    first = setup.start(rules)
    came: dict[World, tuple[World, str] | None] = {first: None}
    ahead = deque([first])
    taken: Counter[str] = Counter()
    while ahead:
        world = ahead.popleft()
        for name, holds in properties.items():
            if not holds(world, rules):
                return Found(len(came), name, _trace(came, world), taken)
        for step, after in steps(world, setup, rules):
            taken[step.split()[0]] += 1
            if after not in came:
                came[after] = (world, step)
                ahead.append(after)
    return Found(len(came), taken=taken)


def _trace(came: dict[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    trace: list[str] = []
    while (link := came[world]) is not None:
        world, step = link
        trace.append(step)
    return tuple(reversed(trace))


def _number_once(world: World, rules: Rules) -> bool:
    numbers = [generation for _, generation in world.answers]
    return len(set(numbers)) == len(numbers)


def _one_answer(world: World, rules: Rules) -> bool:
    requests = [request for request, _ in world.answers]
    return len(set(requests)) == len(requests)


def _nothing_buried_alive(world: World, rules: Rules) -> bool:
    """The newest generation's index is what its holder read or wrote; before that, what it would read."""
    if not world.deleted:
        return True
    newest = rules.fold(world.log).newest(TENANT) or 0
    for handle in world.handles:
        if handle.generation == newest and handle.names_x is not None:
            return not handle.names_x
    return not read_index(world, newest)


def _verdicts_stay(world: World, rules: Rules) -> bool:
    """Whoever judges the same record now, behind a barrier of his own, decides the same."""
    return all(
        rules.passes(world.log, seen.offset, seen.generation) == seen.passed for seen in world.verdicts
    )


def _nothing_lost(world: World, rules: Rules) -> bool:
    """What is committed is not read again, so it has its outcome."""
    return world.reaper.committed <= world.reaper.settled


PROPERTIES: dict[str, Property] = {
    I3: _number_once,
    ONE_ANSWER: _one_answer,
    I1: _nothing_buried_alive,
    I2: _nothing_lost,
    STABLE: _verdicts_stay,
}
