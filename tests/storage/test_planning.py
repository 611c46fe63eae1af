"""Which items go in one batch, which alone, which not at all: every item once, each with its condition."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.conftest import BUCKET
from tests.support.s3_api import keys_of

from sexton.storage import Ability, Delete, InvalidBatch
from sexton.storage.abilities import Abilities, unprobed
from sexton.storage.planning import make_plan, plain_body

FAITHFUL = replace(unprobed(BUCKET, is_aws=True), batch_condition=Ability.YES, single_condition=Ability.YES)
KEYS = st.lists(st.text("ab/.\\ \n\r\ud800é", max_size=4) | st.just("k" * 300), min_size=1, max_size=6)
KNOWN = st.sampled_from([FAITHFUL, replace(FAITHFUL, batch_keeps=frozenset()), unprobed(BUCKET)])


@pytest.mark.parametrize("items", [[Delete("a"), "b"], ["a", Delete("b")], [Delete("a"), Delete("b")]])
def test_a_list_of_both_kinds_of_items_is_whole(items: list[str | Delete]) -> None:
    """A key that were left out of the body would be reported as gone."""
    plan = make_plan(items, FAITHFUL)

    assert plan.body is not None
    assert (sorted(plan.batch), keys_of(plan.body.data)) == ([0, 1], ["a", "b"])
    body = plain_body(items, FAITHFUL)
    assert body is None or keys_of(body.data) == ["a", "b"]


@pytest.mark.parametrize("bound", [Delete("a", "e"), Delete("a", version_id="v")])
def test_an_item_with_a_condition_is_never_plain(bound: Delete) -> None:
    """Sent as a plain key, it would take whatever is there."""
    lists: list[list[str | Delete]] = [[bound], [bound, Delete("b")], ["b", bound], [Delete("b"), bound]]
    for items in lists:
        assert plain_body(items, FAITHFUL) is None
        plan = make_plan(items, FAITHFUL)
        assert plan.body is not None
        assert [plan.items[i] for i in plan.batch].count(bound) == 1
        assert b"<ETag>e<" in plan.body.data or b"<VersionId>v<" in plan.body.data


@pytest.mark.parametrize(
    "items",
    [
        [],
        ["a"] * 2,
        ["a", Delete("a")],
        ["a", Delete("a", "e")],
        ["a\r", "a\r"],
        ["b", Delete("a", version_id="v"), Delete("a", version_id="v")],
        [f"{i}\r" for i in range(1001)],
    ],
)
def test_a_list_that_is_no_batch_is_refused(items: list[str | Delete]) -> None:
    """Empty, too long, or of one key and version twice, whatever way each would go."""
    with pytest.raises(InvalidBatch):
        make_plan(items, FAITHFUL)


@given(KEYS, KNOWN)
def test_every_item_goes_one_way(keys: list[str], known: Abilities) -> None:
    """In the batch, alone or not at all; the body holds the keys of its items, in their order."""
    items = list(dict.fromkeys(keys))
    plan = make_plan(items, known)

    assert sorted([*plan.batch, *plan.singles, *plan.refused]) == list(range(len(items)))
    assert (plan.body is None) == (not plan.batch)
    if plan.body is not None:
        assert keys_of(plan.body.data) == [items[i] for i in plan.batch]


@pytest.mark.parametrize("last", ["k\r", Delete("k", "e"), Delete("k", version_id="v"), "k"])
def test_a_thousand_items_are_planned_whatever_they_are(last: str | Delete) -> None:
    """A full batch is one, also where an item of it needs a second look."""
    plan = make_plan([*(f"k{i}" for i in range(999)), last], FAITHFUL)

    assert len(plan.batch) + len(plan.singles) == 1000


@pytest.mark.parametrize(
    "item", [Delete("a", version_id="v\x01"), Delete("a", "e\x01"), Delete("a\x01", "e")]
)
def test_what_a_body_cannot_carry_goes_alone(item: Delete) -> None:
    """In the key, the ETag or the version id: it is no reason to refuse its neighbours, or to raise."""
    plan = make_plan([item, "b"], FAITHFUL)

    assert (list(plan.singles), list(plan.batch)) == ([0], [1])
