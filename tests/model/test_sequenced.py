"""Boundary files hold in every state of small worlds, and each safeguard of theirs is needed in one."""

from __future__ import annotations

import re
from functools import cache

import pytest
from tests.model.search import Found
from tests.model.sequenced_properties import (
    ACKED,
    ASKED,
    BELOW,
    EXPIRED,
    FLOOR,
    HELD,
    HONEST,
    LOWER,
    NEWEST,
    OPEN,
    PROPERTIES,
    READABLE,
    STALE,
    STOPS,
    Property,
    explore,
)
from tests.model.sequenced_rules import Told, boundary_of
from tests.model.sequenced_world import (
    CANCELLED,
    DELETED,
    REFUSED,
    SAFEGUARDS,
    TRUSTED,
    Budget,
    Intent,
    SequencedSetup,
    SequencedWorld,
)
from tests.safeguards.lines import load, place_of
from tests.support.pages import ROOT

STRAY_INTENTS = (Intent((1,), 1, not_before=0), Intent((1, 2), 1), Intent((2,), 2))
RACE = SequencedSetup((1, 2), Budget(crashes=1))
RACE_OF_TASKS = SequencedSetup((1, 2), Budget(crashes=1), tasks=2)
UNKNOWN = SequencedSetup((1, 2), Budget(unknown=1))
TASKS = SequencedSetup((1,), Budget(plans=2, crashes=1), tasks=2, files=2)
COLLECTORS = SequencedSetup((1, 2), Budget(plans=2), collectors=2)
STRAYS = SequencedSetup((1, 2), Budget(plans=0, ticks=1), intents=STRAY_INTENTS)
CHECKPOINTS = SequencedSetup((1,), Budget(plans=2, ticks=1, checkpoints=1), files=2, lasts=0)
SET_BACK = SequencedSetup((2,), Budget(plans=2, set_backs=1), texts=(None, "12x", "0"))
STALLED_AND_SET_BACK = SequencedSetup((1, 2), Budget(set_backs=1))

WORLDS = {
    "a stalled writer, the reaper crashes": RACE,
    "a stalled writer, two tasks, one crashes": RACE_OF_TASKS,
    "a stalled writer, an answer lost": UNKNOWN,
    "two tasks advance at once, one crashes": TASKS,
    "two collectors, a stalled writer": COLLECTORS,
    "stray intents": STRAYS,
    "a checkpoint, a plan that expires": CHECKPOINTS,
    "the boundary is set back or spoiled": SET_BACK,
}
NEEDED = [
    ("advance-first", STALE, RACE),
    ("check-after", STALE, RACE),
    ("inclusive", STALE, RACE),
    ("newest-kept", NEWEST, STRAYS),
    ("keys-named", STALE, STRAYS),
    ("never-lower", LOWER, TASKS),
    ("judged-last", ASKED, STRAYS),
    ("floor", FLOOR, SET_BACK),
    ("readable", READABLE, SET_BACK),
    ("unknown-put", STALE, UNKNOWN),
    ("nonce", STALE, UNKNOWN),
    ("read-back", HONEST, UNKNOWN),
    ("vanished", STOPS, SET_BACK),
    ("lowered", STOPS, SET_BACK),
    ("checkpoint-held", HELD, CHECKPOINTS),
    ("plan-expires", EXPIRED, CHECKPOINTS),
]

PRODUCT = {
    "advance-first": "nothing is deleted before its boundary is durable",
    "newest-kept": "no boundary is raised to the newest file or above",
    "keys-named": "a file above the guard's id is refused",
    "never-lower": "a boundary is written on the condition that it is as it was read",
    "judged-last": "what a veto stops raises no boundary",
    "floor": "a boundary below the floor is an alarm",
    "check-after": "a create at or below the boundary is no success",
    "inclusive": "the boundary itself is dead",
    "readable": "only digits are read as a boundary",
    "unknown-put": "a PUT whose fate is unknown is no success",
    "nonce": "the nonce tells one's own file from another's with the same bytes",
    "read-back": "a 412 is not believed before the nonce was compared",
    "vanished": "a boundary that was seen and is gone stops the writer",
    "lowered": "a boundary that is lower than it was stops the writer",
    "plan-expires": "what has expired stops",
}
"""The line of the list of safeguards that holds each against the product."""
RESTATED = {"checkpoint-held"}
"""What the model decides by itself: the collector's plan."""


