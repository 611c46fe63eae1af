"""The protocol holds in every state of small worlds, and each safeguard is needed in one of them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from tests.model.explore import I1, I2, I3, ONE_ANSWER, PROPERTIES, STABLE, explore
from tests.model.search import Found
from tests.model.world import (
    SAFEGUARDS,
    SWITCHES,
    TENANT,
    TRUSTED,
    Budget,
    Handle,
    Record,
    Rules,
    Setup,
    World,
)
from tests.safeguards.lines import load, place_of

B = Handle("b", "attach", "b1", tries=1)
C = Handle("c", "attach", "c1", tries=1)
AGAIN = Handle("a", "re_attach", "a2", tries=1)
RETRIES = B._replace(tries=2)

ISSUE = Setup((B, C), Budget(lies=1), store=False)
RETRY = Setup((RETRIES, C), Budget(losses=1), store=False)
SUCCESSOR = Setup((B,), Budget(barriers=2, losses=1, crashes=1))
SUCCESSOR_RETRIES = Setup((RETRIES,), Budget(barriers=1))
RESTART = Setup((AGAIN,), Budget(barriers=2, lies=1, losses=1, crashes=1))
TRANSACTION = Setup((B,), Budget(barriers=2, losses=1, crashes=1), transactional=True)
EARLY_CLAIM = Setup((B,), Budget(barriers=2, losses=1, crashes=1), records=(Record(2),))
RESTART_RACES_MOVE = Setup((B, AGAIN), Budget(lies=1), store=False)
RESTART_AND_MOVE = Setup((B, AGAIN), Budget(barriers=1), most_calls=1)
LATE_PUT = Setup((B,), Budget(barriers=1, unknown_puts=1))
LATE_PUT_AGAIN = Setup((AGAIN,), Budget(barriers=2, crashes=1, unknown_puts=2))
RECREATED = Setup((B,), Budget(barriers=2, recreations=1, crashes=1), records=(Record(1, "y"),))

WORLDS = {
    "two issuers, Redis lies": ISSUE,
    "a retry and a rival, answers lost": RETRY,
    "a successor": SUCCESSOR,
    "a successor that retries": SUCCESSOR_RETRIES,
    "a restart of the holder, Redis lies": RESTART,
    "a restart of the holder races a move, Redis lies": RESTART_RACES_MOVE,
    "a restart of the holder, a move, and a reaper": RESTART_AND_MOVE,
    "an emitter with transactions": TRANSACTION,
    "a claim before the issue": EARLY_CLAIM,
    "an index PUT that lands late, a move": LATE_PUT,
    "index PUTs that land late, a re-attach": LATE_PUT_AGAIN,
    "a topic created again": RECREATED,
}
NEEDED = [
    ("read-back", I3, ISSUE),
    ("compare-and-set", I3, ISSUE),
    ("request-id", ONE_ANSWER, RETRY),
    ("ends-before-append", I1, SUCCESSOR_RETRIES),
    ("last-stable-offsets", I1, TRANSACTION),
    ("barrier", I1, SUCCESSOR),
    ("barrier-ends", STABLE, SUCCESSOR),
    ("below-barrier", I1, SUCCESSOR),
    ("window-start", I1, EARLY_CLAIM),
    ("topic-ids", I1, RECREATED),
    ("index-first", I1, SUCCESSOR),
    ("put-outcome", I1, LATE_PUT_AGAIN),
    ("outcomes-before-commit", I2, SUCCESSOR),
]
ASSUMED = [
    ("log-kept", I3, ISSUE),
    ("topic-kept", I1, RECREATED),
    ("claims-answered", I1, SUCCESSOR),
]


@cache
def search(setup: Setup) -> Found:
    """Search a world with every safeguard on, once for all tests."""
    return explore(setup)


@pytest.mark.parametrize("setup", WORLDS.values(), ids=WORLDS)
@pytest.mark.slow
def test_no_state_breaks_a_property_while_every_safeguard_is_on(setup: Setup) -> None:
    """Whatever lags, lies, crashes or is lost: I1, I3, one answer and stability hold in every state."""
    found = search(setup)
    print(found)
    assert found.broken is None, str(found)


@pytest.mark.parametrize(("safeguard", "broken", "setup"), NEEDED, ids=[case[0] for case in NEEDED])
def test_without_a_safeguard_its_property_breaks(safeguard: str, broken: str, setup: Setup) -> None:
    """Each safeguard is needed: with it alone switched off the search finds the property that it guards."""
    found = explore(setup, safeguard, {broken: PROPERTIES[broken]})
    print(f"without {safeguard} ({SAFEGUARDS[safeguard]}):\n{found}")
    assert found.broken == broken, str(found)


@pytest.mark.parametrize(("trusted", "broken", "setup"), ASSUMED, ids=[case[0] for case in ASSUMED])
def test_what_is_trusted_has_to_hold(trusted: str, broken: str, setup: Setup) -> None:
    """What no rule can check for itself is named, and breaks a property when it does not hold."""
    found = explore(setup, trusted, {broken: PROPERTIES[broken]})
    print(f"unless {TRUSTED[trusted]}:\n{found}")
    assert found.broken == broken, str(found)


def test_every_safeguard_and_everything_trusted_has_a_case() -> None:
    """No safeguard of the model goes without a search that shows what it is for."""
    assert [case[0] for case in NEEDED] == list(SAFEGUARDS)
    assert [case[0] for case in ASSUMED] == list(TRUSTED)


def test_q_6_every_safeguard_is_a_line_of_the_product() -> None:
    """Q-6: the list of safeguards names the product's own line for each, which stands there once."""
    lines = {line.name: line for line in load()}

    for name, what in SAFEGUARDS.items():
        assert place_of(lines[f"{name}: {what}"])


