"""The final outcome on what waited past the age limit: about what was asked for, and about one intent
alone.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.execute_stage import BUSY, CHANGED, INVALID, Store, execution, run, words
from tests.support.replies import SLOW_DOWN, on_deletes
from tests.support.s3_recorder import S3Recorder

from sexton.schemas.errors import EnvironmentFault
from sexton.schemas.events import DeleteMode, DeleteObjects, KeyCondition, OutcomeKind
from sexton.storage import BatchDeleter, Delete, StoreRefused
from sexton.streaming_jobs.budget import NoBudget
from sexton.streaming_jobs.reaper.actions.delete_objects.execution import ObjectsExecution
from sexton.streaming_jobs.reaper.execute.executor import Executor, Limits
from sexton.streaming_jobs.reaper.execute.expiry import expired, listed
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome, Presence
from sexton.streaming_jobs.reaper.execute.result import Result
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt


def expire(deleter: BatchDeleter, action: DeleteObjects, *conditions: KeyCondition) -> Result:
    """What becomes of an overdue intent whose bucket is busy."""
    executor = Executor(deleter, NoBudget(), Limits(failure_threshold_s=0.2))
    named = {each.key: each for each in conditions}
    given = ObjectsExecution(action, earlier=Attempt(), overdue=True, conditions=named)
    executor.add(given)
    executor.finish()
    return executor.result(given)


def test_x_19_versions_under_a_marker_are_there(recorder: S3Recorder, deleter: BatchDeleter) -> None:
    """A key that its marker hides is not absent for one that asked for all its versions to go."""
    recorder.create_bucket("bucket", {"hidden": b"x", "hidden-too": b"x"}, versioning="Enabled")
    deleter.delete_all("bucket", ["hidden"]).result(10)
    deleter.probe("bucket")
    recorder.script(on_deletes(lambda request: SLOW_DOWN))
    action = DeleteObjects("bucket", (("hidden", "never"),), DeleteMode.ERASE_ALL_VERSIONS)

    result = expire(deleter, action)

    assert words(result) == {"dead-lettered": 1, "absent": 1}
    assert [key for key, outcome in result.named if outcome.reason == "expired"] == ["hidden"]


@pytest.mark.parametrize("phases", [(("v", "w"),), (("a",), ("v", "w"))], ids=["first phase", "later phase"])
def test_x_19_a_version_is_looked_at_by_its_id(
    recorder: S3Recorder, deleter: BatchDeleter, phases: tuple[tuple[str, ...], ...]
) -> None:
    """A version that its marker hides is there, in a phase that never began, too."""
    recorder.create_bucket("bucket", {"a": b"x", "v": b"x"}, versioning="Enabled")
    ids = {name: recorder.versions("bucket", name)[0].version_id for name in ("a", "v")}
    deleter.delete_all("bucket", ["v"]).result(10)
    recorder.script(on_deletes(lambda request: SLOW_DOWN))
    conditions = [KeyCondition(name, version_id=ids.get(name, ids["a"])) for name in ("a", "v", "w")]

    result = expire(deleter, DeleteObjects("bucket", phases, DeleteMode.ERASE_VERSION), *conditions)

    dead = {key for key, outcome in result.named if outcome.reason == "expired"}
    assert dead == {"v", *(key for phase in phases[:-1] for key in phase)}
    assert words(result)["absent"] == 1  # w has no such version


@pytest.mark.parametrize("mode", [DeleteMode.HIDE, DeleteMode.ERASE_VERSION])
def test_x_19_a_bucket_that_never_said_what_it_is_is_looked_at_as_the_intent_asks(
    mode: DeleteMode, recorder: S3Recorder, deleter: BatchDeleter
) -> None:
    """X-19: held all the time: a hidden key is gone, but its version is there; nothing is sent or refused."""
    recorder.create_bucket("bucket", {"hidden": b"x", "there": b"x"}, versioning="Enabled")
    ids = {name: recorder.versions("bucket", name)[0].version_id for name in ("hidden", "there")}
    deleter.delete_all("bucket", ["hidden"]).result(10)
    sent = len(recorder.deletes())
    named = {name: KeyCondition(name, version_id=ids.get(name, ids["there"])) for name in (*ids, "never")}
    conditions = named if mode is DeleteMode.ERASE_VERSION else {}
    action = DeleteObjects("bucket", (("hidden", "never"), ("there",)), mode)
    given = ObjectsExecution(action, earlier=Attempt(), overdue=True, conditions=conditions)
    executor = Executor(deleter, NoBudget(), Limits(), {"bucket": "SlowDown"})

    executor.add(given)
    executor.finish()
    result = executor.result(given)

    there = {"there"} if mode is DeleteMode.HIDE else {"hidden", "there"}
    assert {key for key, outcome in result.named if outcome.reason == "expired"} == there
    assert words(result) == {"dead-lettered": len(there), "absent": 3 - len(there)}
    assert (result.held, len(recorder.deletes())) == (None, sent)


def test_x_19_what_is_old_does_not_age_what_is_fresh() -> None:
    """Two intents that ask for one key: the old one ends, the fresh one waits with its bucket."""
    store = Store(answer=lambda number, bucket, item: BUSY)
    _, (old, fresh) = run(store, execution(["a"], overdue=True), execution(["a"]), failure_threshold_s=2.0)

    assert (words(old), old.held) == ({"dead-lettered": 1}, None)
    assert (words(fresh), fresh.held is not None) == ({}, True)


def test_a_refused_key_does_not_keep_the_others_waiting_for_ever() -> None:
    """Past the age limit what waits ends, whatever became of its neighbours."""
    store = Store(answer=lambda number, bucket, item: BUSY)
    conditions = {"both": KeyCondition("both", "e", "v")}
    given = execution(["both", "a"], conditions=conditions, overdue=True)
    _, (result,) = run(store, given, failure_threshold_s=2.0)

    assert (words(result), result.held) == ({"refused": 1, "dead-lettered": 1}, None)


def test_x_16_past_the_age_limit_what_a_final_word_blocks_is_refused() -> None:
    """X-16: it waits for nobody: its outcome is not that of the key which stands in its way; nothing goes."""
    store = Store(answer=lambda number, bucket, item: CHANGED)
    conditions = {"meta": KeyCondition("meta", "e")}
    _, (result,) = run(store, execution(["meta"], ["data"], conditions=conditions, overdue=True))

    assert words(result) == {"changed": 1, "refused": 1}
    assert store.sent == [("b", [Delete("meta", "e")])]


def test_x_19_past_the_age_limit_a_final_word_stands_beside_what_waited() -> None:
    """X-19: only the key that was held is a dead letter for that; the other one keeps the store's reason."""
    states = {"bad": INVALID, "held": BUSY}
    store = Store(answer=lambda number, bucket, item: states[str(item)])
    _, (result,) = run(store, execution(["bad", "held"], overdue=True), failure_threshold_s=2.0)

    assert [(key, outcome.reason) for key, outcome in result.named] == [
        ("bad", "InvalidArgument"),
        ("held", "expired"),
    ]


