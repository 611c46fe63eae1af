"""A bucket in trouble holds its own intents: busy, missing, denied, not to be probed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.execute_stage import (
    BUSY,
    DENIED,
    ERROR,
    EXPIRED,
    LOST,
    MISSING,
    Store,
    execution,
    run,
    sizes,
    words,
)

from sexton.schemas.errors import EnvironmentFault
from sexton.storage import Ability, Delete, Effect, KeyState, Kind, NoReply, StoreRefused, Versioning
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt


def test_x_6_a_busy_store_is_waited_for_and_nothing_is_counted_twice() -> None:
    """X-6: twenty times SlowDown, then fine: every key is deleted once, none is a dead letter."""
    store = Store(answer=lambda number, bucket, item: BUSY if number < 20 else None)
    executor, (result,) = run(store, execution(["a", "b"]))

    assert words(result) == {"deleted": 2}
    assert result.held is None
    assert len(store.sent) == 21
    assert executor.sender.throttled == 20
    assert executor.failing() == {}


def test_x_6_a_store_that_takes_nothing_is_asked_with_few_keys() -> None:
    """X-6: after two refusals ten keys ask whether it takes some again; then requests grow to full ones."""
    store = Store(answer=lambda number, bucket, item: BUSY if number < 10 else None)
    names = [f"k{i:04d}" for i in range(2_500)]

    executor, results = run(store, *(execution(names[i : i + 500]) for i in range(0, 2_500, 500)))

    assert sizes(store)[:11] == [1000, 1000, *[10] * 9]
    assert sizes(store)[11] == 20
    assert max(sizes(store)[11:]) >= 500
    assert [words(result) for result in results] == [{"deleted": 500}] * 5
    assert store.objects["b"] == set()
    assert executor.sender.keys_sent == sum(sizes(store))
    sent = [item for _, items in store.sent[10:] for item in items]
    assert sorted(map(str, sent)) == names  # once each, after the refusals


def test_a_store_that_takes_small_requests_only_is_worked_off() -> None:
    """A store that refuses more than 100 keys at a time gets requests that it takes, most of the time."""
    store = Store()
    store.answer = lambda number, bucket, item: BUSY if len(store.sent[number][1]) > 100 else None

    _, (result,) = run(store, execution([f"k{i:04d}" for i in range(2_000)]))

    assert words(result) == {"deleted": 2_000}
    assert len(store.sent) < 100


@pytest.mark.parametrize("versioning", list(Versioning))
def test_x_13_a_bucket_that_is_busy_with_unknown_effect_is_held(versioning: Versioning) -> None:
    """X-13: where each repeat is verified first, failure threshold ends too: a look is no progress."""
    busy = KeyState(Kind.BUCKET, "ServiceUnavailable", "", 503, Effect.UNKNOWN)
    store = Store(answer=lambda number, bucket, item: busy, versioning=versioning)

    executor, (result,) = run(store, execution(["a", "b"]), failure_threshold_s=10.0)

    assert result.held is not None
    assert result.held.reason == "ServiceUnavailable"
    assert result.unknown
    assert executor.failing() == {"b": "ServiceUnavailable"}
    assert len(store.sent) < 40


@pytest.mark.parametrize("state", [MISSING, BUSY, DENIED])
def test_x_7_one_bad_bucket_holds_its_own_intents(state: KeyState) -> None:
    """X-7, X-13: a bucket that is missing, busy or denies every key is held; the other one is processed."""
    store = Store(answer=lambda number, bucket, item: state if bucket == "bad" else None)
    executor, (bad, good) = run(
        store, execution(["a", "b"], bucket="bad"), execution(["c"], bucket="good"), failure_threshold_s=2.0
    )

    assert bad.held is not None
    assert bad.held.reason == state.code
    assert not bad.unknown
    assert words(good) == {"deleted": 1}
    assert executor.failing() == {"bad": state.code}
    assert executor.healthy() == {"good"}


@pytest.mark.parametrize("one_goes", [False, True])
def test_x_7_a_thousand_denied_keys_are_a_bucket_that_denies_all_unless_one_went(one_goes: bool) -> None:
    """X-7: the others are not even tried then; where one went each is denied for itself."""
    store = Store(answer=lambda number, bucket, item: None if one_goes and item == "k0000" else DENIED)
    executor, (result,) = run(store, execution([f"k{n:04d}" for n in range(2_500)]))

    assert executor.failing() == ({} if one_goes else {"b": "AccessDenied"})
    assert words(result) == ({"deleted": 1, "dead-lettered": 2_499} if one_goes else {})
    assert sum(sizes(store)) == (2_500 if one_goes else 2_000)


@pytest.mark.parametrize(("failure_threshold_s", "requests"), [(0.5, 1), (50.0, 3)])
def test_x_13_a_bucket_that_asks_for_more_than_patience_is_held_at_once(
    failure_threshold_s: float, requests: int
) -> None:
    """X-13: nobody waits for it, and it is not asked again before its time; a shorter time is waited for."""
    busy = replace(BUSY, retry_after_s=1.0)
    store = Store(answer=lambda number, bucket, item: busy if number < 2 else None)
    executor, (result,) = run(store, execution(["a"]), failure_threshold_s=failure_threshold_s)

    assert len(store.sent) == requests
    assert (result.held is not None) is (requests == 1)
    assert executor.failing() == ({"b": "SlowDown"} if requests == 1 else {})


@pytest.mark.parametrize(
    "error",
    [
        NoReply("late", effect_unknown=True, code="ReadTimeout"),
        StoreRefused("busy", code="SlowDown", status=503),
    ],
    ids=lambda error: error.code,
)
def test_a_bucket_that_does_not_say_at_once_what_it_is_is_asked_again(error: Exception) -> None:
    """What passes closes no bucket: nothing is sent before the answer, and all of it after."""
    answers = iter([error])
    store = Store(probe_error=lambda bucket: next(answers, None))
    executor, (result,) = run(store, execution(["a"]))

    assert (words(result), executor.failing()) == ({"deleted": 1}, {})


def test_x_7_a_fault_of_everything_ends_the_task() -> None:
    """X-7: expired credentials are no key's and no bucket's: nothing is settled."""
    store = Store(answer=lambda number, bucket, item: EXPIRED)
    with pytest.raises(EnvironmentFault, match="ExpiredToken"):
        run(store, execution(["a"]))


def test_a_key_that_a_proxy_cannot_carry_does_not_close_its_bucket() -> None:
    """A bare 404 about one key of a bucket that works holds that key's intent and nothing else."""
    bare = KeyState(Kind.TRANSIENT, "404", "", 404)  # as storage tells it where the bucket is there
    store = Store(answer=lambda number, bucket, item: bare if item == "a\nb" else None)
    executor, (odd, plain) = run(store, execution(["a\nb"]), execution(["b"]))

    assert odd.held is not None
    assert words(plain) == {"deleted": 1}
    assert executor.failing() == {}


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


