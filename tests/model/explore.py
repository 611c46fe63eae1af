"""What has to hold in every state of the protocol, and the search for one in which it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tests.model.search import Found, search
from tests.model.steps import read_index, steps
from tests.model.world import TENANT, Rules, Setup, World

I1 = "I1 nothing buried alive"
I3 = "I3 no number twice"
ONE_ANSWER = "one answer for one request id"
I2 = "I2 nothing lost"
STABLE = "a verdict once given stays"
Property = Callable[[World, Rules], bool]


def explore(setup: Setup, off: str | None = None, properties: Mapping[str, Property] | None = None) -> Found:
    """Search all states; `off` switches one safeguard off, or one thing that is trusted."""
    rules = Rules(off)
    asked = PROPERTIES if properties is None else properties
    holds = {name: partial(_holds, each, rules) for name, each in asked.items()}
    with rules.in_force():
        return search(setup.start(rules), lambda world: steps(world, setup, rules), holds)


def _holds(holds: Property, rules: Rules, world: World) -> bool:
    return holds(world, rules)


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
