"""The list of safeguards fits the tree. Whether its tests notice an edit is for `make test-safeguards`."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

from tests.safeguards.__main__ import chosen
from tests.safeguards.lines import (
    TREE,
    edited,
    load,
    module_of,
    modules,
    node_ids,
    place_of,
    product,
    survivors,
    without,
)

LINES = load()
PARTS = ("sexton.streaming_jobs.reaper", "sexton.streaming_jobs.budget", "sexton.issuer", "sexton.storage")


def test_q_6_each_safeguard_stands_once_compiles_without_and_names_tests_that_exist() -> None:
    """Q-6: every text of the list is found once in the product, its edit compiles, its tests are there."""
    for line in LINES:
        assert edited(line)
        assert node_ids(line.tests)
    assert [name for name, times in Counter(line.name for line in LINES).items() if times > 1] == []


def test_q_6_the_cases_that_are_named_exist() -> None:
    """Q-6: where a line names one case of a test, pytest finds it."""
    cases = sorted({test for line in LINES for test in node_ids(line.tests) if "[" in test})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *cases]
    done = subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_q_6_what_may_be_edited_unseen_stands_once_and_has_a_reason() -> None:
    """Q-6: each survivor's text stands once in the product, its edit compiles, and it has a reason."""
    for line in survivors():
        assert edited(line) != product()[place_of(line)]
        assert len(line.name.split()) > 2


def test_q_6_each_module_has_a_line_or_a_reason_why_not() -> None:
    """Q-6: no module is left out, and no reason stands for one that is not there, or has a line."""
    guarded = {module_of(place_of(line)) for line in LINES}
    reasons = without()
    there = set[str]().union(*map(modules, PARTS))

    assert sorted(there - guarded - reasons.keys()) == []
    assert sorted(reasons.keys() - there) == []
    assert sorted(reasons.keys() & guarded) == []
    assert all(reasons.values())


def test_q_6_a_share_is_drawn_by_its_seed() -> None:
    """Q-6: one seed draws the same tenth again, rounded up; ten seeds draw more than one of them do."""
    draws = [chosen(LINES, [], str(seed), 0.1) for seed in range(10)]
    assert draws[0] == chosen(LINES, [], "0", 0.1)
    assert {len(draw) for draw in draws} == {-(-len(LINES) // 10)}
    assert len({line for draw in draws for line in draw}) > len(draws[0])
