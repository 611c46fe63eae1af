"""Which keys and prefixes carry the number of transaction 23 of tenant `t`, for both places of the number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.schemas import events
from sexton.schemas.errors import InvalidFormat, InvalidSettings
from sexton.schemas.settings import load
from sexton.schemas.tenant_prefix import TenantPrefix
from sexton.streaming_jobs.reaper.guards.transaction_keys import not_its_own

T = "tenants/t/"
FIRST_KEYS = {
    "tenants/t/23/seg": True,
    "tenants/t/23/deep/seg.24": True,
    "tenants/t/23/24/seg": True,
    "tenants/t/23/": True,
    "tenants/t/23": False,
    "tenants/t/23x/seg": False,
    "tenants/t/023/seg": False,
    "tenants/t/+23/seg": False,
    "tenants/t/23./seg": False,
    "tenants/t/2３/seg": False,
    "tenants/t/٢٣/seg": False,
    "tenants/t/ 23/seg": False,
    "tenants/t//23/seg": False,
    "tenants/t/./23/seg": False,
    "tenants/t/24/seg": False,
    "tenants/t/24/seg.23": False,
    "tenants/t/24/timelines/23/seg": False,
    "tenants/t/timelines/23/seg": False,
    "tenants/t/seg.23": False,
    "tenants/OTHER/23/seg": False,
    "tenants/t2/23/seg": False,
    "tenants/T/23/seg": False,
    "/tenants/t/23/seg": False,
    "x/tenants/t/23/seg": False,
    "tenants/t/23/../24/seg": False,
    "tenants/t/23/..": False,
    "tenants/t/23/a//b": False,
    "tenants/t/23/./b": False,
    "23/seg": False,
}
LAST_KEYS = {
    "tenants/t/seg.23": True,
    "tenants/t/deep/seg.23": True,
    "tenants/t/deep/24/seg.23": True,
    "tenants/t/seg.24.23": True,
    "tenants/t/24.23": True,
    "tenants/t/t23/seg.23": True,
    "tenants/t/seg.023": False,
    "tenants/t/seg.123": False,
    "tenants/t/seg23": False,
    "tenants/t/seg.23.24": False,
    "tenants/t/seg.23/": False,
    "tenants/t/seg.23/x": False,
    "tenants/t/seg.+23": False,
    "tenants/t/seg.2３": False,
    "tenants/t/seg.23 ": False,
    "tenants/t/24/seg.23": False,
    "tenants/t/23/seg.23": False,
    "tenants/t/024/seg.23": False,
    "tenants/t/２４/seg.23": False,
    "tenants/t/23/seg": False,
    "tenants/OTHER/seg.23": False,
    "tenants/t.23": False,
    "tenants/t/../u/seg.23": False,
    "tenants/t//seg.23": False,
    "seg.23": False,
}
# prefix, suffix, tombstone
FIRST_PREFIXES = {
    ("tenants/t/23/", None, None): True,
    ("tenants/t/23/deep/", None, None): True,
    ("tenants/t/23/", ".log", None): True,
    ("tenants/t/23/", None, "tenants/t/23/gone"): True,
    ("tenants/t/23/", None, "tenants/t/24/gone"): False,
    ("tenants/t/23/", None, "tenants/t/23"): False,
    ("tenants/t/", ".23", None): False,
    ("tenants/t/", None, None): False,
    ("tenants/t/2", None, None): False,
    ("tenants/t/23", None, None): False,
    ("tenants/t/230/", None, None): False,
    ("tenants/t/24/23/", None, None): False,
    ("tenants/t/24/", ".23", None): False,
    ("tenants/", ".23", None): False,
    ("tenants/u/23/", None, None): False,
    ("tenants/t/23/../24/", None, None): False,
    ("tenants/t/23//", None, None): False,
}
LAST_PREFIXES = {
    ("tenants/t/", ".23", None): True,
    ("tenants/t/deep/", ".23", None): True,
    ("tenants/t/", "/seg.23", None): True,
    ("tenants/t/", ".23", "tenants/t/gone.23"): True,
    ("tenants/t/", ".23", "tenants/t/gone"): False,
    ("tenants/t/", ".23", "tenants/t/24/gone.23"): False,
    ("tenants/t/", "23", None): False,
    ("tenants/t/", ".24", None): False,
    ("tenants/t/", ".023", None): False,
    ("tenants/t/", ".23.", None): False,
    ("tenants/t/", ".123", None): False,
    ("tenants/t/", None, None): False,
    ("tenants/t/23/", None, None): False,
    ("tenants/t/24/", ".23", None): False,
    ("tenants/t/24", ".23", None): False,
    ("tenants/", ".23", None): False,
    ("tenants/t", ".23", None): False,
    ("tenants/u/", ".23", None): False,
    ("tenants/t/../", ".23", None): False,
}


def own(action: events.Action, place: str, number: int = 23) -> bool:
    """Whether all of it is transaction 23's of tenant `t`."""
    return not_its_own(action, T, place, number) is None