HELD = ItemOutcome(None, "SlowDown", "busy")


@pytest.mark.parametrize("maybe_sent", [False, True])
@pytest.mark.parametrize("presence", list(Presence))
def test_x_19_the_final_outcome_of_what_was_held_too_long(presence: Presence, maybe_sent: bool) -> None:
    """X-19: what is gone is absent; only what may be gone unseen waits on, and is remembered as that."""
    found = expired(HELD, presence, maybe_sent=maybe_sent)

    if presence is Presence.ABSENT:
        assert (found.kind, found.unknown) == (OutcomeKind.ABSENT, False)
    elif presence is Presence.UNKNOWN and maybe_sent:
        assert (found.kind, found.reason, found.unknown) == (None, "SlowDown", True)
    else:
        assert (found.kind, found.reason, found.unknown) == (OutcomeKind.DEAD_LETTERED, "expired", False)
        assert found.detail.endswith("busy")


def test_x_19_a_listing_that_does_not_come_shows_nothing() -> None:
    """X-19: only an answer tells; what is wrong with everything is nobody's final outcome."""

    def raising(code: str, status: int) -> Callable[[], bool]:
        def found() -> bool:
            raise StoreRefused("no", code=code, status=status)

        return found

    assert [listed(lambda: True), listed(lambda: False)] == [Presence.PRESENT, Presence.ABSENT]
    assert listed(raising("SlowDown", 503)) is Presence.UNKNOWN
    assert listed(raising("NoSuchBucket", 404)) is Presence.UNKNOWN
    with pytest.raises(EnvironmentFault):
        listed(raising("ExpiredToken", 400))
