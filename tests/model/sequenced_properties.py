"""What has to hold in every state of sequenced metadata, and the search for one in which it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tests.model import sequenced_steps
from tests.model.search import Found, search
from tests.model.sequenced_world import DELETED, SequencedRules, SequencedSetup, SequencedWorld, Steps

Property = Callable[[SequencedWorld], bool]
STALE = "who is told success has written the only file of its id, and before it was deleted"
NEWEST = "the newest file is never deleted"
LOWER = "the boundary never goes down"
BELOW = "the boundary is below the newest file's id"
HELD = "no file goes that a checkpoint held when the plan was made"
EXPIRED = "no plan is begun after it has expired"
OPEN = "no writer is locked out: one that opens now and is alone is told success"
ACKED = "what is acknowledged as deleted is behind the boundary"
ASKED = "the boundary is raised for who passes every other guard"
FLOOR = "no intent goes on below the boundary that its collector saw"
READABLE = "what is no number is not written over"
STOPS = "no writer goes on without the boundary that it has seen, or below it"
HONEST = "who is told conflict has lost its id"
RESTS_ON_KEPT = (STALE, OPEN, ACKED)
"""What nobody can promise once somebody else has set the boundary back."""


def explore(
    setup: SequencedSetup, off: str | None = None, properties: Mapping[str, Property] | None = None
) -> Found:
    """Search all states; `off` switches one safeguard off.

    Without `properties` all are asked; where the boundary is set back, those that can hold then.
    """
    rules = SequencedRules(setup, off)
    left_out = RESTS_ON_KEPT if setup.budget.set_backs else ()
    asked = {name: each for name, each in PROPERTIES.items() if name not in left_out}
    following = partial(_following, rules)
    with rules.in_force():
        return search(setup.start(), following, asked if properties is None else properties)


def _following(rules: SequencedRules, world: SequencedWorld) -> Steps:
    return sequenced_steps.steps(world, rules)


def _never(what: str) -> Property:
    return lambda world: what not in world.truth.wrong


def _below(world: SequencedWorld) -> bool:
    boundary = world.stands
    return boundary is None or boundary < world.newest


def _open(world: SequencedWorld) -> bool:
    boundary = world.stands
    return boundary is not None and boundary <= world.newest


def _acked(world: SequencedWorld) -> bool:
    boundary = world.stands or 0
    deleted = (each for each, word in zip(world.intents, world.outcomes, strict=True) if word == DELETED)
    return all(id <= boundary for each in deleted for id in (each.id, *each.ids))


PROPERTIES: dict[str, Property] = {
    STALE: _never(sequenced_steps.STALE),
    NEWEST: _never(sequenced_steps.NEWEST_GONE),
    LOWER: _never(sequenced_steps.LOWERED),
    BELOW: _below,
    HELD: _never(sequenced_steps.HELD_GONE),
    EXPIRED: _never(sequenced_steps.LATE),
    OPEN: _open,
    ACKED: _acked,
    ASKED: _never(sequenced_steps.UNASKED),
    FLOOR: _never(sequenced_steps.PAST_FLOOR),
    READABLE: _never(sequenced_steps.OVERWRITTEN),
    STOPS: _never(sequenced_steps.PAST_VANISHED),
    HONEST: _never(sequenced_steps.FALSE_CONFLICT),
}
