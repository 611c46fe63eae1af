"""Intents that are done in part when their bucket is closed: they come back, and nothing is told untruly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.execute_stage import (
    BUSY,
    CHANGED,
    DENIED,
    ERROR,
    Store,
    execution,
    run,
    sizes,
    words,
)

from sexton.schemas.events import DeleteMode, KeyCondition
from sexton.storage import MAX_KEYS, Delete, KeyState, Kind, StoreRefused, Versioning
from sexton.streaming_jobs.reaper.fates import Earlier


class BusyListing(Store):
    """A store that lists nothing while it is busy."""

    def versions_of(self, *asked: Any) -> Any:
        """Refuse."""
        raise StoreRefused("busy", code="SlowDown", status=503)


@pytest.mark.parametrize("sent", [False, True])
def test_a_denied_key_beside_a_bucket_that_is_closed_does_not_hang(sent: bool) -> None:
    """X-7: nothing can be asked of a closed bucket: the denied key waits with the others."""

    def answer(number: int, bucket: str, item: object) -> KeyState:
        return DENIED if item == "a" else BUSY

    store = Store(objects={"b": {"a"}}, answer=answer)
    _, (first, second) = run(
        store, execution(["a"], earlier=Earlier() if sent else None), execution(["b"]), patience_s=2.0
    )

    assert first.held is not None
    assert second.held is not None
    assert (first.unknown, second.unknown) == (sent, False)


@pytest.mark.parametrize("phases", [(["a", "b"],), (["a"], ["b"])])
@pytest.mark.parametrize("state", [ERROR, BUSY], ids=str)
def test_what_is_gone_in_part_is_looked_at_when_it_comes_back(
    phases: Sequence[Sequence[str]], state: KeyState
) -> None:
    """X-11: an intent that waits while some of its keys are gone says so: a repeat would add a marker."""
    store = Store(answer=lambda number, bucket, item: state if item == "b" else None)
    _, (result,) = run(store, execution(*phases), patience_s=2.0)

    assert result.held is not None
    assert result.unknown


def test_x_6_a_listing_that_fails_is_never_a_success() -> None:
    """X-6: all versions of a key whose listing is throttled: the intent waits, nobody is told `deleted`."""
    store = BusyListing(versioning=Versioning.ON)
    _, (result,) = run(store, execution(["a"], mode=DeleteMode.ERASE_ALL_VERSIONS))

    assert result.held is not None
    assert words(result) == {}
    assert sizes(store) == []


def test_a_failed_condition_that_cannot_be_looked_at_had_no_effect() -> None:
    """X-19: a 412 deletes nothing: seen later, with another object there, the key is still `changed`."""
    store = Store(answer=lambda number, bucket, item: CHANGED, look_status=403)
    _, (result,) = run(store, execution(["a"], conditions={"a": KeyCondition("a", "e")}))

    assert result.held is not None
    assert not result.unknown


def test_what_waited_for_a_probe_is_sent_in_requests_that_are_allowed() -> None:
    """X-12: more than 1,000 conditions, and several on one key, are sent again in requests of their own."""
    unknown = KeyState(Kind.REFUSED, "ConditionNotChecked", "never tried")
    names = [f"k{i}" for i in range(2500)]
    store = Store()
    store.answer = lambda number, bucket, item: None if store.probes else unknown
    first = execution(names, conditions={name: KeyCondition(name, "e") for name in names})
    others = [execution(["k0"], conditions={"k0": KeyCondition("k0", f"e{i}")}) for i in range(3)]
    _, results = run(store, first, *others)

    assert [words(result) for result in results] == [{"deleted": 2500}, *[{"deleted": 1}] * 3]
    for _, items in store.sent:
        sent = [item.key for item in items if isinstance(item, Delete)]
        assert 0 < len(sent) == len(set(sent)) <= MAX_KEYS