@cache
def searched(setup: SequencedSetup) -> Found:
    """Search a world with every safeguard on, once for all tests."""
    return explore(setup)


@pytest.mark.parametrize("setup", WORLDS.values(), ids=WORLDS)
def test_no_state_breaks_a_boundary_while_every_safeguard_is_on(setup: SequencedSetup) -> None:
    """Whoever stalls, crashes, races or gets no answer: each property holds in every state."""
    found = searched(setup)
    print(found)
    assert found.broken is None, str(found)


@pytest.mark.parametrize(("safeguard", "broken", "setup"), NEEDED, ids=[case[0] for case in NEEDED])
def test_without_a_safeguard_a_boundary_breaks(safeguard: str, broken: str, setup: SequencedSetup) -> None:
    """Each safeguard is needed: with it alone switched off the search finds the property that it guards."""
    found = explore(setup, safeguard, {broken: PROPERTIES[broken]})
    print(f"without {safeguard} ({SAFEGUARDS[safeguard]}):\n{found}")
    assert found.broken == broken, str(found)


@pytest.mark.parametrize(
    ("safeguard", "broken", "setup"),
    [("newest-kept", BELOW, STRAYS), ("newest-kept", OPEN, STRAYS), ("never-lower", ACKED, TASKS)],
)
def test_what_else_breaks_with_a_boundary(safeguard: str, broken: str, setup: SequencedSetup) -> None:
    """One intent that names the newest file locks every writer out; a boundary that sinks belies receipts."""
    found = explore(setup, safeguard, {broken: PROPERTIES[broken]})
    assert found.broken == broken, str(found)


def test_what_is_trusted_of_the_boundary_has_to_hold() -> None:
    """A boundary that somebody sets back protects nobody from a writer that was stalled before."""
    found = explore(STALLED_AND_SET_BACK, properties={STALE: PROPERTIES[STALE]})
    print(f"unless {TRUSTED['boundary-kept']}:\n{found}")
    assert found.broken == STALE, str(found)


def test_every_safeguard_of_boundaries_has_a_case_and_a_row_on_the_page() -> None:
    """No safeguard of the model goes without a search that shows what it is for."""
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    _, _, after = page.partition("### Boundary files\n")
    section, _, _ = after.partition("\n## ")

    assert [case[0] for case in NEEDED] == list(SAFEGUARDS)
    assert dict(re.findall(r"^\| `([a-z-]+)`: ([^|]*) \|", section, re.MULTILINE)) == SAFEGUARDS
    assert all(f"`{name}`" in section for name in TRUSTED)


def test_q_6_safeguards_of_boundaries_are_lines_of_the_product() -> None:
    """Q-6: the list of safeguards has the product's own line for each of these, which stands there once."""
    lines = {line.name: line for line in load()}

    assert {*PRODUCT, *RESTATED} == SAFEGUARDS.keys()
    for line in PRODUCT.values():
        assert place_of(lines[line])


def _told(world: SequencedWorld, name: str) -> Told | None:
    return next(each.told for each in world.writers if each.name == name)


def _published_race(world: SequencedWorld) -> bool:
    """B-1: A's create of a deleted id has landed, and A is told conflict; B's creates have succeeded."""
    landed = (2, "a") in world.truth.again
    return landed and _told(world, "a") is Told.CONFLICT and _told(world, "b") is Told.SUCCESS


def _higher_stands(world: SequencedWorld) -> bool:
    """B-3: two intents with different ids are done, and the boundary is the higher one."""
    ids = [each.id for each in world.intents]
    done = world.outcomes == (DELETED, DELETED)
    return done and ids[0] != ids[1] and world.stands == max(ids)


