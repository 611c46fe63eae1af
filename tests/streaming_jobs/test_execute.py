"""The execute stage against a store in memory whose answers are scripted, with a clock that stands still."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.schemas.errors import EnvironmentFault
from sexton.schemas.events import DeleteMode, DeleteObjects, KeyCondition
from sexton.storage import (
    MAX_KEYS,
    Abilities,
    BatchResult,
    Delete,
    Effect,
    KeyState,
    Kind,
    NoReply,
    StoreRefused,
    Versioning,
)
from sexton.storage.wire import RawReply
from sexton.streaming_jobs.budget import NoBudget
from sexton.streaming_jobs.reaper.execute import Executor, Limits
from sexton.streaming_jobs.reaper.execution import Execution, Result

Answer = Callable[[int, str, str | Delete], KeyState | None]

BUSY = KeyState(Kind.BUCKET, "SlowDown", "", 503)
CUT = KeyState(Kind.UNKNOWN, "ReadTimeout", "", 0, Effect.UNKNOWN)
ERROR = KeyState(Kind.TRANSIENT, "InternalError", "", 200, Effect.UNKNOWN)
DENIED = KeyState(Kind.FINAL, "AccessDenied", "no")
INVALID = KeyState(Kind.FINAL, "InvalidArgument", "no")
MISSING = KeyState(Kind.BUCKET, "NoSuchBucket", "", 404)
EXPIRED = KeyState(Kind.ENVIRONMENT, "ExpiredToken", "", 400)
CHANGED = KeyState(Kind.CHANGED, "PreconditionFailed", "", 412)
LOST = KeyState(Kind.UNACCOUNTED, "MissingFromReply", "", 200, Effect.UNKNOWN)


@dataclass
class Store:
    """Objects by bucket; `answer(number of the request, bucket, item)` may give a state instead of acting.

    `acts` tells whether the store deleted although the answer was `answer`'s.
    """

    objects: dict[str, set[str]] = field(default_factory=dict)
    answer: Answer = lambda number, bucket, item: None
    acts: bool = False
    versioning: Versioning = Versioning.OFF
    sent: list[tuple[str, list[str | Delete]]] = field(default_factory=list)
    looked: list[str] = field(default_factory=list)
    probes: list[str] = field(default_factory=list)
    probe_error: Callable[[str], Exception | None] = lambda bucket: None
    look_status: int | None = None

    @property
    def calls(self) -> Any:
        return self

    def exchange(self, method: str, bucket: str, key: str, query: object) -> RawReply:
        assert method == "HEAD"
        self.looked.append(key)
        status = self.look_status or (200 if key in self.objects.get(bucket, set()) else 404)
        return RawReply(status, "", b"")

    def check_bucket(self, bucket: str) -> None:
        pass

    def abilities(self, bucket: str) -> Abilities:
        return Abilities(bucket, versioning=self.versioning)

    def look_up(self, bucket: str) -> Abilities:
        error = self.probe_error(bucket)
        if error is not None:
            raise error
        return Abilities(bucket, versioning=self.versioning)

    def probe(self, bucket: str, under: str = "") -> Abilities:
        self.probes.append(bucket)
        return self.look_up(bucket)

    def delete_all(
        self, bucket: str, items: Sequence[str | Delete], *, bypass_governance: bool = False
    ) -> Future[BatchResult]:
        number = len(self.sent)
        self.sent.append((bucket, list(items)))
        states: dict[int, KeyState] = {}
        for index, item in enumerate(items):
            key = item if isinstance(item, str) else item.key
            state = self.answer(number, bucket, item)
            if state is not None:
                states[index] = state
            if state is None or self.acts:
                self.objects.get(bucket, set()).discard(key)
        future: Future[BatchResult] = Future()
        future.set_result(BatchResult(bucket, len(items), states, request_ids=(f"r{number}",)))
        return future


class Clock:
    """Seconds that pass only when asked for: a millisecond with each look, so that waits end at once."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.5
        return self.now


def execution(*phases: Sequence[str], bucket: str = "b", **given: Any) -> Execution:
    """One intent's execution."""
    mode = given.pop("mode", DeleteMode.HIDE)
    return Execution(DeleteObjects(bucket, tuple(tuple(p) for p in phases), mode), **given)


