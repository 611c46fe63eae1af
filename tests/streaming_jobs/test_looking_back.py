"""P-11, I2: what is looked up at a start is about the very intent, whole, and ends in one outcome."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.support.chain import Chain, forget_last_commit
from tests.support.crashes import markers
from tests.support.intents import GONE, folded, promised
from tests.support.replies import SLOW_DOWN, on_deletes, partly
from tests.support.s3_recorder import S3Recorder
from tests.support.topics import cut

from sexton.schemas import events, records
from sexton.schemas.errors import EnvironmentFault, UndecodableRecord
from sexton.streaming_jobs.reaper.recovery.lock import CheckpointLock

pytestmark = [pytest.mark.real, pytest.mark.spark]

NAMES = ["a", "b", "c", "d"]
LATER: dict[str, Any] = {"reaper_patience_s": 0.2, "reaper_defer_delays_s": (0.001, 3600.0)}
DUE: dict[str, Any] = {"reaper_patience_s": 0.2, "reaper_defer_delays_s": (0.001, 0.001)}


@pytest.fixture
def s3(s3: S3Recorder) -> S3Recorder:
    """The recorder with a bucket that hides what is deleted."""
    s3.create_bucket("bucket", dict.fromkeys(NAMES, b"x"), versioning="Enabled")
    return s3


def anew(chain: Chain) -> str:
    """The path of a new checkpoint."""
    return f"{chain.settings.checkpoint}-new"


def copy_of(
    chain: Chain, intent: events.DeletionIntent, first: events.Position, **given: Any
) -> events.DeferredIntent:
    """A copy of an intent as the reaper would have written it."""
    value = chain.codec.encode(intent)
    return events.DeferredIntent(
        **{
            "first": first,
            "first_written_at": datetime.now(UTC),
            "reason": "SlowDown",
            "detail": "",
            "attempt": 1,
            "retry_at": None,
            "raw_key": None,
            "raw_value": value,
            **given,
        }
    )


def write_copy(
    chain: Chain,
    copy: events.DeferredIntent,
    *,
    partition: int = 0,
    intent_id: str | bytes | None = None,
    at_ms: int | None = None,
) -> None:
    """Write a copy to the delay queue."""
    producer = Producer(chain.settings.kafka(acks="all"))
    headers: Any = [] if intent_id is None else [("intent-id", intent_id)]
    extra: dict[str, Any] = {} if at_ms is None else {"timestamp": at_ms}
    producer.produce(
        chain.settings.topic(records.DEFERRED),
        chain.codec.encode(copy),
        partition=partition,
        headers=headers,
        **extra,
    )
    assert producer.flush(20) == 0


def end_before_waiting_commit(chain: Chain) -> None:
    """Bring the checkpoint back to before the last commit of the delay queue."""
    folder = Path(str(chain.settings.checkpoint)) / "sexton-waiting"
    last = max((p for p in folder.iterdir() if p.name.isdigit()), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()


@pytest.mark.slow
def test_a_copy_from_another_topic_is_about_no_record_of_this_one(chain: Chain, s3: S3Recorder) -> None:
    """I2: `intents` was made again and `deferred` was not: the offsets of its copies are those of others."""
    chain.emit(promised(chain, "a"))
    chain.reap(s3_endpoint_url=s3.url)
    intent = promised(chain, "b")
    chain.emit(intent)
    old = copy_of(chain, promised(chain, "c"), events.Position("the-old-topics-id", 0, 1))
    write_copy(chain, old, intent_id="an-old-one")

    chain.reap(s3_endpoint_url=s3.url, **LATER, checkpoint=anew(chain))

    assert folded(chain, intent) == [GONE]


@pytest.mark.slow
def test_a_dead_letter_without_its_outcome_is_half_of_it(chain: Chain, s3: S3Recorder) -> None:
    """I2: a reaper ended between the two: keys that the dead letter does not name get their outcome."""
    intent = promised(chain, "a", "b")
    chain.emit(intent)
    s3.script(on_deletes(lambda request: partly(s3, request, dict.fromkeys({"b"}, "AccessDenied"))))
    chain.reap(s3_endpoint_url=s3.url)
    assert folded(chain, intent) == ["dead-lettered"]
    for message in chain.messages(records.OUTCOMES):
        cut(chain, records.OUTCOMES, (message.offset() or 0) + 1, message.partition() or 0)
    forget_last_commit(chain)

    chain.reap(s3_endpoint_url=s3.url)

    assert folded(chain, intent) == ["dead-lettered"]
    assert markers(s3, "bucket", ["a"]) == {"a": 1}


@pytest.mark.slow
def test_a_waiting_intent_that_is_processed_once_more_ends_once(chain: Chain, s3: S3Recorder) -> None:
    """P-11: ended after the next copy was written and before the delay queue's commit."""
    intent = promised(chain, "a")
    chain.emit(intent)
    s3.script(on_deletes(lambda request: SLOW_DOWN))
    chain.reap(s3_endpoint_url=s3.url, **LATER)
    assert [d.attempt for d in chain.deferred()] == [1, 2]
    end_before_waiting_commit(chain)
    s3.script(None)

    chain.reap(s3_endpoint_url=s3.url, **LATER)
    chain.reap(s3_endpoint_url=s3.url, **DUE)

    assert folded(chain, intent) == [GONE]
    assert markers(s3, "bucket", ["a"]) == {"a": 1}
    assert len(chain.outcomes()) == 1


