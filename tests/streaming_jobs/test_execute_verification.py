"""What was not told is verified, and what the store cannot check is not sent."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import formatdate

import pytest
from tests.support.execute_stage import (
    BUSY,
    CHANGED,
    CUT,
    DENIED,
    INVALID,
    Store,
    execution,
    run,
    sizes,
    words,
)

from sexton.schemas.events import DeleteMode, KeyCondition
from sexton.storage import Delete, KeyState, Kind, Versioning
from sexton.storage.states_of import key_state
from sexton.storage.wire import RawReply
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt


@pytest.mark.parametrize("acts", [True, False])
def test_x_11_an_unknown_effect_on_a_versioned_bucket_is_looked_at(acts: bool) -> None:
    """X-11: a time-out is followed by a look; only what is still there is sent again."""
    store = Store(
        answer=lambda number, bucket, item: CUT if number == 0 else None,
        acts=acts,
        versioning=Versioning.ON,
    )
    _, (result,) = run(store, execution(["a"]))

    assert store.verified == ["a"]
    assert sizes(store) == ([1] if acts else [1, 1])
    assert words(result) == ({"absent": 1} if acts else {"deleted": 1})
    assert result.effects == ({"absent": 1} if acts else {"hidden": 1})


def test_an_unknown_effect_on_an_unversioned_bucket_is_repeated() -> None:
    """Without versions a repeat leaves no trace: no look is spent."""
    store = Store(answer=lambda number, bucket, item: CUT if number == 0 else None)
    _, (result,) = run(store, execution(["a"]))

    assert (store.verified, sizes(store), words(result)) == ([], [1, 1], {"deleted": 1})


def test_x_11_a_replay_on_a_versioned_bucket_looks_first() -> None:
    """X-11: of a replayed micro-batch only what is still there is sent: no second marker."""
    store = Store(objects={"b": {"there"}}, versioning=Versioning.ON)
    _, (result,) = run(store, execution(["gone", "there"], earlier=Attempt()))

    assert sorted(store.verified) == ["gone", "there"]
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
    given = execution(
        ["a"], conditions={"a": KeyCondition("a", "e")}, earlier=Attempt(was_changed=said) if sent else None
    )
    if not there and not sent:
        store.acts = True  # it was gone before, as far as the look can tell
    _, (result,) = run(store, given)

    assert words(result) == {expected: 1}


@pytest.mark.parametrize(("age_s", "expected"), [(100, "changed"), (20, "absent"), (None, "absent")])
def test_j_5_what_stood_before_the_attempt_was_not_met_by_it(age_s: int | None, expected: str) -> None:
    """J-5: an attempt 50 s ago cannot have taken what was meant, where another object stood then already."""
    now = time.time()
    store = Store(answer=lambda number, bucket, item: CHANGED)
    store.headers = {"etag": '"e"', "date": formatdate(now)}
    if age_s is not None:
        store.headers["last-modified"] = formatdate(now - age_s)
    given = execution(["a"], conditions={"a": KeyCondition("a", "e")}, earlier=Attempt(now - 50))
    store.objects = {"b": {"a"}}
    _, (result,) = run(store, given)

    assert words(result) == {expected: 1}


@pytest.mark.parametrize("state", [INVALID, DENIED], ids=lambda state: state.code)
def test_x_19_a_final_error_about_a_key_that_was_sent_before_is_looked_at(state: KeyState) -> None:
    """X-19: no dead letter for a key that is gone, also where the store denies it beside one that goes."""
    store = Store(
        objects={"b": {"there"}}, answer=lambda number, bucket, item: state if item != "ok" else None
    )
    _, (result, _) = run(store, execution(["gone", "there"], earlier=Attempt()), execution(["ok"]))

    assert words(result) == {"absent": 1, "dead-lettered": 1}


def test_x_19_past_the_age_limit_only_what_is_there_is_a_dead_letter() -> None:
    """X-19: a busy bucket past the age limit: gone keys are absent, the others dead letters that say so."""
    store = Store(objects={"b": {"there", "data"}}, answer=lambda number, bucket, item: BUSY)
    given = execution(["gone", "there"], ["data"], earlier=Attempt(), overdue=True)
    _, (result,) = run(store, given, failure_threshold_s=2.0)

    assert words(result) == {"absent": 1, "dead-lettered": 2}
    assert {outcome.reason for key, outcome in result.named if key == "there"} == {"expired"}


@pytest.mark.parametrize("sent", [True, False])
def test_x_19_what_cannot_be_looked_at_stays_pending_if_it_may_be_gone(sent: bool) -> None:
    """A key that was never sent is a dead letter unseen; one that may have gone continues waiting."""
    store = Store(
        answer=lambda number, bucket, item: BUSY,
        look_status=503,
    )
    _, (result,) = run(
        store, execution(["a"], earlier=Attempt() if sent else None, overdue=True), failure_threshold_s=2.0
    )

    assert (result.held is not None) is sent
    assert words(result) == ({} if sent else {"dead-lettered": 1})


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


@pytest.mark.parametrize(
    ("mode", "condition", "versioning", "sent"),
    [
        (DeleteMode.HIDE, KeyCondition("a", "e"), Versioning.ON, Delete("a", "e")),
        (DeleteMode.HIDE, KeyCondition("a", "e"), Versioning.OFF, Delete("a", "e")),
        (DeleteMode.HIDE, KeyCondition("a", "e", "v"), Versioning.ON, None),
        (DeleteMode.HIDE, KeyCondition("a", "e", "null"), Versioning.OFF, None),
        (DeleteMode.HIDE, KeyCondition("a", None, "v"), Versioning.ON, None),
        (DeleteMode.HIDE, KeyCondition("a", None, "v"), Versioning.OFF, None),
        (DeleteMode.HIDE, KeyCondition("a", None, "null"), Versioning.OFF, None),
        (DeleteMode.ERASE_ALL_VERSIONS, KeyCondition("a", None, "v"), Versioning.OFF, None),
        (DeleteMode.ERASE_VERSION, KeyCondition("a", None, "v"), Versioning.ON, Delete("a", None, "v")),
        (
            DeleteMode.ERASE_VERSION,
            KeyCondition("a", None, "v"),
            Versioning.SUSPENDED,
            Delete("a", None, "v"),
        ),
        (DeleteMode.ERASE_VERSION, KeyCondition("a", None, "v"), Versioning.UNKNOWN, None),
        (DeleteMode.ERASE_VERSION, KeyCondition("a", None, "v"), Versioning.OFF, None),
        (DeleteMode.ERASE_VERSION, KeyCondition("a", None, "null"), Versioning.ON, None),
        (DeleteMode.ERASE_VERSION, KeyCondition("a", None, "null"), Versioning.SUSPENDED, None),
        (DeleteMode.ERASE_VERSION, KeyCondition("a", "e", "v"), Versioning.ON, None),
        (DeleteMode.ERASE_VERSION, KeyCondition("a", "e"), Versioning.ON, None),
        (DeleteMode.ERASE_VERSION, KeyCondition("a", "e"), Versioning.OFF, Delete("a", "e")),
        (DeleteMode.ERASE_VERSION, None, Versioning.ON, None),
        (DeleteMode.ERASE_VERSION, None, Versioning.OFF, "a"),
        (DeleteMode.ERASE_ALL_VERSIONS, KeyCondition("a", "e"), Versioning.ON, None),
        (DeleteMode.ERASE_ALL_VERSIONS, KeyCondition("a", "e"), Versioning.OFF, Delete("a", "e")),
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


@pytest.mark.parametrize(("acts", "expected"), [(True, {"absent": 1}), (False, {})])
def test_x_5_what_stays_unknown_is_looked_at_in_the_end(acts: bool, expected: dict[str, int]) -> None:
    """X-5: a reply that is useless every time: the object is gone, which a look tells, or it waits."""
    store = Store(answer=lambda number, bucket, item: CUT, acts=acts)
    executor, (result,) = run(store, execution(["a"]))

    assert words(result) == expected
    assert (result.held is None) is acts
    assert (sizes(store), store.verified) == ([1] * 6, ["a"])
    assert executor.failing() == {}


@pytest.mark.parametrize(("acts", "expected"), [(True, {"absent": 1}), (False, {"dead-lettered": 1})])
def test_x_5_a_key_both_deleted_and_failed_is_verified(acts: bool, expected: dict[str, int]) -> None:
    """X-5: of a key that a reply calls deleted and failed, and the next one failed, only a look tells."""
    both = key_state("AmbiguousReply", "named 2 times: Deleted, InvalidArgument")
    store = Store(answer=lambda number, bucket, item: INVALID if number else both, acts=acts)
    _, (result,) = run(store, execution(["a"]))

    assert (words(result), store.verified) == (expected, ["a"])


def test_j_5_what_an_attempt_of_unknown_effect_may_have_met_is_not_called_changed() -> None:
    """J-5: cut off, and then the condition fails: another object stands there, the one meant may be gone."""
    store = Store(answer=lambda number, bucket, item: CHANGED if number else CUT)
    _, (result,) = run(store, execution(["a"], conditions={"a": KeyCondition("a", "e")}))

    assert words(result) == {"absent": 1}


@pytest.mark.parametrize(("there", "expected"), [(False, "absent"), (True, "dead-lettered")])
def test_x_8_a_version_that_is_gone_is_no_dead_letter(there: bool, expected: str) -> None:
    """X-8: a store may call the id of an erased version invalid: it is verified first."""
    store = Store(answer=lambda number, bucket, item: INVALID, versioning=Versioning.ON)
    given = execution(["a"], mode=DeleteMode.ERASE_VERSION, conditions={"a": KeyCondition("a", None, "v1")})
    if not there:
        store.acts = True
    _, (result,) = run(store, given)

    assert words(result) == {expected: 1}


def test_x_8_versions_of_one_key_are_looked_at_one_by_one() -> None:
    """X-8: of two versions under one key one is gone: each has the outcome of its own look."""
    store = Store(answer=lambda number, bucket, item: INVALID, versioning=Versioning.ON)

    def by_version(method: str, bucket: str, key: str, query: Mapping[str, str]) -> RawReply:
        return RawReply(200 if query["versionId"] == "there" else 404, "", b"", {})

    store.exchange = by_version  # type: ignore[method-assign, assignment]
    is_permanent = DeleteMode.ERASE_VERSION
    names = ["gone", "there"]
    given = [execution(["a"], mode=is_permanent, conditions={"a": KeyCondition("a", None, v)}) for v in names]
    _, results = run(store, *given)

    assert [words(result) for result in results] == [{"absent": 1}, {"dead-lettered": 1}]


def test_x_8_a_version_that_cannot_be_looked_at_and_was_never_sent_before() -> None:
    """Nothing can have happened to it: the store's final outcome stands."""
    answer = lambda number, bucket, item: INVALID  # noqa: E731
    store = Store(answer=answer, versioning=Versioning.ON, look_status=403)
    given = execution(["a"], mode=DeleteMode.ERASE_VERSION, conditions={"a": KeyCondition("a", None, "v1")})
    _, (result,) = run(store, given)

    assert words(result) == {"dead-lettered": 1}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (Attempt(10.0), Attempt(20.0), Attempt(10.0)),
        (Attempt(10.0), Attempt(None), Attempt(None)),
        (Attempt(10.0, True), Attempt(20.0, False), Attempt(10.0, False)),
        (Attempt(10.0, True), Attempt(20.0, None), Attempt(10.0, None)),
        (Attempt(10.0, None), Attempt(20.0, False), Attempt(10.0, False)),
        (Attempt(10.0, True), Attempt(20.0, True), Attempt(10.0, True)),
    ],
)
def test_attempts_of_two_intents_at_one_key(one: Attempt, other: Attempt, both: Attempt, order: int) -> None:
    """Whatever the order, the one counts that may have deleted more."""
    first, second = (one, other)[::order]

    assert first.beside(second) == both
    assert first.beside(None) == first


def test_what_waited_too_long_and_cannot_be_read_waits_on() -> None:
    """A fault of our own in the last look harms nobody else, and gives no outcome."""
    store = Store(answer=lambda number, bucket, item: BUSY)

    def fails(*_: object) -> None:
        raise ValueError("a bug")

    store.exchange = fails  # type: ignore[method-assign, assignment]
    _, (result,) = run(store, execution(["a"], earlier=Attempt(), overdue=True), failure_threshold_s=2.0)

    assert result.held is not None