def run(
    store: Store, *executions: Execution, patience_s: float = 1000.0, held: Mapping[str, str] | None = None
) -> tuple[Executor, list[Result]]:
    """Run the stage over these intents."""
    for each in executions:
        keys = [key for phase in each.action.phases for key in phase]  # type: ignore[union-attr]
        store.objects.setdefault(each.action.bucket, set()).update(keys if not each.sent_before else ())
    limits = Limits(patience_s=patience_s)
    executor = Executor(store, NoBudget(), limits, held or {}, clock=Clock(), jitter=lambda: 0.0)
    for each in executions:
        executor.add(each)
    executor.finish()
    return executor, [executor.result(each) for each in executions]


def words(result: Result) -> dict[str, int]:
    """Keys by word, as plain text."""
    return {word.value: number for word, number in result.counts.items() if number}


def sizes(store: Store) -> list[int]:
    """How many items each request carried."""
    return [len(items) for _, items in store.sent]


@pytest.mark.parametrize(
    ("keys", "expected"), [(2500, [500, 1000, 1000]), (2001, [1, 1000, 1000]), (1000, [1000]), (1, [1])]
)
def test_x_1_keys_of_all_intents_fill_requests(keys: int, expected: list[int]) -> None:
    """X-1: intents of several tenants share requests of exactly 1,000 keys, the last holds the rest."""
    names = [f"k{i}" for i in range(keys)]
    store = Store()
    run(store, *(execution(names[i : i + 70]) for i in range(0, keys, 70)))

    assert sorted(sizes(store)) == expected


def test_x_1_duplicates_are_one_element_on_the_wire() -> None:
    """X-1: a key that several intents name, or one names twice, is sent once and counted for each."""
    store = Store()
    _, results = run(store, execution(["a", "b", "a"]), execution(["b", "c"]))

    assert sorted(key for _, items in store.sent for key in items) == ["a", "b", "c"]  # type: ignore[type-var]
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
    [(INVALID, {"dead-lettered": 2}), (KeyState(Kind.REFUSED, "NotUnicode"), {"refused": 2})],
)
def test_x_16_an_unclean_phase_stops_the_next(state: KeyState, expected: dict[str, int]) -> None:
    """What follows a phase of which a key is not gone is never sent, and shares its word."""
    store = Store(answer=lambda number, bucket, item: state if item == "meta" else None)
    _, (result,) = run(store, execution(["meta"], ["data"]))

    assert words(result) == expected
    assert "data" in store.objects["b"]
    assert sizes(store) == [1]


def test_x_4_exactly_the_transient_keys_are_sent_again() -> None:
    """X-4: of ten keys three fail and one is denied: the next request holds the three, nothing else."""
    keys = [f"k{i}" for i in range(10)]
    bad: dict[str, KeyState] = {"k1": ERROR, "k4": ERROR, "k7": ERROR, "k8": DENIED}
    store = Store(answer=lambda number, bucket, item: bad.get(str(item)) if number == 0 else None)
    _, results = run(store, *(execution([key]) for key in keys))

    assert [sorted(items) for _, items in store.sent] == [keys, ["k1", "k4", "k7"]]  # type: ignore[type-var]
    assert Counter(word for result in results for word in words(result)) == {"deleted": 9, "dead-lettered": 1}
    assert results[1].request_ids == ["r0", "r1"]


def test_what_is_sent_again_shares_requests() -> None:
    """Ten keys of each of three requests fail once: they go again in one request, not in three."""
    names = [f"k{i:04d}" for i in range(3000)]
    failing = set(names[::100])
    store = Store()

    def answer(number: int, bucket: str, item: str | Delete) -> KeyState | None:
        return ERROR if item in failing and number < 3 else None

    store.answer = answer
    _, (result,) = run(store, execution(names))

    assert sizes(store) == [1000, 1000, 1000, 30]
    assert words(result) == {"deleted": 3000}


def test_x_6_a_busy_store_is_waited_for_and_nothing_is_counted_twice() -> None:
    """X-6: twenty times SlowDown, then fine: every key is deleted once, none is a dead letter."""
    store = Store(answer=lambda number, bucket, item: BUSY if number < 20 else None)
    executor, (result,) = run(store, execution(["a", "b"]))

    assert words(result) == {"deleted": 2}
    assert result.held is None
    assert len(store.sent) == 21
    assert executor.troubled() == {}