def test_x_7_credentials_that_end_while_a_bucket_is_asked_hold_everything() -> None:
    """X-7: what is wrong with everything is no answer about the bucket of a single denied key."""
    store = Store(answer=lambda number, bucket, item: DENIED if item == "a" else EXPIRED)

    with pytest.raises(EnvironmentFault, match="ExpiredToken"):
        run(store, execution(["a"]))


def test_a_single_denied_key_on_a_versioned_bucket_waits() -> None:
    """Where asking would leave a marker nothing is sent, and unknown is never a final outcome."""
    store = Store(answer=lambda number, bucket, item: DENIED, versioning=Versioning.ON)
    _, (result,) = run(store, execution(["a"]))

    assert result.held is not None
    assert sizes(store) == [1]


@pytest.mark.parametrize("state", [ERROR, LOST])
def test_a_key_that_never_succeeds_waits(state: KeyState) -> None:
    """X-5: after a number of tries the intent is held with an effect that nobody knows; others continue."""
    store = Store(answer=lambda number, bucket, item: state if item == "a" else None)
    _, (bad, good) = run(store, execution(["a", "x"]), execution(["b"]))

    assert bad.held is not None
    assert bad.unknown
    assert words(good) == {"deleted": 1}


@pytest.mark.parametrize("earlier", [None, Attempt()], ids=["never sent", "sent before"])
def test_a_held_bucket_is_not_asked_at_all(earlier: Attempt | None) -> None:
    """What the driver holds is deferred without a request, with the reason, and whether it may be gone."""
    store = Store()
    given = execution(["a"], earlier=earlier)
    _, (bad, good) = run(store, given, execution(["b"], bucket="ok"), held={"b": "SlowDown"})

    assert bad.held is not None
    assert (bad.held.reason, bad.unknown) == ("SlowDown", earlier is not None)
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
    """Without a probe nothing is sent; what passes is tried again while the failure threshold is not
    reached.
    """
    store = Store(probe_error=lambda bucket: error if bucket == "bad" else None)
    _, (bad, good) = run(
        store, execution(["a"], bucket="bad"), execution(["b"], bucket="ok"), failure_threshold_s=2.0
    )

    assert bad.held is not None
    assert bad.held.reason == held
    assert words(good) == {"deleted": 1}


