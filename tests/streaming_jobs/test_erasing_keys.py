"""All versions of a key: what is reported of those that stay, and of a listing that does not tell all."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.execute_stage import DENIED, ERROR, INVALID, Versioned, execution, run, words

from sexton.schemas.events import DeleteMode
from sexton.storage import Ability, KeyState
from sexton.streaming_jobs.reaper.execute.execution import Execution
from sexton.streaming_jobs.reaper.execute.outcomes import MOST_TRIES
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt

LOCKED = replace(DENIED, retain_until=datetime(2100, 1, 1, tzinfo=UTC))


def erasing(*keys: str, **given: Any) -> Execution:
    """An intent that asks for all versions of keys."""
    return execution(keys, mode=DeleteMode.ERASE_ALL_VERSIONS, **given)


@pytest.mark.parametrize("exact", Ability)
@pytest.mark.parametrize("key", ["a", "a/b-c_d.e", "a+b", "a b", "a%20b", "é"])
def test_p_3_versions_are_erased_only_where_the_listing_means_their_key(key: str, exact: Ability) -> None:
    """P-3: what any store lists alike goes; for others the listing was seen to be exact, or it is refused."""
    store = Versioned(listed=["new"], exact=exact)
    _, (result,) = run(store, erasing(key))

    plain = key in ("a", "a/b-c_d.e")
    goes = plain or exact is Ability.YES
    assert words(result) == ({"deleted": 1} if goes else {"refused": 1})
    assert bool(store.sent) == goes
    assert bool(store.probes) == (not plain and exact is not Ability.YES)


@pytest.mark.parametrize(
    ("listed", "sent", "expected"),
    [(["new", "middle", "old"], [["middle", "old"], ["new"]], {"deleted": 1}), ([], [], {"absent": 1})],
)
def test_all_versions_go_the_newest_last(
    listed: list[str], sent: list[list[str]], expected: dict[str, int]
) -> None:
    """Were the newest gone first, an older one would come to light; where there is none the key is absent."""
    store = Versioned(listed=listed)
    _, (result,) = run(store, erasing("a"))

    assert (words(result), result.effects) == (expected, {"erased" if listed else "absent": 1})
    assert [[getattr(item, "version_id", "") for item in items] for _, items in store.sent] == sent


@pytest.mark.parametrize(
    ("state", "expected"),
    [(LOCKED, "refused"), (DENIED, "dead-lettered"), (INVALID, "dead-lettered"), (ERROR, None)],
    ids=["locked", "denied", "final", "transient"],
)
def test_a_version_that_stays_is_told(state: KeyState, expected: str | None) -> None:
    """Of three versions the oldest stays: the key has the outcome of that one, and its newest version
    stays.
    """
    store = Versioned(listed=["new", "middle", "old"])
    store.answer = lambda number, bucket, item: state if getattr(item, "version_id", "") == "old" else None
    _, (result,) = run(store, erasing("a"))

    assert words(result) == ({} if expected is None else {expected: 1})
    assert (result.held is not None, result.unknown) == ((True, True) if expected is None else (False, False))
    assert expected is None or "1 versions erased" in result.named[0][1].detail
    assert store.erased == {"middle"}


def test_x_2_all_versions_go_only_of_a_key_that_is_listed_byte_for_byte() -> None:
    """X-2: where a listing may show another key as this one nothing is sent, and nothing is `absent`."""
    store = Versioned(listed=["v"], encoded=False)
    _, (result,) = run(store, erasing("a"))

    assert words(result) == {"refused": 1}
    assert (result.named[0][1].reason, store.sent) == ("UnreadableKey", [])


@pytest.mark.parametrize(
    ("listed", "encoded", "in_order", "expected"),
    [
        ([], True, Ability.YES, {"absent": 1}),
        ([], True, Ability.UNKNOWN, {}),
        ([], False, Ability.YES, {}),
        (["v"], True, Ability.UNKNOWN, {"dead-lettered": 1}),
        (["v"], False, Ability.YES, {}),
    ],
)
def test_x_19_a_page_without_versions_is_all_only_where_listings_are_exact_and_in_order(
    listed: list[str], encoded: bool, in_order: Ability, expected: dict[str, int]
) -> None:
    """X-19: past the age limit, what a page does not show may stand on the next, or in another aliasing."""
    store = Versioned(listed=listed, encoded=encoded, in_order=in_order, busy=MOST_TRIES)
    _, (result,) = run(store, erasing("a", earlier=Attempt(), overdue=True))

    assert words(result) == expected
    assert (result.held is not None) is (expected == {})


@pytest.mark.parametrize(("listed", "expected"), [(["v"], {"dead-lettered": 1}), ([], {})])
def test_x_19_versions_are_listed_also_where_the_bucket_never_said_what_it_is(
    listed: list[str], expected: dict[str, int]
) -> None:
    """X-19: held all the time: a version that a marker hides from a look is there, and none is not seen."""
    given = erasing("a", earlier=Attempt(), overdue=True)
    store = Versioned(listed=listed, objects={"b": set()})
    _, (result,) = run(store, given, held={"b": "SlowDown"})

    assert (words(result), store.verified, store.sent) == (expected, [], [])
    assert (result.held is not None) is (expected == {})
