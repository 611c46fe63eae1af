"""Transactions hold in every state of small worlds, and each safeguard of theirs is needed in one."""

from __future__ import annotations

import re
from functools import cache

import pytest
from tests.model.search import Found
from tests.model.transaction_properties import (
    CEASED,
    GONE,
    ONE_GRANT,
    ONE_OPEN,
    OWED,
    PROPERTIES,
    STABLE,
    WHOLE,
    Property,
    explore,
)
from tests.model.transaction_rules import SWITCHES, TransactionRules
from tests.model.transaction_world import (
    COMMITTED,
    SAFEGUARDS,
    TRUSTED,
    Budget,
    Record,
    TransactionSetup,
    TransactionWorld,
)
from tests.safeguards.lines import load, place_of
from tests.support.pages import ROOT

from sexton.issuer.state.transactions import Status
from sexton.schemas.events import NumberPlace

EARLY = (Record(2, COMMITTED, ("tenants/t/1/y",)),)
THREE = TransactionSetup("aba", Budget())
TWO = TransactionSetup("ab", Budget())
LATE = TransactionSetup("ab", Budget(losses=1, give_ups=1))
CLAIMED_EARLY = TransactionSetup("ab", Budget(losses=1), records=EARLY, drops=(False,))
HELD = TransactionSetup("a", Budget(holds=1, resumes=1, losses=1))
TWIN = TransactionSetup("a", Budget(resumes=2, unknown=1, discards=1, crashes=1))
TWIN_AND_RIVAL = TransactionSetup("ab", Budget(resumes=1, crashes=1), drops=(True,))
CONDITIONAL = TransactionSetup("a", Budget(resumes=2, unknown=1, crashes=1), conditional=True)
GIVEN_UP = TransactionSetup("a", Budget(resumes=1, losses=1, give_ups=1, listings=1), drops=(False,))
COLLECTED = TransactionSetup("ab", Budget(unknown=1, listings=2))
STRAYS = TransactionSetup("ab", Budget(strays=1))
STRAYS_LAST = TransactionSetup("ab", Budget(strays=1), drops=(False,), place=NumberPlace.LAST)

WORLDS = {
    "two nodes, three transactions": THREE,
    "calls that land late, a transaction given up": LATE,
    "a claim before the start, calls that land late": CLAIMED_EARLY,
    "another client's Kafka transaction, a twin": HELD,
    "two twins, unknown uploads, a discard, a crash": TWIN,
    "a twin, a crash and another node": TWIN_AND_RIVAL,
    "two twins, an index that is never replaced": CONDITIONAL,
    "given up, with a twin": GIVEN_UP,
    "unknown uploads, collected after the rejection": COLLECTED,
    "stray intents, the number first": STRAYS,
    "stray intents, the number last": STRAYS_LAST,
}
NEEDED = [
    ("one-number", ONE_GRANT, TWO),
    ("dooms", ONE_OPEN, TWO),
    ("last-committed", WHOLE, TWO),
    ("newest-commits", WHOLE, TWO),
    ("deadlist-closed", WHOLE, STRAYS),
    ("claimed-early", WHOLE, CLAIMED_EARLY),
    ("ends-reached", OWED, HELD),
    ("acknowledged", CEASED, STRAYS),
    ("collected-passes", STABLE, COLLECTED),
    ("number-in-key", WHOLE, STRAYS_LAST),
    ("tenant-in-key", WHOLE, STRAYS_LAST),
    ("index-outcome", WHOLE, TWIN),
    ("compare-and-set", WHOLE, TWIN),
    ("put-under-way", WHOLE, TWIN),
    ("commit-alone", WHOLE, TWO),
    ("offsets-saved", OWED, HELD),
    ("discards-saved", WHOLE, TWIN),
    ("give-up-saved", CEASED, GIVEN_UP),
    ("listed-afterwards", GONE, COLLECTED),
]
ASSUMED = [("uploads-ceased", CEASED, COLLECTED), ("deadlist-right", WHOLE, STRAYS)]

