"""What has to hold in every state of an intent of two phases, and the search for one in which it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.model.phase_steps import AFTER_END, TOO_EARLY, VETOED, steps
from tests.model.phase_world import CANCELLED, PhaseRules, PhaseSetup, PhaseWorld
from tests.model.search import Found, search

Property = Callable[[PhaseWorld], bool]
PAUSED = "no second phase before the pause has passed by both clocks"
STOPPED = "nothing of a phase after its veto held when it was asked about"
ENDED = "nothing after the outcome"
NAMED = "a cancelled intent's outcome names what went"
ONCE = "only a replay lengthens a pause"


def explore(
    setup: PhaseSetup, off: str | None = None, properties: Mapping[str, Property] | None = None
) -> Found:
    """Search all states; `off` switches one safeguard off."""
    rules = PhaseRules(setup, off)
    with rules.in_force():
        return search(
            setup.start(), lambda world: steps(world, rules), PROPERTIES if properties is None else properties
        )


def _names_what_went(world: PhaseWorld) -> bool:
    if world.outcome is None:
        return True
    stands = zip((world.a, world.b), world.outcome, strict=True)
    return all(there or word != CANCELLED for there, word in stands)


def _lengthened_by_replays_alone(world: PhaseWorld) -> bool:
    fixed = world.truth.fixed
    return world.truth.crashed or all(each.resumes_at in (None, fixed) for each in world.records)


PROPERTIES: dict[str, Property] = {
    PAUSED: lambda world: TOO_EARLY not in world.truth.wrong,
    STOPPED: lambda world: VETOED not in world.truth.wrong,
    ENDED: lambda world: AFTER_END not in world.truth.wrong,
    NAMED: _names_what_went,
    ONCE: _lengthened_by_replays_alone,
}