def test_the_documentation_says_what_is_a_rule_of_the_product_and_what_is_an_order() -> None:
    """The table of the protocol's page names the rule that is switched off, for all others an order."""
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
    rows = re.findall(r"^\| .* \(`([a-z-]+)`\) \|.* \| ([^|]*) \|$", page, re.MULTILINE)
    rules = {
        name: f"the rule `{getattr(place, at).__name__}`" for name, ((place, at, _),) in SWITCHES.items()
    }

    assert dict(rows) == {name: rules.get(name, "an order") for name in SAFEGUARDS}


def test_j_8_an_intent_of_a_superseded_generation_still_passes() -> None:
    """J-8: what stood below the end offsets in the successor's event is deleted after the succession too."""

    def covered(world: World, rules: Rules) -> bool:
        superseded = rules.fold(world.log[: world.reaper.barrier]).newest(TENANT) == 2
        passed = any(seen.generation == 1 and seen.passed for seen in world.verdicts)
        return not (superseded and passed and world.deleted and world.reaper.at == "settle")

    assert explore(SUCCESSOR, properties={"nothing covered": covered}).broken


def test_q_5_late_landings_after_a_re_attach_are_in_the_search() -> None:
    """Q-5: the worlds reach an index of the old generation that lands once the new one has deleted `x`."""

    def landed(world: World, rules: Rules) -> bool:
        written = world.indexes[1] is True and world.indexes[2] is False
        poisoned, again = world.handles[0].poisoned, world.handles[1].generation == 2
        return not (world.deleted and written and poisoned and again and not world.late)

    found = explore(LATE_PUT_AGAIN, properties={"no late landing": landed})
    assert found.broken
    assert "late_put 1 with x" in found.trace


def test_the_worlds_take_every_step() -> None:
    """No property holds only because a step that could break it is never taken."""
    taken = {step for setup in WORLDS.values() for step in search(setup).taken}
    assert taken == {
        *("call", "read_ends", "propose", "agree", "append", "append_in_flight", "land", "read_back"),
        *("project", "withdraw", "granted", "answer", "redis", "crash", "recreate_topic"),
        *("read_index", "put_index", "put_unknown", "late_put", "emit", "commit_transaction"),
        *("fix_range", "barrier_ends", "barrier", "judge", "delete", "settle", "commit"),
    }
