"""Intents that are done in part when their bucket is closed: they come back, and nothing is reported
untruly.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from tests.support.execute_stage import (
    BUSY,
    CHANGED,
    DENIED,
    ERROR,
    Store,
    Versioned,
    execution,
    run,
    sizes,
    words,
)
from tests.support.task_work import copied, promised

from sexton.schemas.events import (
    DeleteMode,
    DeleteObjects,
    DoneKeys,
    KeyCondition,
    KeyProgress,
    OutcomeKind,
)
from sexton.storage import MAX_KEYS, Delete, KeyState, Kind
from sexton.streaming_jobs.reaper.actions.delete_objects.results import untried
from sexton.streaming_jobs.reaper.execute.items import key_of
from sexton.streaming_jobs.reaper.execute.outcomes import MOST_TRIES
from sexton.streaming_jobs.reaper.execute.result import Result
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt
from sexton.streaming_jobs.reaper.recovery.key_progress import Before


@pytest.mark.parametrize("sent", [False, True])
def test_a_denied_key_beside_a_bucket_that_is_closed_does_not_hang(sent: bool) -> None:
    """X-7: nothing can be asked of a closed bucket: the denied key waits with the others."""

    def answer(number: int, bucket: str, item: object) -> KeyState:
        return DENIED if item == "a" else BUSY

    store = Store(objects={"b": {"a"}}, answer=answer)
    _, (first, second) = run(
        store,
        execution(["a"], earlier=Attempt() if sent else None),
        execution(["b"]),
        failure_threshold_s=2.0,
    )

    assert first.held is not None
    assert second.held is not None
    assert (first.unknown, second.unknown) == (sent, False)
    assert {item for _, items in store.sent for item in items} == {"a", "b"}  # nor is the bucket asked


@pytest.mark.parametrize("phases", [(["a", "b"],), (["a"], ["b"])])
@pytest.mark.parametrize("state", [ERROR, BUSY], ids=str)
def test_what_is_gone_in_part_is_looked_at_when_it_comes_back(
    phases: Sequence[Sequence[str]], state: KeyState
) -> None:
    """X-11: an intent that waits while some of its keys are gone says so: a repeat would add a marker."""
    store = Store(answer=lambda number, bucket, item: state if item == "b" else None)
    _, (result,) = run(store, execution(*phases), failure_threshold_s=2.0)

    assert result.held is not None
    assert result.unknown


def test_x_6_a_listing_that_fails_is_never_a_success() -> None:
    """X-6: all versions of a key whose listing is throttled: the intent waits, nobody is reported
    `deleted`.
    """
    store = Versioned(listed=["v"], busy=MOST_TRIES)
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


DELETED, ABSENT = OutcomeKind.DELETED, OutcomeKind.ABSENT
BEFORE = Before(
    [["seen", "left"]],
    {0: (DELETED, "hidden"), 1: (ABSENT, "absent")},
    frozenset(["seen"]),
    5.0,
    ["before"],
)


def test_i_7_what_was_settled_before_is_counted_once_more_and_not_sent() -> None:
    """I7: of four keys two were gone when it waited: they keep outcome and effect, and the ids of
    requests.
    """
    store = Store()
    _, (result,) = run(store, execution(["a", "b", "seen", "left"], before=BEFORE))

    assert store.sent == [("b", ["seen", "left"])]
    assert words(result) == {"deleted": 3, "absent": 1}
    assert result.effects == {"hidden": 1, "absent": 1, "deleted": 2}
    assert [(key, outcome.kind) for key, outcome in result.named] == [("b", ABSENT)]
    assert result.request_ids == ["before", "r0"]


def test_x_11_what_waits_again_forgets_nothing_of_its_keys() -> None:
    """X-11: held a second time: gone stays gone, and what may be gone does since the same instant."""
    given = execution(["a", "b", "seen", "left"], before=BEFORE)
    _, (result,) = run(Store(), given, held={"b": "SlowDown"})

    assert result.unknown
    assert result.keys == KeyProgress(
        [DoneKeys(DELETED, "hidden", [0, 1]), DoneKeys(ABSENT, "absent", [1, 2])],
        [2, 3],
        datetime.fromtimestamp(5.0, UTC),
        ["before"],
    )


def test_x_16_a_key_under_which_another_object_stands_is_not_gone_when_its_intent_waits() -> None:
    """X-16: it is verified again when the intent comes back: its data must not go while it stands."""
    states = {"meta": CHANGED, "busy": BUSY}
    store = Store(objects={"b": {"meta", "busy", "data"}})
    store.answer = lambda number, bucket, item: states.get(key_of(item))
    conditions = {"meta": KeyCondition("meta", "e")}
    given = execution(["meta", "busy"], ["data"], conditions=conditions, earlier=Attempt())
    _, (result,) = run(store, given, failure_threshold_s=2.0)

    assert result.held is not None
    assert result.keys is not None
    assert (result.keys.done, result.keys.unknown) == ([], [0, 3])


def refused(store: Store, before: Before | None, keys: KeyProgress | None = None) -> Result:
    """What becomes of an intent of two phases that waited and is refused now."""
    action = DeleteObjects("b", (("a", "b"), ("seen", "left")))
    waited = copied(promised(action), keys=keys)
    return untried(action, waited, before, OutcomeKind.REFUSED, store)


def test_x_19_without_a_word_on_keys_each_is_looked_at_before_the_rest_is_refused() -> None:
    """X-19: whoever is told that nothing happened to a key must be able to find it."""
    store = Store(objects={"b": {"b", "seen"}})
    result = refused(store, None)

    assert sorted(store.verified) == ["a", "b", "left", "seen"]
    assert words(result) == {"absent": 2, "refused": 2}
    assert {key for key, outcome in result.named if outcome.kind is ABSENT} == {"a", "left"}
    assert (result.effects, result.held, result.unknown) == ({"absent": 2}, None, True)


def test_x_19_only_what_is_in_doubt_is_looked_at_before_the_rest_is_refused() -> None:
    """X-19: what is gone keeps its outcome; what was never sent is refused, be it there or not."""
    store = Store(objects={"b": set()})
    result = refused(store, BEFORE)

    assert store.verified == ["seen"]
    assert words(result) == {"deleted": 1, "absent": 2, "refused": 1}
    assert [(key, outcome.kind) for key, outcome in result.named] == [
        ("b", ABSENT),
        ("seen", ABSENT),
        ("left", OutcomeKind.REFUSED),
    ]
    assert (result.effects, result.held) == ({"hidden": 1, "absent": 2}, None)


def test_x_19_while_a_key_in_doubt_cannot_be_seen_nothing_is_refused() -> None:
    """X-19: the intent waits as it was, with all that was known of its keys."""
    known = KeyProgress([DoneKeys(DELETED, "hidden", [0, 1])], [2, 3], None, [])
    result = refused(Store(look_status=403), BEFORE, known)

    assert result.held is not None
    assert (result.keys, result.unknown) == (known, True)
