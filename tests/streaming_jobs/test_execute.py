"""How the execute stage fills requests, in which order they go, and what is sent again."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.execute_stage import (
    BUSY,
    CHANGED,
    CUT,
    DENIED,
    ERROR,
    INVALID,
    LOST,
    MISSING,
    Store,
    execution,
    run,
    sizes,
    words,
)
from tests.support.task_work import unread

from sexton.schemas.events import DeletePrefix, KeyCondition, OutcomeKind
from sexton.storage import MAX_KEYS, Delete, KeyState, Kind, Versioning
from sexton.streaming_jobs.budget import NoBudget
from sexton.streaming_jobs.reaper.actions.delete_prefix.execution import PrefixExecution
from sexton.streaming_jobs.reaper.execute.dry_store import DryStore
from sexton.streaming_jobs.reaper.execute.execution import Execution
from sexton.streaming_jobs.reaper.execute.executor import Executor, Limits
from sexton.streaming_jobs.reaper.execute.items import key_of
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt


@pytest.mark.parametrize(
    ("keys", "expected"), [(2500, [500, 1000, 1000]), (2001, [1, 1000, 1000]), (1000, [1000]), (1, [1])]
)
def test_x_1_keys_of_all_intents_fill_requests(keys: int, expected: list[int]) -> None:
    """X-1: intents of several tenants share requests of exactly 1,000 keys, the last holds the rest."""
    names = [f"k{i}" for i in range(keys)]
    store = Store()
    run(store, *(execution(names[i : i + 70]) for i in range(0, keys, 70)))

    assert sorted(sizes(store)) == expected


@pytest.mark.parametrize("etag", [None, "e"], ids=["plain", "with a condition"])
def test_x_1_duplicates_are_one_element_on_the_wire(etag: str | None) -> None:
    """X-1: a key that several intents name, or one names twice, is sent once and counted for each."""
    store = Store()
    conditions = {} if etag is None else {name: KeyCondition(name, etag) for name in "abc"}
    _, results = run(
        store,
        execution(["a", "b", "a"], conditions=conditions),
        execution(["b", "c"], conditions=conditions),
    )

    assert sorted(key_of(item) for _, items in store.sent for item in items) == ["a", "b", "c"]
    assert [words(result) for result in results] == [{"deleted": 3}, {"deleted": 2}]


def test_buckets_are_never_mixed() -> None:
    """A request names keys of one bucket."""
    store = Store()
    run(store, execution(["a"]), execution(["a"], bucket="other"))

    assert sorted(store.sent) == [("b", ["a"]), ("other", ["a"])]


def test_request_ids_reach_the_intents_whose_keys_they_carried() -> None:
    """An intent whose keys went in two requests names both."""
    names = [f"k{i}" for i in range(MAX_KEYS + 1)]
    _, (first, second) = run(Store(), execution(names), execution(["z"]))

    assert first.request_ids == ["r0", "r1"]
    assert second.request_ids == ["r1"]


def test_a_phase_starts_after_the_one_before_is_acknowledged() -> None:
    """The commit object goes in a request of its own before its data, for all intents."""
    store = Store()
    run(store, execution(["meta"], ["data"]), execution(["plain"]))

    assert [sorted(items) for _, items in store.sent] == [["meta", "plain"], ["data"]]  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (INVALID, {"dead-lettered": 2}),
        (KeyState(Kind.REFUSED, "NotUnicode"), {"refused": 2}),
        (replace(DENIED, retain_until=datetime(2100, 1, 1, tzinfo=UTC)), {"refused": 2}),
        (replace(INVALID, legal_hold=True), {"refused": 2}),
    ],
    ids=["final", "refused", "under retention", "under legal hold"],
)
def test_x_16_an_unclean_phase_stops_the_next(state: KeyState, expected: dict[str, int]) -> None:
    """What follows a phase of which a key is not gone is never sent, and shares its outcome."""
    store = Store(answer=lambda number, bucket, item: state if item == "meta" else None)
    _, (result,) = run(store, execution(["meta"], ["data"]))

    assert words(result) == expected
    assert "data" in store.objects["b"]
    assert sizes(store) == [1]


def test_x_16_what_stays_for_good_refuses_the_phases_after_it() -> None:
    """Of a dead letter beside a changed key only what failed is replayed: its data must not go alone."""
    bad = {"x": INVALID, "meta": CHANGED}
    store = Store(answer=lambda number, bucket, item: bad.get(key_of(item)))
    conditions = {"meta": KeyCondition("meta", "e")}
    _, (result,) = run(store, execution(["x", "meta"], ["data"], conditions=conditions))

    assert words(result) == {"dead-lettered": 1, "changed": 1, "refused": 1}
    assert [key for key, outcome in result.named if outcome.kind is OutcomeKind.DEAD_LETTERED] == ["x"]
    assert "data" in store.objects["b"]


@pytest.mark.parametrize("there", [True, False], ids=["another object", "nothing"])
def test_x_16_another_object_in_an_earlier_phase_stops_the_next(there: bool) -> None:
    """Though the one that was meant may be gone by our own hand: what stands there may need the data."""
    store = Store(objects={"b": {"data", *(["meta"] if there else [])}})
    store.answer = lambda number, bucket, item: CHANGED if key_of(item) == "meta" else None
    conditions = {"meta": KeyCondition("meta", "e")}
    _, (result,) = run(store, execution(["meta"], ["data"], conditions=conditions, earlier=Attempt()))

    assert words(result) == ({"absent": 1, "refused": 1} if there else {"absent": 1, "deleted": 1})
    assert ("data" in store.objects["b"]) is there


def test_x_4_exactly_the_transient_keys_are_sent_again() -> None:
    """X-4: of ten keys three fail and one is denied: the next request holds the three, nothing else."""
    keys = [f"k{i}" for i in range(10)]
    bad: dict[str, KeyState] = {"k1": ERROR, "k4": ERROR, "k7": ERROR, "k8": DENIED}
    store = Store(answer=lambda number, bucket, item: bad.get(str(item)) if number == 0 else None)
    _, results = run(store, *(execution([key]) for key in keys))

    assert [sorted(items) for _, items in store.sent] == [keys, ["k1", "k4", "k7"]]  # type: ignore[type-var]
    assert Counter(kind for result in results for kind in words(result)) == {"deleted": 9, "dead-lettered": 1}
    assert results[1].request_ids == ["r0", "r1"]


@pytest.mark.parametrize("etag", [None, "e"], ids=["plain", "with a condition"])
def test_what_is_sent_again_shares_requests(etag: str | None) -> None:
    """Ten keys of each of three requests fail once: they go again in one request, not in three."""
    names = [f"k{i:04d}" for i in range(3000)]
    failing = set(names[::100])
    store = Store()

    def answer(number: int, bucket: str, item: str | Delete) -> KeyState | None:
        return ERROR if key_of(item) in failing and number < 3 else None

    store.answer = answer
    conditions = {} if etag is None else {name: KeyCondition(name, etag) for name in names}
    _, (result,) = run(store, execution(names, conditions=conditions))

    assert sizes(store) == [1000, 1000, 1000, 30]
    assert words(result) == {"deleted": 3000}


def test_what_is_sent_again_names_no_key_twice() -> None:
    """A key that failed plainly and with two conditions goes again in three requests."""
    items = [execution(["a", "b"]), *(execution(["a"], conditions={"a": KeyCondition("a", e)}) for e in "ef")]
    store = Store(answer=lambda number, bucket, item: ERROR if number < 3 else None)
    run(store, *items)

    again = [[key_of(item) for item in sent] for _, sent in store.sent[3:]]
    assert sorted(key for keys in again for key in keys) == ["a", "a", "a", "b"]
    assert all(len(set(keys)) == len(keys) for keys in again)


def test_conditions_and_versions_never_share_a_request_with_their_own_key() -> None:
    """One key, plain and with two conditions, goes in three requests: a batch names no key twice."""
    store = Store()
    conditions = {"a": KeyCondition("a", "e")}
    other = {"a": KeyCondition("a", "f")}
    run(store, execution(["a"]), execution(["a"], conditions=conditions), execution(["a"], conditions=other))

    assert sorted(map(str, (items for _, items in store.sent))) == sorted(
        map(str, ([*"a"], [Delete("a", "e")], [Delete("a", "f")]))
    )


_STATES = st.sampled_from([None, None, None, ERROR, BUSY, CUT, DENIED, INVALID, MISSING, LOST])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["b", "c"]), st.lists(st.text("abcdef", min_size=1, max_size=3), min_size=1)
        ),
        min_size=1,
        max_size=8,
    ),
    st.lists(_STATES, min_size=1, max_size=30),
    st.booleans(),
    st.sampled_from([Versioning.OFF, Versioning.ON]),
)
def test_every_intent_ends_and_its_words_are_true(
    asked: list[tuple[str, list[str]]], states: list[KeyState | None], acts: bool, versioning: Versioning
) -> None:
    """Whatever the store answers: each intent has an outcome or waits, counts add up, and every outcome is
    true.
    """
    at = iter(range(10**9))

    def answer(number: int, bucket: str, item: str | Delete) -> KeyState | None:
        position = next(at)
        return states[position] if position < len(states) else None

    store = Store(answer=answer, acts=acts, versioning=versioning)
    executions = [execution(keys, bucket=bucket) for bucket, keys in asked]
    _, results = run(store, *executions, failure_threshold_s=5.0)

    for (bucket, keys), result in zip(asked, results, strict=True):
        if result.held is not None:
            continue
        assert result.counts.total() == len(keys)
        named = {key: outcome.kind.value for key, outcome in result.named if outcome.kind is not None}
        for key in keys:
            if named.get(key, "deleted") in ("deleted", "absent"):
                assert key not in store.objects[bucket]
            elif not acts:
                assert key in store.objects[bucket]


@pytest.mark.parametrize("allowed", [True, False])
def test_retention_is_bypassed_only_for_who_asks_and_where_the_reaper_may(allowed: bool) -> None:
    """Two intents on one bucket, one asks for it: they share no request, and only its own says so."""
    store = Store(objects={"b": {"asks", "silent"}})
    executor = Executor(store, NoBudget(), Limits(allow_bypass=allowed))
    asks, silent = execution(["asks"]), execution(["silent"])
    asks.action = replace(asks.action, bypass_governance=True)
    for each in (asks, silent):
        executor.add(each)
    executor.finish()

    flags = {key: flag for (_, keys), flag in zip(store.sent, store.bypassed, strict=True) for key in keys}
    assert flags == {"asks": allowed, "silent": False}


def test_x_17_a_dry_run_lists_no_prefix() -> None:
    """X-17: it reaches no store, and reports of a prefix what it would of keys."""
    executor, given = (
        Executor(DryStore(unread), NoBudget(), dry=True),
        PrefixExecution(DeletePrefix("b", "p/")),
    )
    executor.add(given)
    executor.finish()

    assert words(executor.result(given)) == {"deleted": 1}


def test_request_ids_are_those_that_carried_the_keys() -> None:
    """Of three conditions on two keys each outcome names its own request, also where one key had to wait."""
    store = Store()

    def bound(key: str, etag: str) -> Execution:
        return execution([key], conditions={key: KeyCondition(key, etag=etag)})

    _, results = run(store, bound("k", "e1"), bound("k", "e2"), bound("j", "e"))

    assert [[str(getattr(item, "etag", "")) for item in items] for _, items in store.sent] == [
        ["e1", "e"],
        ["e2"],
    ]
    assert [result.request_ids for result in results] == [["r0"], ["r1"], ["r0"]]


def test_a_key_without_a_condition_names_its_request_beside_one_that_has_one() -> None:
    """One intent's keys of both kinds go in two requests: it names both."""
    given = execution(["a", "b"], conditions={"a": KeyCondition("a", etag="e")})
    _, (result,) = run(Store(), given)

    assert result.request_ids == ["r0", "r1"]


def test_a_key_that_waited_for_the_probe_names_its_request() -> None:
    """What is refused until the store was tried has the id of the request that took it in the end."""
    refused = KeyState(Kind.REFUSED, "ConditionNotChecked", "", 0)
    store = Store(answer=lambda number, bucket, item: None if store.probes else refused)

    _, (result,) = run(store, execution(["a"], conditions={"a": KeyCondition("a", etag="e")}))

    assert words(result) == {"deleted": 1}
    assert result.request_ids == ["r0", "r1"]


def test_requests_go_out_while_intents_are_still_added() -> None:
    """Once the bucket has told what it is nothing waits for the end of the task's records."""
    store = Store({"b": {"k"}})
    executor = Executor(store, NoBudget(), Limits())
    for number in range(200):
        executor.add(execution([f"{number}/{n}" for n in range(MAX_KEYS)]))
        if store.sent:
            break
        time.sleep(0.01)

    assert store.sent
    executor.finish()
    assert sum(sizes(store)) == MAX_KEYS * (number + 1)