@pytest.mark.parametrize(("place", "table"), [("first", FIRST_KEYS), ("last", LAST_KEYS)])
def test_m_6_m_16_a_key_carries_the_number_where_its_tenant_has_it(
    place: str, table: dict[str, bool]
) -> None:
    """M-6, M-16: below the tenant's prefix, in the tenant's own form, in canonical decimals."""
    found = {key: own(events.DeleteObjects("b", ((key,),)), place) for key in table}

    assert found == table


@pytest.mark.parametrize(("place", "table"), [("first", FIRST_PREFIXES), ("last", LAST_PREFIXES)])
def test_m_6_m_16_all_under_a_prefix_carries_the_number(
    place: str, table: dict[tuple[str, str | None, str | None], bool]
) -> None:
    """M-6, M-16: a prefix above the number needs the suffix, and only where the number is last."""
    actions = {each: events.DeletePrefix("b", each[0], suffix=each[1], tombstone=each[2]) for each in table}

    assert {each: own(action, place) for each, action in actions.items()} == table


def test_every_key_of_every_phase_counts() -> None:
    """One key that is not its own, wherever it stands, is named, and nothing else."""
    good, bad = ("tenants/t/23/a", "tenants/t/23/b"), "tenants/t/24/c"
    action = events.DeleteObjects("b", (good, (bad,), good))

    assert not_its_own(action, T, "first", 23) == repr(bad)
    assert own(events.DeleteObjects("b", (good, good)), "first")


def test_what_touches_no_object_and_an_unknown_place_are_not_its_own() -> None:
    """A horizon of a rejected transaction is refused; so is all where nobody knows where the number is."""
    key = events.DeleteObjects("b", (("tenants/t/23/seg.23",),))
    assert not own(events.AdvanceHorizon("line", 1), "first")
    assert not own(key, "")
    assert not own(key, "middle")


@given(st.text("a./2349", max_size=12), st.sampled_from(["first", "last"]))
def test_no_key_is_of_two_transactions(below: str, place: str) -> None:
    """Whatever the key, at most one number may delete it, and only one that stands in it."""
    action = events.DeleteObjects("b", ((T + below,),))
    numbers = [number for number in range(1, 500) if own(action, place, number)]

    assert len(numbers) <= 1
    assert all(str(number) in below for number in numbers)


@pytest.mark.parametrize(
    ("template", "prefix"),
    [
        ("tenants/{tenant}/", "tenants/t/"),
        ("{tenant}/", "t/"),
        ("a/{tenant}/data/", "a/t/data/"),
    ],
)
def test_a_template_has_the_tenant_as_a_segment(template: str, prefix: str) -> None:
    """The prefix is the template with the tenant's name in its place."""
    parsed = TenantPrefix.parse(template)

    assert (parsed.of("t"), parsed.text) == (prefix, template)


@pytest.mark.parametrize(
    "template",
    [
        "tenants/",
        "tenants/{tenant}",
        "tenants/{tenant}x/",
        "tenants-{tenant}/",
        "{tenant}/{tenant}/",
        "/tenants/{tenant}/",
        "tenants//{tenant}/",
        "tenants/../{tenant}/",
        "./{tenant}/",
        "{tenant}//",
        "tenants/{tenant}/{node}/",
        "tenants/{}/",
        "/",
    ],
)
def test_another_template_is_refused_at_the_start(template: str) -> None:
    """It is an error of the settings, not of the first intent that needs it."""
    with pytest.raises(InvalidFormat):
        TenantPrefix.parse(template)
    with pytest.raises(InvalidSettings, match="SEXTON_REAPER_TENANT_PREFIX"):
        load({"SEXTON_REAPER_TENANT_PREFIX": template})


@pytest.mark.parametrize(
    "tenant", ["", ".", "..", "a/b", "/", "a%2Fb", "%", "a\\b", "a\nb", "a\x00", "a\x7f"]
)
def test_m_16_a_name_that_is_no_plain_segment_has_no_prefix(tenant: str) -> None:
    """M-16: tenant `a/23` would lie under transaction 23 of tenant `a`."""
    assert TenantPrefix.parse("tenants/{tenant}/").of(tenant) is None


@pytest.mark.parametrize("tenant", ["t", "a b", "ü", "t.23", "23", "{tenant}", "a+b", "a?b#c", "..."])
def test_other_names_stand_in_the_prefix_as_they_are(tenant: str) -> None:
    """Nothing in a name is replaced or encoded."""
    assert TenantPrefix.parse("tenants/{tenant}/").of(tenant) == f"tenants/{tenant}/"