def test_x_13_what_trips_our_own_reading_holds_that_bucket_alone() -> None:
    """X-13: a fault of our own in one bucket's answers: it waits, is logged, and others are processed."""
    store = Store(probe_error=lambda bucket: RuntimeError("a bug") if bucket == "bad" else None)
    executor, (bad, good) = run(store, execution(["a"], bucket="bad"), execution(["c"], bucket="good"))

    assert bad.held is not None
    assert (bad.held.reason, "a bug" in bad.held.detail) == ("UnreadableReply", True)
    assert (words(good), executor.failing()) == ({"deleted": 1}, {"bad": "UnreadableReply"})


@pytest.mark.parametrize("versioning", [Versioning.OFF, Versioning.ON])
@pytest.mark.parametrize("policy", [True, False], ids=["policy", "this key"])
def test_x_4_a_lone_denied_key(policy: bool, versioning: Versioning) -> None:
    """X-4, X-7: whether it is the key's or the bucket's is asked with a key of nobody, without a marker."""
    store = Store(versioning=versioning, batch_condition=Ability.YES)
    store.answer = lambda number, bucket, item: (
        DENIED
        if policy or item == "a"
        else KeyState(Kind.CHANGED, "PreconditionFailed", "", 412)
        if isinstance(item, Delete)
        else None
    )
    executor, (result,) = run(store, execution(["a"]))

    assert (result.held is not None) is policy
    assert words(result) == ({} if policy else {"dead-lettered": 1})
    assert executor.failing() == ({"b": "AccessDenied"} if policy else {})
    asked = store.sent[-1][1][0]
    assert isinstance(asked, Delete) is (versioning is Versioning.ON)


def test_x_4_a_lone_denied_key_where_conditions_are_not_checked() -> None:
    """Where a probe would leave a marker nothing is sent: unknown counts as the bucket's policy."""
    store = Store(versioning=Versioning.ON, answer=lambda number, bucket, item: DENIED)
    _, (result,) = run(store, execution(["a"]))

    assert result.held is not None
    assert sizes(store) == [1]


def test_x_13_a_bucket_that_is_closed_has_done_nothing_to_what_was_not_sent() -> None:
    """X-13: after a 503 of unknown effect only the keys of that request may be gone."""
    busy = KeyState(Kind.BUCKET, "ServiceUnavailable", "", 503, Effect.UNKNOWN)
    store = Store(answer=lambda number, bucket, item: busy)
    keys = [f"k{n:04d}" for n in range(2_500)]
    _, (result, later) = run(store, execution(keys), execution(["z"]), failure_threshold_s=0.1)

    sent = {item for _, items in store.sent for item in items}
    assert result.keys is not None
    assert later.keys is not None
    assert result.keys.unknown == [0, len(sent)]
    assert later.keys.unknown == []
    assert 0 < len(sent) < len(keys)