PRODUCT = {
    "one-number": "start: the number is the next one",
    "dooms": "start: every other open transaction of the tenant is rejected",
    "last-committed": "start: it builds on what is the last committed one at its event",
    "newest-commits": "commit: only what is open is committed",
    "deadlist-closed": "a deadlist passes only in its transaction's window",
    "claimed-early": "a deadlist from before its transaction's start never passes",
    "ends-reached": "commit: its end offsets have reached the deadlist",
    "acknowledged": "a rejected transaction's objects go only once its uploads have ceased",
    "collected-passes": "what passed for a rejected transaction passes once it is collected",
    "number-in-key": "rejected needs the number in the key",
    "tenant-in-key": "rejected needs the tenant in the key",
    "index-outcome": "an index PUT of unknown fate is never committed",
    "compare-and-set": "a transaction's state is saved before anything is sent for it",
    "put-under-way": "a twin that was paused before its index PUT writes none",
    "commit-alone": "once the deadlist may be out a transaction does nothing but that very commit",
    "offsets-saved": "topic and offsets of a deadlist stand in the state before the commit is asked for",
    "discards-saved": "a discarded name is known after a resume",
    "give-up-saved": "who resumes a transaction that was given up only acknowledges",
    "listed-afterwards": "only transactions whose uploads have ceased are collected",
}
"""The line of the list of safeguards that holds each against the product."""


@cache
def searched(setup: TransactionSetup) -> Found:
    """Search a world with every safeguard on, once for all tests."""
    return explore(setup)


@pytest.mark.parametrize("setup", WORLDS.values(), ids=WORLDS)
@pytest.mark.slow
def test_no_state_breaks_a_transaction_while_every_safeguard_is_on(setup: TransactionSetup) -> None:
    """Whatever races, lands late, is lost, dies or wakes up: each property holds in every state."""
    found = searched(setup)
    print(found)
    assert found.broken is None, str(found)


@pytest.mark.parametrize(("safeguard", "broken", "setup"), NEEDED, ids=[case[0] for case in NEEDED])
def test_without_a_safeguard_a_transaction_breaks(
    safeguard: str, broken: str, setup: TransactionSetup
) -> None:
    """Each safeguard is needed: with it alone switched off the search finds the property that it guards."""
    found = explore(setup, safeguard, {broken: PROPERTIES[broken]})
    print(f"without {safeguard} ({SAFEGUARDS[safeguard]}):\n{found}")
    assert found.broken == broken, str(found)


@pytest.mark.parametrize(("trusted", "broken", "setup"), ASSUMED, ids=[case[0] for case in ASSUMED])
def test_what_is_trusted_of_services_has_to_hold(trusted: str, broken: str, setup: TransactionSetup) -> None:
    """What no rule can check for itself is named, and breaks a property when it does not hold."""
    found = explore(setup, trusted, {broken: PROPERTIES[broken]})
    print(f"unless {TRUSTED[trusted]}:\n{found}")
    assert found.broken == broken, str(found)


def test_every_safeguard_of_transactions_has_a_case_and_a_row_on_the_page() -> None:
    """No safeguard goes without a search that shows what it is for; the page says which are the product's."""
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    _, _, after = page.partition("### Transactions\n")
    section, _, _ = after.partition("### Boundary files\n")
    rows = re.findall(r"^\| `([a-z-]+)`: ([^|]*) \|.* \| ([^|]*) \|$", section, re.MULTILINE)
    product = {name: "a rule" if name in SWITCHES else "an order" for name in SAFEGUARDS}

    assert [case[0] for case in NEEDED] == list(SAFEGUARDS)
    assert [case[0] for case in ASSUMED] == list(TRUSTED)
    assert {name: text for name, text, _ in rows} == SAFEGUARDS
    assert {name: kind for name, _, kind in rows} == product