@pytest.mark.parametrize("state", [MISSING, BUSY, DENIED])
def test_x_7_one_bad_bucket_holds_its_own_intents(state: KeyState) -> None:
    """X-7, X-13: a bucket that is missing, busy or denies every key is held; the other one is worked off."""
    store = Store(answer=lambda number, bucket, item: state if bucket == "bad" else None)
    executor, (bad, good) = run(
        store, execution(["a", "b"], bucket="bad"), execution(["c"], bucket="good"), patience_s=2.0
    )

    assert bad.held is not None
    assert bad.held.reason == state.code
    assert not bad.unknown
    assert words(good) == {"deleted": 1}
    assert executor.troubled() == {"bad": state.code}
    assert executor.healthy() == {"good"}


def test_x_7_a_fault_of_everything_ends_the_task() -> None:
    """X-7: expired credentials are no key's and no bucket's: nothing is settled."""
    store = Store(answer=lambda number, bucket, item: EXPIRED)
    with pytest.raises(EnvironmentFault, match="ExpiredToken"):
        run(store, execution(["a"]))


def test_a_key_that_a_proxy_cannot_carry_does_not_close_its_bucket() -> None:
    """A bare 404 about one key of a bucket that works holds that key's intent and nothing else."""
    bare = KeyState(Kind.BUCKET, "404", "", 404)
    store = Store(answer=lambda number, bucket, item: bare if item == "a\nb" else None)
    executor, (odd, plain) = run(store, execution(["a\nb"]), execution(["b"]))

    assert odd.held is not None
    assert words(plain) == {"deleted": 1}
    assert executor.troubled() == {}


def test_one_denied_key_is_its_own_end() -> None:
    """A key that is denied beside one that is not is a dead letter."""
    store = Store(answer=lambda number, bucket, item: DENIED if item == "a" else None)
    _, (first, second) = run(store, execution(["a"]), execution(["b"]))

    assert (words(first), words(second)) == ({"dead-lettered": 1}, {"deleted": 1})


@pytest.mark.parametrize("all_of_it", [True, False])
def test_x_7_a_single_denied_key_is_told_from_a_bucket_that_denies_all(all_of_it: bool) -> None:
    """X-7, X-13: alone in its bucket, a key is a dead letter only where the bucket lets us delete at all."""
    store = Store(answer=lambda number, bucket, item: DENIED if all_of_it or item == "a" else None)
    _, (result,) = run(store, execution(["a"]))

    assert (result.held is not None) is all_of_it
    assert words(result) == ({} if all_of_it else {"dead-lettered": 1})
    (asked,) = store.sent[1][1]
    assert str(asked).startswith(".sexton-probe/")


def test_a_single_denied_key_on_a_versioned_bucket_waits() -> None:
    """Where asking would leave a marker nothing is sent, and unknown is never a final word."""
    store = Store(answer=lambda number, bucket, item: DENIED, versioning=Versioning.ON)
    _, (result,) = run(store, execution(["a"]))

    assert result.held is not None
    assert sizes(store) == [1]


@pytest.mark.parametrize("state", [ERROR, LOST])
def test_a_key_that_never_succeeds_waits(state: KeyState) -> None:
    """X-5: after a number of tries the intent is held with an effect that nobody knows; others go on."""
    store = Store(answer=lambda number, bucket, item: state if item == "a" else None)
    _, (bad, good) = run(store, execution(["a", "x"]), execution(["b"]))

    assert bad.held is not None
    assert bad.unknown
    assert words(good) == {"deleted": 1}


@pytest.mark.parametrize("acts", [True, False])
def test_x_11_an_unknown_effect_on_a_versioned_bucket_is_looked_at(acts: bool) -> None:
    """X-11: a time-out is followed by a look; only what is still there is sent again."""
    store = Store(
        answer=lambda number, bucket, item: CUT if number == 0 else None,
        acts=acts,
        versioning=Versioning.ON,
    )
    _, (result,) = run(store, execution(["a"]))

    assert store.looked == ["a"]
    assert sizes(store) == ([1] if acts else [1, 1])
    assert words(result) == ({"absent": 1} if acts else {"deleted": 1})
    assert result.effects == ({"absent": 1} if acts else {"hidden": 1})


