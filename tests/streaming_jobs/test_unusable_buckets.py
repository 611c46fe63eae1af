"""P-10: an intent for a bucket that no waiting mends is one dead letter at once; its neighbours go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from tests.support.execute_stage import CUT, Store, execution, run, words
from tests.support.s3_recorder import Recorded, Reply, S3Recorder, recorder_of_this_process
from tests.support.task_work import NOW, Issuer, copied, promised, work_of, written

from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.events import OutcomeKind
from sexton.storage import BatchDeleter, Delete, KeyState, Kind, StoreRefused, StoreSettings
from sexton.streaming_jobs.reaper.decode import Record
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt
from sexton.streaming_jobs.reaper.work import settle, take

NO_SUCH_NAME = KeyState(Kind.UNUSABLE, "InvalidBucketName", "not valid", 400)
ELSEWHERE = (
    b"<Error><Code>PermanentRedirect</Code><Message>The bucket must be addressed using the "
    b"specified endpoint.</Message><Endpoint>far.example</Endpoint></Error>"
)
UNUSABLE = {
    "named": Reply(400, b"<Error><Code>InvalidBucketName</Code><Message>not valid</Message></Error>"),
    "far": Reply(301, ELSEWHERE),
    "region": Reply(400, b"<Error><Code>IllegalLocationConstraintException</Code></Error>"),
}
CLEAR = {
    "named": "InvalidBucketName",
    "far": "PermanentRedirect",
    "region": "IllegalLocationConstraintException",
    "logs--use1-az4--x-s3": "directory buckets (S3 Express One Zone) are not supported",
    "tenant:bucket": "not a bucket name: 'tenant:bucket'",
    "s3://good": "not a bucket name: 's3://good'",
    "good/a": "not a bucket name: 'good/a'",
}


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Recorder]:
    """A store with one good bucket, and some that it answers as above."""
    with recorder_of_this_process(monkeypatch) as recorder:
        recorder.create_bucket("good", {"a": b"", "b": b""})
        recorder.script(lambda request: UNUSABLE.get(request.bucket))
        yield recorder


def processed(s3: S3Recorder, *actions: events.Action) -> Sequence[Any]:
    """What is written back of intents about these, over the real way to the store."""
    codec = Codec()
    with BatchDeleter(StoreSettings(s3.url, requests_in_flight=4)) as deleter:
        task = work_of(Issuer(), deleter)  # type: ignore[arg-type]
        values = [promised(action) for action in actions]
        take(task, [Record(0, number, 0, b"tenant", value) for number, value in enumerate(values)])
        rows = settle(task)
    kinds: dict[str, Any] = {records.OUTCOMES: events.Outcome, records.DEAD_LETTERS: events.DeadLetter}
    kinds[records.DEFERRED] = events.DeferredIntent
    return [codec.decode(row.value, kinds[row.topic]) for row in rows]


@pytest.mark.parametrize("bad", CLEAR)
def test_p_10_one_dead_letter_at_once_and_the_neighbours_go_on(bad: str, s3: S3Recorder) -> None:
    """P-10: whatever is wrong with the bucket; a prefix and later phases there are dead, too."""
    written_back = processed(
        s3,
        events.DeleteObjects("good", (("a",),)),
        events.DeleteObjects(bad, (("a",), ("b",))),
        events.DeletePrefix(bad, "p/"),
        events.DeleteObjects("good", (("b",),)),
    )

    dead = [each for each in written_back if isinstance(each, events.DeadLetter)]
    outcomes = Counter(each.outcome for each in written_back if isinstance(each, events.Outcome))
    assert len(dead) == 2
    assert all(CLEAR[bad] in f"{each.reason}: {each.detail}" for each in dead)
    assert outcomes == {"deleted": 2, "dead-lettered": 2} or (
        outcomes == {"deleted": 2} and bad not in UNUSABLE
    )
    assert not [each for each in written_back if isinstance(each, events.DeferredIntent)]
    assert s3.objects("good") == {}


def test_p_10_a_bucket_that_is_given_up_holds_nothing_of_later_batches() -> None:
    """P-10: it is not among those that are held, and what was queued has its end key by key."""
    store = Store(answer=lambda number, bucket, item: NO_SUCH_NAME if bucket == "bad" else None)
    executor, (bad, good) = run(
        store, execution([f"k{n:04d}" for n in range(2500)], ["later"], bucket="bad"), execution(["c"])
    )

    assert (bad.held, words(bad), words(good)) == (None, {"dead-lettered": 2501}, {"deleted": 1})
    assert (executor.failing(), executor.said()) == ({}, {})
    assert len([bucket for bucket, _ in store.sent if bucket == "bad"]) <= 3


def test_p_10_of_what_may_be_gone_no_dead_letter_says_that_it_stays() -> None:
    """P-10: a key that was sent before, or broke off, waits; the others are dead."""

    def answer(number: int, bucket: str, item: str | Delete) -> KeyState | None:
        return CUT if item == "cut" and number == 0 else NO_SUCH_NAME

    _, (cut, _) = run(Store(answer=answer), execution(["cut"]), execution(["fresh"]))
    assert (cut.held is not None, cut.unknown) == (True, True)

    error = StoreRefused("no", code="InvalidBucketName", status=400)
    store = Store(probe_error=lambda bucket: error)
    _, (before, new) = run(store, execution(["a"], earlier=Attempt(0.0)), execution(["b"]))
    assert before.held is not None
    assert before.held.reason == "InvalidBucketName"
    assert words(new) == {"dead-lettered": 1}
    assert {outcome.reason for _, outcome in new.named} == {"InvalidBucketName"}


def test_p_10_what_has_waited_for_such_a_bucket_ends_when_it_comes_back(s3: S3Recorder) -> None:
    """P-10: an intent of the delay queue is decided at its next try, long before the age limit."""
    intent = promised(events.DeleteObjects("far", (("a",),)))
    waited = copied(intent, waiting_since=NOW - timedelta(hours=1), reason="PermanentRedirect")
    with BatchDeleter(StoreSettings(s3.url, requests_in_flight=4)) as deleter:
        found = written(deleter, waited)  # type: ignore[arg-type]

    assert {type(each) for each in found} == {events.Outcome, events.DeadLetter}
    (outcome,) = [each for each in found if isinstance(each, events.Outcome)]
    assert outcome.outcome == OutcomeKind.DEAD_LETTERED.value


def test_p_10_a_bucket_that_may_come_is_still_waited_for(s3: S3Recorder) -> None:
    """P-10, X-7: a bucket that is missing can be made, a denial taken back: both wait."""
    denied = Reply(403, b"<Error><Code>AccessDenied</Code></Error>")

    def answer(request: Recorded) -> Reply | None:
        return denied if request.bucket == "denied" else None

    s3.script(answer)
    written_back = processed(
        s3, events.DeleteObjects("missing", (("a",),)), events.DeleteObjects("denied", (("a", "b"),))
    )

    assert [type(each) for each in written_back] == [events.DeferredIntent] * 2
