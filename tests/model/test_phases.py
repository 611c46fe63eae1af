"""Pauses and vetoes hold in every state of small worlds, and each safeguard of theirs is needed in one."""

from __future__ import annotations

import re
from functools import cache

import pytest
from tests.model.phase_properties import ENDED, NAMED, ONCE, PAUSED, PROPERTIES, STOPPED, explore
from tests.model.phase_world import SAFEGUARDS, Budget, PhaseSetup
from tests.model.search import Found
from tests.safeguards.lines import load, place_of
from tests.support.pages import ROOT

PAUSE = PhaseSetup(Budget(reaper_ticks=3, store_ticks=3, crashes=1, losses=1), paused=True)
SKEWED = PhaseSetup(Budget(reaper_ticks=4, store_ticks=2, crashes=1), paused=True, ahead=2)
BEHIND = PhaseSetup(Budget(reaper_ticks=4, store_ticks=4, copies=2), paused=True, ahead=-2)
VETO = PhaseSetup(Budget(turns=3, unknown=1, crashes=1, losses=1), veto=(0, 1))
SECOND = PhaseSetup(Budget(turns=3, crashes=2), veto=(1,))
BOTH = PhaseSetup(Budget(2, 2, turns=2, unknown=1, crashes=1), paused=True, veto=(1,))

WORLDS = {
    "a pause, replies lost": PAUSE,
    "a pause, the store's clock is ahead": SKEWED,
    "a pause, the store's clock is behind": BEHIND,
    "a veto of both phases": VETO,
    "a veto of the second phase, two crashes": SECOND,
    "a pause and a veto of the second phase": BOTH,
}
NEEDED = [
    ("both-clocks", PAUSED, PAUSE),
    ("acknowledged-first", PAUSED, PAUSE),
    ("clock-ahead", PAUSED, SKEWED),
    ("pause-kept", ONCE, BEHIND),
    ("asked-each-phase", STOPPED, VETO),
    ("unknown-waits", STOPPED, VETO),
    ("veto-stops", STOPPED, VETO),
    ("cancelled-seen", NAMED, VETO),
    ("outcome-final", ENDED, SECOND),
    ("last-copy", ENDED, VETO),
]

PRODUCT = {
    "both-clocks": "an instant has passed by the bucket's clock, too",
    "clock-ahead": "a pause ends by the clock that is ahead",
    "pause-kept": "a pause waits in the copy",
    "acknowledged-first": "no later phase starts before an earlier one is gone",
    "asked-each-phase": "a veto is asked about again before the next phase",
    "unknown-waits": "a veto's unknown is not yet",
    "veto-stops": "what vanished stops",
    "cancelled-seen": "what may have gone is seen before it is cancelled",
    "outcome-final": "a replay after a crash looks for outcomes",
    "last-copy": "of two copies one is left alone",
}
"""The line of the list of safeguards that holds each against the product."""


@cache
def searched(setup: PhaseSetup) -> Found:
    """Search a world with every safeguard on, once for all tests."""
    return explore(setup)


@pytest.mark.parametrize("setup", WORLDS.values(), ids=WORLDS)
def test_no_state_breaks_a_pause_or_a_veto_while_every_safeguard_is_on(setup: PhaseSetup) -> None:
    """Whatever clocks show, is lost, crashes, vanishes or comes back: each property holds in every state."""
    found = searched(setup)
    print(found)
    assert found.broken is None, str(found)


@pytest.mark.parametrize(("safeguard", "broken", "setup"), NEEDED, ids=[case[0] for case in NEEDED])
def test_without_a_safeguard_a_pause_or_a_veto_breaks(safeguard: str, broken: str, setup: PhaseSetup) -> None:
    """Each safeguard is needed: with it alone switched off the search finds the property that it guards."""
    found = explore(setup, safeguard, {broken: PROPERTIES[broken]})
    print(f"without {safeguard} ({SAFEGUARDS[safeguard]}):\n{found}")
    assert found.broken == broken, str(found)


def test_every_safeguard_of_phases_has_a_case_and_a_row_on_the_page() -> None:
    """No safeguard of the model goes without a search that shows what it is for."""
    _, _, after = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8").partition("### Phases")
    page, _, _ = after.partition("### Transactions")

    assert [case[0] for case in NEEDED] == list(SAFEGUARDS)
    assert dict(re.findall(r"^\| `([a-z-]+)`: ([^|]*) \|", page, re.MULTILINE)) == SAFEGUARDS


def test_q_6_safeguards_of_phases_are_lines_of_the_product() -> None:
    """Q-6: the list of safeguards has the product's own line for each of these, which stands there once."""
    lines = {line.name: line for line in load()}

    assert PRODUCT.keys() == SAFEGUARDS.keys()
    for line in PRODUCT.values():
        assert place_of(lines[line])


ENDS: dict[str, tuple[PhaseSetup, tuple[str, str]]] = {
    "both phases go": (PAUSE, ("deleted", "deleted")),
    "stopped before the first": (VETO, ("cancelled", "cancelled")),
    "stopped between": (BOTH, ("deleted", "cancelled")),
    "stopped, and the first had gone unheard": (VETO, ("absent", "cancelled")),
}


@pytest.mark.parametrize(("setup", "words"), ENDS.values(), ids=ENDS)
def test_every_end_is_reached(setup: PhaseSetup, words: tuple[str, str]) -> None:
    """No property holds only because a world never comes to its end."""
    found = explore(setup, properties={"no such end": lambda world: world.outcome != words})
    assert found.broken == "no such end"


def test_the_worlds_of_phases_take_every_step() -> None:
    """No property holds only because a step that could break it is never taken."""
    taken = {step for setup in WORLDS.values() for step in searched(setup).taken}
    assert taken == {
        *("begin", "pass_over", "ask", "look_at_the_clock", "stop", "wait", "let", "send", "lose_reply"),
        *("acknowledge", "defer", "settle", "commit", "tick_reaper", "tick_store", "vanish", "come_back"),
        "crash",
    }