def test_an_unknown_effect_on_an_unversioned_bucket_is_repeated() -> None:
    """Without versions a repeat leaves no trace: no look is spent."""
    store = Store(answer=lambda number, bucket, item: CUT if number == 0 else None)
    _, (result,) = run(store, execution(["a"]))

    assert (store.looked, sizes(store), words(result)) == ([], [1, 1], {"deleted": 1})


def test_x_11_a_replay_on_a_versioned_bucket_looks_first() -> None:
    """X-11: of a replayed micro-batch only what is still there is sent: no second marker."""
    store = Store(objects={"b": {"there"}}, versioning=Versioning.ON)
    _, (result,) = run(store, execution(["gone", "there"], sent_before=True))

    assert sorted(store.looked) == ["gone", "there"]
    assert store.sent == [("b", ["there"])]
    assert words(result) == {"absent": 1, "deleted": 1}


@pytest.mark.parametrize(
    ("there", "sent", "said", "expected"),
    [
        (True, False, False, "changed"),
        (False, False, False, "absent"),
        (True, True, False, "absent"),
        (True, True, True, "changed"),
        (True, True, None, "changed"),
        (False, True, True, "absent"),
    ],
)
def test_x_19_a_failed_condition_is_looked_at(
    there: bool, sent: bool, said: bool | None, expected: str
) -> None:
    """X-19, J-5: `changed` only where the object was seen and it was not our own hand."""
    store = Store(objects={"b": {"a"} if there else set()}, answer=lambda number, bucket, item: CHANGED)
    given = execution(["a"], conditions={"a": KeyCondition("a", "e")}, sent_before=sent, was_changed=said)
    if not there and not sent:
        store.acts = True  # it was gone before, as far as the look can tell
    _, (result,) = run(store, given)

    assert words(result) == {expected: 1}


def test_x_19_a_final_error_about_a_key_that_was_sent_before_is_looked_at() -> None:
    """X-19: no dead letter for a key that is gone."""
    store = Store(objects={"b": {"there"}}, answer=lambda number, bucket, item: INVALID)
    _, (result,) = run(store, execution(["gone", "there"], sent_before=True))

    assert words(result) == {"absent": 1, "dead-lettered": 1}


def test_x_19_past_the_age_limit_only_what_is_there_is_a_dead_letter() -> None:
    """X-19: a busy bucket past the age limit: gone keys are absent, the others dead letters that say so."""
    store = Store(objects={"b": {"there", "data"}}, answer=lambda number, bucket, item: BUSY)
    given = execution(["gone", "there"], ["data"], sent_before=True, overdue=True)
    _, (result,) = run(store, given, patience_s=2.0)

    assert words(result) == {"absent": 1, "dead-lettered": 2}
    assert {fate.reason for key, fate in result.named if key == "there"} == {"expired"}


@pytest.mark.parametrize("sent", [True, False])
def test_x_19_what_cannot_be_looked_at_stays_pending_if_it_may_be_gone(sent: bool) -> None:
    """A key that was never sent is a dead letter unseen; one that may have gone goes on waiting."""
    store = Store(
        answer=lambda number, bucket, item: BUSY,
        look_status=503,
    )
    _, (result,) = run(store, execution(["a"], sent_before=sent, overdue=True), patience_s=2.0)

    assert (result.held is not None) is sent
    assert words(result) == ({} if sent else {"dead-lettered": 1})


def test_a_held_bucket_is_not_asked_at_all() -> None:
    """What the driver holds is deferred without a request, with the reason."""
    store = Store()
    _, (bad, good) = run(store, execution(["a"]), execution(["b"], bucket="ok"), held={"b": "SlowDown"})

    assert bad.held is not None
    assert bad.held.reason == "SlowDown"
    assert words(good) == {"deleted": 1}
    assert store.sent == [("ok", ["b"])]


@pytest.mark.parametrize(
    ("error", "held"),
    [
        (StoreRefused("no", code="NoSuchBucket", status=404), "NoSuchBucket"),
        (NoReply("late", effect_unknown=True, code="ReadTimeout"), "ReadTimeout"),
        (StoreRefused("busy", code="SlowDown", status=503), "SlowDown"),
    ],
)
def test_a_bucket_that_cannot_be_probed_is_held(error: Exception, held: str) -> None:
    """Without a probe nothing is sent; what passes is tried again while patience lasts."""
    store = Store(probe_error=lambda bucket: error if bucket == "bad" else None)
    _, (bad, good) = run(store, execution(["a"], bucket="bad"), execution(["b"], bucket="ok"), patience_s=2.0)

    assert bad.held is not None
    assert bad.held.reason == held
    assert words(good) == {"deleted": 1}


