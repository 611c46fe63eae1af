"""Conditions on one key: all of them count, and those that cannot all hold are no intent."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sexton.schemas import events
from sexton.schemas.errors import InvalidEvent
from sexton.schemas.events import KeyCondition
from sexton.schemas.guards import conditions_of
from sexton.schemas.intents import check_intent

ETAG = "9b2cf535f27731c974343645a3985328"


def intent(*guards: list[KeyCondition]) -> events.DeletionIntent:
    """An intent that only conditions guard."""
    return events.DeletionIntent(
        "i",
        "t",
        datetime(2026, 1, 2, tzinfo=UTC),
        "test",
        tuple(map(events.UnchangedGuard, guards)),
        events.DeleteObjects("bucket", (("a", "b"),)),
    )


def test_conditions_are_found_by_key() -> None:
    """Those of all guards, each as it was given."""
    found = conditions_of(intent([KeyCondition("a", ETAG)], [KeyCondition("b", None, "v1")]).guards)

    assert found == {"a": KeyCondition("a", ETAG), "b": KeyCondition("b", None, "v1")}


@pytest.mark.parametrize("apart", [False, True], ids=["one guard", "two guards"])
def test_both_conditions_of_a_key_count(apart: bool) -> None:
    """An ETag and a version id are two conditions; an ETag with its quotes and without is one."""
    two = [KeyCondition("a", ETAG), KeyCondition("a", f'"{ETAG}"', "v1")]
    asked = intent(*([each] for each in two)) if apart else intent(two)

    check_intent(asked)
    assert conditions_of(asked.guards) == {"a": KeyCondition("a", ETAG, "v1")}
    turned = intent([two[1]], [two[0]])
    assert conditions_of(turned.guards) == {"a": KeyCondition("a", f'"{ETAG}"', "v1")}


def test_a_condition_on_a_key_that_is_not_deleted_is_refused() -> None:
    """Nobody would check it, and a guard that nobody checks has not passed."""
    with pytest.raises(InvalidEvent, match="not to be deleted: 'c'"):
        check_intent(intent([KeyCondition("a", ETAG), KeyCondition("c", ETAG)]))


@pytest.mark.parametrize("apart", [False, True], ids=["one guard", "two guards"])
@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (KeyCondition("a", ETAG), KeyCondition("a", "0" * 32)),
        (KeyCondition("a", None, "v1"), KeyCondition("a", None, "zz")),
        (KeyCondition("a", ETAG, "v1"), KeyCondition("a", None, "zz")),
    ],
    ids=["ETags", "versions", "both"],
)
def test_conditions_that_exclude_each_other_are_refused(
    one: KeyCondition, other: KeyCondition, turned: bool, apart: bool
) -> None:
    """Whatever their order: the last one does not win."""
    two = [other, one] if turned else [one, other]
    asked = intent(*([each] for each in two)) if apart else intent(two)

    with pytest.raises(InvalidEvent, match="exclude each other"):
        check_intent(asked)