def _held_survives(world: SequencedWorld) -> bool:
    """B-5: a file that a checkpoint holds stands behind the boundary, while others of its run are gone."""
    stands = any(id < (world.stands or 0) for id in world.held & set(world.listed))
    return stands and DELETED in world.outcomes


def _held_too_late(world: SequencedWorld) -> bool:
    """B-5: a checkpoint is made of a file that a plan has named already, and the file is gone."""
    return bool(world.held & world.truth.deleted) and DELETED in world.outcomes


def _expired(world: SequencedWorld) -> bool:
    """B-5: the plan has expired, and the file that a checkpoint holds now stands."""
    named = {id for each in world.intents for id in each.ids}
    all_cancelled = set(world.outcomes) == {CANCELLED}
    return all_cancelled and world.budget.plans == 0 and bool(world.held & named & set(world.listed))


def _converges(world: SequencedWorld) -> bool:
    """B-8: a task has crashed, and the intent is done nevertheless."""
    return world.budget.crashes == 0 and set(world.outcomes) == {DELETED}


def _waits(world: SequencedWorld) -> bool:
    """B-11: what its other guard has held back is deleted once that holds; a stray one is refused."""
    return world.outcomes[:2] == (DELETED, REFUSED)


def _opens_after(world: SequencedWorld) -> bool:
    """A writer that opens after a collection creates what it wants."""
    return DELETED in world.outcomes and all(each.told is Told.SUCCESS for each in world.writers)


ENDS = {
    "b_1_conflict": (RACE, _published_race),
    "b_3_the_higher_one": (TASKS, _higher_stands),
    "b_5_held": (CHECKPOINTS, _held_survives),
    "b_5_gone": (CHECKPOINTS, _held_too_late),
    "b_5_expired": (CHECKPOINTS, _expired),
    "b_8_converges": (RACE, _converges),
    "b_11_waits": (STRAYS, _waits),
    "opens_after_a_collection": (TASKS, _opens_after),
    "unknown": (UNKNOWN, lambda world: _told(world, "a") is Told.UNKNOWN),
    "vanished": (SET_BACK, lambda world: _told(world, "a") is Told.VANISHED),
    "lowered": (SET_BACK, lambda world: _told(world, "a") is Told.LOWERED),
    "unreadable": (SET_BACK, lambda world: _told(world, "a") is Told.UNREADABLE),
}


@pytest.mark.parametrize(("setup", "reached"), ENDS.values(), ids=ENDS)
def test_every_end_of_a_boundary_is_reached(setup: SequencedSetup, reached: Property) -> None:
    """B-1, B-3, B-5, B-8, B-11: no property holds only because a world never comes to its end."""
    found = explore(setup, properties={"no such end": lambda world: not reached(world)})
    assert found.broken == "no such end"


def test_the_worlds_of_boundaries_take_every_step() -> None:
    """B-3: no property holds only because a step is never taken, such as a race that is lost."""
    taken = {step for setup in WORLDS.values() for step in searched(setup).taken}
    assert taken == {
        *("open", "put", "put_refused", "put_unheard", "put_twice", "put_in_flight", "put_again", "land"),
        *("read_back", "read_nothing", "missing", "check", "list", "plan", "plan_nothing"),
        *("take", "read", "raise", "raise_unheard", "lose_race", "begin", "delete", "settle"),
        *("crash", "tick", "checkpoint", "set_back"),
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((None, 0), ("0", 0), ("24", 24), ("3\n", 3), (str(2**64 - 1), 2**64 - 1)),
        *(("", None), ("12x", None), ("-1", None), ("9" * 30, None), (str(2**64), None), ("٣", None)),
    ],
)
def test_b_4_a_boundary_is_ascii_and_fits_64_bits(text: str | None, value: int | None) -> None:
    """B-4: nothing but digits, with a newline or without, is a boundary; none is zero."""
    assert boundary_of(text) == value