@pytest.mark.parametrize("keeps", [True, False])
def test_x_12_a_store_is_tried_once_a_key_needs_it(keeps: bool) -> None:
    """X-12: what is refused for want of knowledge is sent after a probe, or refused for good."""
    unknown = KeyState(Kind.REFUSED, "ConditionNotChecked", "never tried")
    store = Store()
    store.answer = lambda number, bucket, item: (
        unknown if isinstance(item, Delete) and not (keeps and store.probes) else None
    )
    _, (odd, plain) = run(store, execution(["a"], conditions={"a": KeyCondition("a", "e")}), execution(["b"]))

    assert store.probes == ["b"]
    assert words(odd) == ({"deleted": 1} if keeps else {"refused": 1})
    assert words(plain) == {"deleted": 1}


def test_conditions_and_versions_never_share_a_request_with_their_own_key() -> None:
    """One key, plain and with two conditions, goes in three requests: a batch names no key twice."""
    store = Store()
    conditions = {"a": KeyCondition("a", "e")}
    other = {"a": KeyCondition("a", "f")}
    run(store, execution(["a"]), execution(["a"], conditions=conditions), execution(["a"], conditions=other))

    assert sorted(map(str, (items for _, items in store.sent))) == sorted(
        map(str, ([*"a"], [Delete("a", "e")], [Delete("a", "f")]))
    )


@pytest.mark.parametrize(
    ("mode", "condition", "versioning", "sent"),
    [
        (DeleteMode.HIDE, KeyCondition("a", "e"), Versioning.ON, Delete("a", "e")),
        (DeleteMode.HIDE, KeyCondition("a", "e", "v"), Versioning.ON, Delete("a", "e")),
        (DeleteMode.HIDE, KeyCondition("a", None, "v"), Versioning.ON, None),
        (DeleteMode.ERASE_VERSION, KeyCondition("a", None, "v"), Versioning.ON, Delete("a", None, "v")),
        (DeleteMode.ERASE_VERSION, KeyCondition("a", "e"), Versioning.ON, None),
        (DeleteMode.ERASE_VERSION, None, Versioning.ON, None),
        (DeleteMode.ERASE_VERSION, None, Versioning.OFF, "a"),
        (DeleteMode.ERASE_ALL_VERSIONS, KeyCondition("a", "e"), Versioning.ON, None),
        (DeleteMode.ERASE_ALL_VERSIONS, None, Versioning.OFF, "a"),
        (DeleteMode.HIDE, None, Versioning.UNKNOWN, "a"),
    ],
)
def test_a_condition_that_no_store_checks_is_refused(
    mode: DeleteMode, condition: KeyCondition | None, versioning: Versioning, sent: str | Delete | None
) -> None:
    """What cannot be checked in the delete itself is not sent, and the intent says so."""
    store = Store(versioning=versioning)
    conditions = {} if condition is None else {"a": condition}
    _, (result,) = run(store, execution(["a"], mode=mode, conditions=conditions))

    assert [item for _, items in store.sent for item in items] == ([] if sent is None else [sent])
    assert words(result) == ({"refused": 1} if sent is None else {"deleted": 1})


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
    """Whatever the store answers: each intent has a word or waits, counts add up, and every word is true."""
    at = iter(range(10**9))

    def answer(number: int, bucket: str, item: str | Delete) -> KeyState | None:
        position = next(at)
        return states[position] if position < len(states) else None

    store = Store(answer=answer, acts=acts, versioning=versioning)
    executions = [execution(keys, bucket=bucket) for bucket, keys in asked]
    _, results = run(store, *executions, patience_s=5.0)

    for (bucket, keys), result in zip(asked, results, strict=True):
        if result.held is not None:
            continue
        assert result.counts.total() == len(keys)
        named = {key: fate.word.value for key, fate in result.named if fate.word is not None}
        for key in keys:
            if named.get(key, "deleted") in ("deleted", "absent"):
                assert key not in store.objects[bucket]
            elif not acts:
                assert key in store.objects[bucket]