def test_q_6_safeguards_of_transactions_are_lines_of_the_product() -> None:
    """Q-6: the list of safeguards has the product's own line for each of these, which stands there once."""
    lines = {line.name: line for line in load()}

    assert PRODUCT.keys() == SAFEGUARDS.keys()
    for line in PRODUCT.values():
        assert place_of(lines[line])


def _statuses(world: TransactionWorld, rules: TransactionRules) -> tuple[Status, ...]:
    return rules.view(world.log).statuses


def _first_goes_and_second_commits(world: TransactionWorld, rules: TransactionRules) -> bool:
    """M-1: the first is rejected and collected, the second one is visible."""
    return _statuses(world, rules)[2:4] == (Status.COLLECTED, Status.COMMITTED)


def _late_deadlist_never_goes(world: TransactionWorld, rules: TransactionRules) -> bool:
    """M-3: what is emitted after the commit was asked for is judged, and never passes."""
    late = [i for i, each in enumerate(world.records) if each.wanted == COMMITTED and not each.owed]
    committed = _statuses(world, rules)[2] is Status.COMMITTED
    return committed and any((offset, False) in world.verdicts for offset in late)


def _waits_for_its_deadlist(world: TransactionWorld, rules: TransactionRules) -> bool:
    """M-15: another client's Kafka transaction has ended, the commit is granted, and `y` is gone."""
    granted = any(each.at == "done" for each in world.handles)
    return granted and world.budget.holds == 0 and rules.setup.y not in world.store


def _twin_commits(world: TransactionWorld, rules: TransactionRules) -> bool:
    """M-14: a resumed handle is told that its commit is granted."""
    return any(each.at == "done" and each.request.endswith("'") for each in world.handles)


def _all_commit(world: TransactionWorld, rules: TransactionRules) -> bool:
    """Each of the three transactions is committed in its turn, and what the first dropped is gone."""
    committed = _statuses(world, rules)[1:] == (Status.COMMITTED,) * 4
    return committed and rules.setup.y not in world.store


ENDS = {
    "m_1_rejected_and_collected": (COLLECTED, _first_goes_and_second_commits),
    "m_3_deadlist_closed": (STRAYS, _late_deadlist_never_goes),
    "m_14_resumed_and_committed": (TWIN, _twin_commits),
    "m_15_waits_for_its_deadlist": (HELD, _waits_for_its_deadlist),
    "all_commit": (THREE, _all_commit),
}


@pytest.mark.parametrize(("setup", "reached"), ENDS.values(), ids=ENDS)
def test_every_end_of_a_transaction_is_reached(setup: TransactionSetup, reached: Property) -> None:
    """M-1, M-3, M-14, M-15: no property holds only because a world never comes to its end."""
    found = explore(setup, properties={"no such end": lambda world, rules: not reached(world, rules)})
    assert found.broken == "no such end"


def test_m_17_the_worlds_of_transactions_take_every_step() -> None:
    """M-17: no property holds only because a step is never taken, such as a paused twin's refused save."""
    taken = {step for setup in WORLDS.values() for step in searched(setup).taken}
    assert taken == {
        *(
            "read_back",
            "save_deadlist",
            "save_give_up",
            "ask_start",
            "append_start",
            "started",
            "write",
            "write_unknown",
            "give_up",
        ),
        *(
            "save_discard",
            "emit_discard",
            "save_put_with_y",
            "save_put_without_y",
            "put_index",
            "put_unknown",
        ),
        *(
            "emit_deadlist",
            "save_commit",
            "save_refused",
            "ask_commit",
            "append_commit",
            "granted",
            "refused",
        ),
        *("acknowledge", "acknowledged", "append_in_flight", "land", "lost_upload", "late_upload"),
        *("crash", "resume", "hold", "release", "stray"),
        *("emit_rejection", "list", "collected", "judge", "execute"),
    }
