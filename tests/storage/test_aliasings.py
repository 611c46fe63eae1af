"""Which keys are of a kind that some store folds into another key, and the quick look at many at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sexton.storage.abilities import ALIASINGS, Aliasing, has_dot_segments, unprobed

FAITHFUL = unprobed("bucket", is_aws=True)
SIBLINGS = [(each, *pair) for each in ALIASINGS for pair in each.pairs]
# All that some kind is about, in few letters, so that short lists meet the edges of keys.
KEYS = st.lists(st.text("aB./\\%2 +é\u0301\u00a0\t", max_size=5), min_size=1, max_size=4)


def joined(keys: list[str]) -> bytes:
    """Many keys as the quick look takes them."""
    return "\0".join(keys).encode()


@pytest.mark.parametrize("aliasing", ALIASINGS, ids=lambda each: each.name)
@given(KEYS)
@example(["a", ".", "b"])
@example([".", "a"])
@example([".."])
@example(["a/.."])
@example(["a", "./b"])
@example(["a", "/b"])
@example(["a/", "b"])
@example(["a "])
@example(["a", " a"])
@example(["e\u0301"])
def test_x_9_the_quick_look_at_many_keys_misses_none(aliasing: Aliasing, keys: list[str]) -> None:
    """X-9: wherever a key is of a kind, the look at all keys at once says so, whatever stands beside it."""
    if any(map(aliasing.holds, keys)):
        assert aliasing.may_hold(joined(keys))


@pytest.mark.parametrize("keys", [["a"], ["a/b.c", "d-e"], [".a"], ["a..b", "c/.d"]])
def test_plain_keys_are_of_no_strict_kind(keys: list[str]) -> None:
    """What is never asked about costs no probe: dots inside of a name are no segments."""
    assert not any(each.strict and each.holds(key) for each in ALIASINGS for key in keys)


@pytest.mark.parametrize(("aliasing", "odd", "sibling"), SIBLINGS, ids=lambda each: str(each)[:30])
def test_x_9_the_key_that_a_probe_tries_is_of_its_kind(aliasing: Aliasing, odd: str, sibling: str) -> None:
    """X-9: a probe deletes a key of the kind beside a sibling, so that what it sees holds for this kind."""
    key = odd.format(p="p/")

    assert key != sibling.format(p="p/")
    assert aliasing.holds(key)
    assert aliasing.may_hold(joined(["a", key, "b"]))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("dot segments", "a/../b"),
        ("double slash", "a//b"),
        ("leading slash", "/a"),
        ("backslash", "a\\b"),
    ],
)
def test_x_9_kinds_that_stores_in_use_fold_wait_for_a_probe(name: str, key: str) -> None:
    """X-9: until they were seen to be kept apart, they are sent neither in a batch nor alone."""
    known = unprobed("bucket")
    kept = replace(known, batch_keeps=frozenset([name]), single_keeps=frozenset([name]))

    assert [known.aliasing_of(key, batch=batch) for batch in (True, False)] == [name, name]
    assert [kept.aliasing_of(key, batch=batch) for batch in (True, False)] == [None, None]
    assert known.may_fold(joined(["a", key]))


@pytest.mark.parametrize("aliasing", ALIASINGS, ids=lambda each: each.name)
def test_x_9_what_was_seen_to_be_folded_is_distrusted_the_way_it_was_seen(aliasing: Aliasing) -> None:
    """X-9: of a kind whose sibling went with it no key is sent that way, be it kept by the other way."""
    key, seen = aliasing.pairs[0][0].format(p="p/"), frozenset([aliasing.name])
    by_batch, alone = replace(FAITHFUL, batch_aliases=seen), replace(FAITHFUL, single_aliases=seen)

    assert FAITHFUL.aliasing_of(key, batch=True) is None
    assert by_batch.aliasing_of(key, batch=True) == aliasing.name
    assert by_batch.may_fold(joined([key])) is aliasing.xml
    assert by_batch.aliasing_of(key, batch=False) is None
    assert alone.aliasing_of(key, batch=False) == aliasing.name
    assert not alone.may_fold(joined([key]))


@pytest.mark.parametrize("aliasing", ALIASINGS, ids=lambda each: each.name)
def test_x_9_the_wary_trust_no_kind_that_nobody_looked_at(aliasing: Aliasing) -> None:
    """X-9: who looked a bucket up without a probe sends no odd key, but letters are in most keys."""
    key = aliasing.pairs[0][0].format(p="p/")
    wary = replace(unprobed("bucket"), strict=True)

    refused = wary.aliasing_of(key, batch=False)
    assert (refused is None) is (aliasing.name == "letter case")


@pytest.mark.parametrize("key", ["..", ".", "a/..", "./a", "../a", "a/./b", "a/../b"])
def test_x_9_dot_segments_stand_anywhere(key: str) -> None:
    """X-9: alone, first, last or between: what a file system resolves is found."""
    assert has_dot_segments(key)