@pytest.mark.slow
def test_a_waiting_intent_that_was_held_ends_once(
    chain: Chain, s3: S3Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-11: held after the next copy was written, tried again by the same process."""
    intent = promised(chain, "a")
    chain.emit(intent)
    s3.script(on_deletes(lambda request: SLOW_DOWN))
    real, calls = CheckpointLock.check, []

    def check(self: CheckpointLock) -> None:
        calls.append(1)
        if len(calls) == 4:
            s3.script(None)
            raise EnvironmentFault("nobody answers")
        real(self)

    monkeypatch.setattr(CheckpointLock, "check", check)
    chain.reap(s3_endpoint_url=s3.url, **LATER)
    chain.reap(s3_endpoint_url=s3.url, **DUE)

    assert folded(chain, intent) == [GONE]
    assert markers(s3, "bucket", ["a"]) == {"a": 1}
    assert len(chain.outcomes()) == 1


@pytest.mark.slow
def test_a_clock_that_went_back_loses_no_copy(chain: Chain, s3: S3Recorder) -> None:
    """I2: of two copies in one delay the later one continues, also where it says an earlier time."""
    chain.emit(promised(chain, "d"))
    chain.reap(s3_endpoint_url=s3.url)
    intent = promised(chain, "a")
    chain.emit(intent)
    copy = copy_of(chain, intent, events.Position(chain.topic_id(records.INTENTS), 0, 1))
    chain.configure(records.DEFERRED, "message.timestamp.type", "CreateTime")
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    write_copy(chain, copy, intent_id=intent.intent_id, at_ms=now_ms)
    write_copy(chain, copy, intent_id=intent.intent_id, at_ms=now_ms - 5000)
    chain.configure(records.DEFERRED, "message.timestamp.type", "LogAppendTime")

    chain.reap(s3_endpoint_url=s3.url, **DUE, checkpoint=anew(chain))

    assert folded(chain, intent) == [GONE]
    assert markers(s3, "bucket", ["a"]) == {"a": 1}


@pytest.mark.slow
def test_bytes_that_were_sent_again_as_they_were_are_not_done_twice(chain: Chain, s3: S3Recorder) -> None:
    """P-11: a raw copy says of which intent it is by its bytes alone."""
    intent = promised(chain, "a")
    chain.emit(intent)
    first = events.Position(chain.topic_id(records.INTENTS), 0, 0)
    write_copy(chain, copy_of(chain, intent, first, reason="replay", effect_unknown=True))
    chain.reap(s3_endpoint_url=s3.url, **DUE)
    outcomes = len(chain.outcomes())
    assert folded(chain, intent) == [GONE]
    for version in [v for v in s3.versions("bucket", "a") if v.is_marker]:
        with s3.buckets.lock:
            s3.buckets.of("bucket").delete("a", version.version_id)

    chain.reap(s3_endpoint_url=s3.url, **DUE, checkpoint=anew(chain))

    assert "a" in s3.objects("bucket")
    assert len(chain.outcomes()) == outcomes


@pytest.mark.slow
def test_what_is_no_receipt_says_nothing_and_stops_nothing(chain: Chain, s3: S3Recorder) -> None:
    """I2: garbage, tombstones, positions that no topic has, and headers that are no text."""
    done = promised(chain, "a")
    chain.emit(done)
    chain.reap(s3_endpoint_url=s3.url)
    (real,) = chain.outcomes()
    for offset in (2**48 + 1, 2**62, -1, -(2**48) + 1):
        for partition in (0, 1, 2**31 - 1, -1):
            at = replace(real.position, partition=partition, offset=offset)
            chain.produce(chain.codec.encode(replace(real, position=at)), topic=records.OUTCOMES)
    for topic in (records.OUTCOMES, records.DEAD_LETTERS):
        chain.produce(None, b"", b"garbage", chain.codec.encode(done), topic=topic)
    intents = [promised(chain, "b"), promised(chain, "c")]
    chain.emit(intents[0], partition=1)
    chain.emit(intents[1], partition=1)
    waits = promised(chain, "d")
    chain.emit(waits)
    first = events.Position(chain.topic_id(records.INTENTS), 0, 1)
    write_copy(chain, copy_of(chain, waits, first), intent_id=b"\xff")

    chain.reap(s3_endpoint_url=s3.url, **DUE, checkpoint=anew(chain))

    ended = set()
    for message in chain.messages(records.OUTCOMES):
        with suppress(UndecodableRecord):
            ended.add(chain.codec.decode(message.value() or b"", events.Outcome).intent_id)
    assert ended == {each.intent_id for each in (done, *intents, waits)}


@pytest.mark.slow
def test_an_outcome_whose_dead_letter_was_not_written_is_half_of_it(chain: Chain, s3: S3Recorder) -> None:
    """I2: keys that failed are named in the end, also where retention has been at the dead letters."""
    intent = promised(chain, "a", "b")
    chain.emit(intent)
    s3.script(on_deletes(lambda request: partly(s3, request, dict.fromkeys({"b"}, "AccessDenied"))))
    chain.reap(s3_endpoint_url=s3.url)
    (letter,) = chain.dead_letters()
    for partition in range(4):
        (offset,) = chain.produce(b"older", topic=records.DEAD_LETTERS, partition=partition)
        cut(chain, records.DEAD_LETTERS, offset + 1, partition)
    other = replace(letter, position=replace(letter.position, topic_id="another"))
    for partition in range(4):
        chain.produce(chain.codec.encode(other), topic=records.DEAD_LETTERS, partition=partition)
    forget_last_commit(chain)

    chain.reap(s3_endpoint_url=s3.url)

    assert [x.keys for x in chain.dead_letters() if x.position == letter.position] == [["b"]]
