"""Replays through the whole chain: a micro-batch that is processed again tells and deletes the same."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame
from tests.support import s3_api
from tests.support.chain import NEVER, Chain, forget_last_commit
from tests.support.crashes import end_before_receipts, markers, without_a_look_back
from tests.support.intents import GONE, folded, promised, unchanged
from tests.support.replies import SLOW_DOWN, on_deletes, partly
from tests.support.s3_recorder import Recorded, Reply, S3Recorder
from tests.support.s3_state import etag_of
from tests.support.waits import until

from sexton.schemas import events, records
from sexton.schemas.settings import Settings
from sexton.storage import ObjectStore, StoreSettings
from sexton.streaming_jobs import spark as session
from sexton.streaming_jobs.reaper import job
from sexton.streaming_jobs.reaper.batch import MicroBatches
from sexton.streaming_jobs.reaper.job import Reaper
from sexton.streaming_jobs.reaper.recovery.attempts import SentBefore
from sexton.streaming_jobs.reaper.stop import StopFlag

pytestmark = [pytest.mark.real, pytest.mark.spark]


def commits(chain: Chain) -> list[str]:
    """The micro-batches that the checkpoint says are done."""
    folder = Path(str(chain.settings.checkpoint)) / "commits"
    return sorted(p.name for p in folder.iterdir() if p.name.isdigit()) if folder.exists() else []


@pytest.mark.parametrize("reported", [True, False], ids=["receipts written", "no receipt written"])
@pytest.mark.slow
def test_j_5_an_object_written_again_survives_the_replay(
    chain: Chain, s3: S3Recorder, reported: bool
) -> None:
    """J-5: the first object went or was another one from the start, what stands stays, the fold says so."""
    s3.create_bucket("bucket", {"a": b"first", "c": b"plain"})
    s3.buckets.fill("bucket", {"b": b"other"}, age_s=60)
    again, changed = unchanged(chain, "a", etag_of(b"first")), unchanged(chain, "b", etag_of(b"first"))
    plain = promised(chain, "c")
    chain.emit(again, changed, plain)
    if reported:
        chain.reap(s3_endpoint_url=s3.url)
        assert folded(chain, again, changed, plain) == [GONE, "changed", GONE]
        forget_last_commit(chain)
    else:
        end_before_receipts(chain, s3_endpoint_url=s3.url)
    assert sorted(s3.objects("bucket")) == ["b"]
    s3.buckets.fill("bucket", {"a": b"second"})

    with without_a_look_back():
        chain.reap(s3_endpoint_url=s3.url)

    assert s3.objects("bucket") == {"a": b"second", "b": b"other"}
    assert folded(chain, again, changed, plain) == [GONE, "changed", GONE]
    assert chain.dead_letters() == []


@pytest.mark.parametrize("batches", [1, 2])
def test_j_6_the_same_bytes_twice_with_an_object_written_in_between(
    chain: Chain, s3: S3Recorder, batches: int
) -> None:
    """J-6: one effect on the wire in one micro-batch, one final outcome, and the newer object survives."""
    s3.create_bucket("bucket", {"a": b"first"})
    intent = unchanged(chain, "a", etag_of(b"first"))
    value = chain.codec.encode(intent)
    chain.produce(*[value] * (3 - batches), partition=0)
    chain.reap(s3_endpoint_url=s3.url)
    assert len(s3.deletes()) == 1
    s3.buckets.fill("bucket", {"a": b"second"})
    if batches == 2:
        chain.produce(value, partition=0)

    chain.reap(s3_endpoint_url=s3.url)

    assert s3.objects("bucket") == {"a": b"second"}
    assert folded(chain, intent) == [GONE]


def split(monkeypatch: pytest.MonkeyPatch, tasks: int) -> None:
    """Have each topic read by so many tasks at least, so that a partition is split over several."""

    def options(settings: Settings, topic: str) -> dict[str, str]:
        return {**session.kafka_source_options(settings, topic), "minPartitions": str(tasks)}

    monkeypatch.setattr(job, "kafka_source_options", options)


def tasks_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tasks each micro-batch of first records was split into, as Spark has planned it."""
    found: list[int] = []
    real = MicroBatches.hold_until_done

    def counted(self: MicroBatches, batch: DataFrame, batch_id: int, topic: str, earlier: SentBefore) -> None:
        found.append(batch._jdf.queryExecution().toRdd().getNumPartitions())
        real(self, batch, batch_id, topic, earlier)

    monkeypatch.setattr(MicroBatches, "hold_until_done", counted)
    return found


@pytest.mark.slow
def test_j_7_a_key_that_is_written_again_and_again(
    chain: Chain, s3: S3Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J-7: 500 pairs of a guarded delete and a write, in a partition split over tasks: the newest stays.

    The first half is a backlog: tasks meet its pairs in any order. The other half is written as they work.
    """
    split(monkeypatch, 16)
    tasks = tasks_of(monkeypatch)
    s3.create_bucket("bucket", {"k": b"0"})
    settings = chain.settings.model_copy(update={"s3_endpoint_url": s3.url})
    store, producer = ObjectStore(StoreSettings.of(settings)), Producer(settings.kafka(acks="all"))
    intents = [unchanged(chain, "k", etag_of(str(i).encode())) for i in range(500)]

    def pair(number: int) -> None:
        producer.produce(settings.topic(records.INTENTS), chain.codec.encode(intents[number]), partition=0)
        producer.poll(0)
        store.put("bucket", "k", str(number + 1).encode())

    for number in range(250):
        pair(number)
    assert producer.flush(20) == 0
    stop = StopFlag(NEVER, lambda: None)
    reaper = Reaper(settings, chain.spark, stop)
    thread = threading.Thread(target=reaper.run)
    thread.start()
    try:
        until(s3.deletes, seconds=90)
        for number in range(250, 500):
            pair(number)
        assert producer.flush(20) == 0
        until(lambda: len(chain.words()) == 500 or not thread.is_alive(), seconds=90, every_s=0.5)
    finally:
        stop.set()
        thread.join(60)

    assert s3.objects("bucket") == {"k": b"500"}
    assert set(folded(chain, *intents)) <= {GONE, "changed"}
    assert not thread.is_alive()
    assert tasks[0] >= 16


@pytest.mark.slow
def test_j_7_keys_that_carry_generations(
    chain: Chain, s3: S3Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J-7: whatever task works what off first, every object of the newest generation survives."""
    split(monkeypatch, 16)
    tasks = tasks_of(monkeypatch)
    s3.create_bucket("bucket", {})
    names: list[list[str]] = []
    with chain.issuer() as issuer:
        generations = []
        for _ in range(6):
            generations.append(issuer.attach("node", "tenant").generation)
            names.append([f"k{i}-{generations[-1]:08x}" for i in range(100)])
            s3.buckets.fill("bucket", dict.fromkeys(names[-1], b""))
            for older, newer in zip(names[-2], names[-1], strict=True) if len(names) > 1 else ():
                # The owner unlinks what came before; the one it superseded still sends its deletes, too.
                chain.emit(
                    bound(chain, generations[-1], older),
                    bound(chain, generations[-2], newer),
                )

    chain.reap(s3_endpoint_url=s3.url)

    assert sorted(s3.objects("bucket")) == sorted(names[-1])
    assert sorted(o.outcome.value for o in chain.outcomes()) == ["deleted"] * 500 + ["stale"] * 500
    assert tasks[0] >= 16


def bound(chain: Chain, generation: int, key: str) -> events.DeletionIntent:
    """An intent that its generation guards."""
    return chain.intent("tenant", generation, (), action=events.DeleteObjects("bucket", ((key,),)))


def test_x_4_exactly_the_failed_keys_are_sent_again(chain: Chain, s3: S3Recorder) -> None:
    """X-4: of ten keys three fail and one is denied: the next request holds the three, nine are deleted."""
    names = [f"k{i}" for i in range(10)]
    s3.create_bucket("bucket", dict.fromkeys(names, b""))
    bad = {**dict.fromkeys(["k1", "k4", "k7"], "InternalError"), "k8": "AccessDenied"}
    s3.script(on_deletes(lambda request: partly(s3, request, bad) if not s3.deletes() else None))
    intents = [promised(chain, name) for name in names]
    chain.emit(*intents)

    chain.reap(s3_endpoint_url=s3.url)

    assert [sorted(request.keys) for request in s3.deletes()] == [names, ["k1", "k4", "k7"]]
    words = folded(chain, *intents)
    assert (words.count(GONE), words[8]) == (9, "dead-lettered")
    (dead,) = chain.dead_letters()
    assert (dead.keys, dead.reason) == (["k8"], "AccessDenied")
    assert list(s3.objects("bucket")) == ["k8"]


@pytest.mark.parametrize("keys", [10, 400])
@pytest.mark.slow
def test_x_6_a_store_that_is_busy_for_a_while_is_waited_for(chain: Chain, s3: S3Recorder, keys: int) -> None:
    """X-6: 20 times 503 SlowDown, then fine: one run settles all, nothing is lost or counted twice."""
    names = [f"k{i}" for i in range(3 * keys)]
    s3.create_bucket("bucket", dict.fromkeys(names, b""))
    s3.script(on_deletes(lambda request: SLOW_DOWN if len(s3.deletes()) < 20 else None))
    intents = [promised(chain, *names[i : i + keys]) for i in range(0, 3 * keys, keys)]
    chain.emit(*intents)

    counts = chain.reap(s3_endpoint_url=s3.url)

    assert (folded(chain, *intents), s3.objects("bucket")) == ([GONE] * 3, {})
    assert (counts.keys["deleted"], counts.intents) == (3 * keys, {"deleted": 3})
    assert (chain.dead_letters(), chain.deferred()) == ([], [])


@pytest.mark.slow
def test_x_7_what_is_wrong_with_everything_holds_the_micro_batch(chain: Chain, s3: S3Recorder) -> None:
    """X-7: one bucket of three has it: offsets stay, nothing is written while it lasts, then it drains.

    What the first attempt has sent already is known to be sent: `changed` is not said of what it deleted, and
    no second marker is made.
    """
    s3.create_bucket("bucket", {"a": b"", "b": b""})
    s3.create_bucket("flat", {"again": b"first"})
    s3.create_bucket("versions", {"v": b""}, versioning="Enabled")
    codes = [(403, "RequestTimeTooSkewed"), (400, "ExpiredToken"), (403, "InvalidAccessKeyId")]
    seen: list[Any] = []

    def script(request: Recorded) -> Reply | None:
        if request.bucket != "bucket" or len(seen) == len(codes):
            return None
        if not seen:
            until(lambda: not s3.objects("versions") and not s3.objects("flat"), seconds=20)
            s3.buckets.fill("flat", {"again": b"second"})
        written = (chain.outcomes(), chain.dead_letters(), chain.deferred())
        seen.append((commits(chain), *written, sorted(s3.objects("bucket"))))
        return s3_api.error_reply(*codes[len(seen) - 1], "no")

    s3.script(script)
    intents = [promised(chain, "a"), promised(chain, "b")]
    intents += [unchanged(chain, "again", etag_of(b"first"), bucket="flat")]
    intents += [promised(chain, "v", bucket="versions")]
    chain.emit(*intents)

    chain.reap(s3_endpoint_url=s3.url)

    assert seen == [([], [], [], [], ["a", "b"])] * 3
    assert (folded(chain, *intents), s3.objects("bucket")) == ([GONE] * 4, {})
    assert s3.objects("flat") == {"again": b"second"}
    assert markers(s3, "versions", ["v"]) == {"v": 1}
    assert (chain.dead_letters(), chain.deferred(), commits(chain)) == ([], [], ["0"])


def test_x_10_a_store_that_wants_md5_gets_it(chain: Chain, s3: S3Recorder) -> None:
    """X-10: a store that refuses a batch without Content-MD5 is found out; nothing is dead-lettered."""
    s3.buckets.traits.wants_md5 = True
    s3.create_bucket("bucket", {"a": b"", "b": b""})
    intent = promised(chain, "a", "b")
    chain.emit(intent)

    chain.reap(s3_endpoint_url=s3.url)

    assert (folded(chain, intent), s3.objects("bucket")) == ([GONE], {})
    assert (chain.dead_letters(), chain.deferred()) == ([], [])


@pytest.mark.slow
def test_x_11_a_lost_checkpoint_starts_over_without_harm(chain: Chain, s3: S3Recorder) -> None:
    """X-11: without its checkpoint everything is read again, and verified before it is sent: one marker."""
    s3.create_bucket("bucket", {"a": b"", "stays": b""}, versioning="Enabled")
    with chain.issuer() as issuer:
        generation = issuer.attach("node", "tenant").generation
    intent = bound(chain, generation, "a")
    chain.emit(intent)
    chain.reap(s3_endpoint_url=s3.url)
    assert chain.settings.checkpoint is not None
    shutil.rmtree(chain.settings.checkpoint)

    assert chain.reap(s3_endpoint_url=s3.url).records == 1

    assert (folded(chain, intent), chain.dead_letters(), chain.deferred()) == ([GONE], [], [])
    assert markers(s3, "bucket", ["a"]) == {"a": 1}
    assert sorted(s3.objects("bucket")) == ["stays"]


@pytest.mark.slow
def test_x_11_a_late_answer_and_a_replay_make_one_marker(chain: Chain, s3: S3Recorder) -> None:
    """X-11: answered too late, replayed, and read by a new checkpoint: one delete marker on each key."""
    s3.create_bucket("bucket", dict.fromkeys(["a", "b"], b""), versioning="Enabled")
    late = Reply(200, b"<DeleteResult/>", delay_s=2.0, act_first=True)
    s3.script(on_deletes(lambda request: late))
    intent = promised(chain, "a", "b")
    chain.emit(intent)

    chain.reap(s3_endpoint_url=s3.url, s3_read_timeout_s=0.5)
    assert folded(chain, intent) == [GONE]
    forget_last_commit(chain)
    with without_a_look_back():
        chain.reap(s3_endpoint_url=s3.url, s3_read_timeout_s=0.5)
        assert markers(s3, "bucket", ["a", "b"]) == {"a": 1, "b": 1}
        s3.script(None)
        chain.reap(s3_endpoint_url=s3.url, checkpoint=f"{chain.settings.checkpoint}-new")

    assert markers(s3, "bucket", ["a", "b"]) == {"a": 1, "b": 1}
    assert folded(chain, intent) == [GONE]
    assert chain.deferred() == []


@pytest.mark.parametrize("ways", [{"batch", "single"}, {"batch"}], ids=["never", "in single calls"])
def test_x_12_a_condition_that_the_store_ignores_is_not_sent(
    chain: Chain, s3: S3Recorder, ways: set[str]
) -> None:
    """X-12: found by the probe: refused where nothing checks it, else sent the way in which it is checked."""
    s3.buckets.traits.conditions_ignored = frozenset(ways)
    s3.create_bucket("bucket", {"a": b"new", "b": b"old"})
    wrong, right = unchanged(chain, "a", etag_of(b"old")), unchanged(chain, "b", etag_of(b"old"))
    chain.emit(wrong, right)

    chain.reap(s3_endpoint_url=s3.url)

    if "single" in ways:
        assert folded(chain, wrong, right) == ["refused", "refused"]
        assert sorted(s3.objects("bucket")) == ["a", "b"]
    else:
        assert folded(chain, wrong, right) == ["changed", GONE]
        assert list(s3.objects("bucket")) == ["a"]


@pytest.mark.parametrize("code", ["PreconditionFailed", "AccessDenied"])
@pytest.mark.parametrize("versioning", ["", "Enabled"])
@pytest.mark.slow
def test_x_19_a_replay_says_nothing_untrue_about_a_key_that_is_gone(
    chain: Chain, s3: S3Recorder, code: str, versioning: str
) -> None:
    """X-19: a condition or a right that fails after a crash makes no `changed` and no dead letter."""
    s3.create_bucket("bucket", {"a": b"first"}, versioning=versioning)
    intent = unchanged(chain, "a", etag_of(b"first"))
    chain.emit(intent)
    end_before_receipts(chain, s3_endpoint_url=s3.url)
    s3.script(on_deletes(lambda request: partly(s3, request, dict.fromkeys(request.keys, code))))

    chain.reap(s3_endpoint_url=s3.url)

    assert (folded(chain, intent), chain.dead_letters()) == ([GONE], [])
    assert markers(s3, "bucket", ["a"]) == {"a": 1 if versioning else 0}


@pytest.mark.slow
def test_x_19_a_busy_store_past_the_age_limit_after_a_crash(chain: Chain, s3: S3Recorder) -> None:
    """X-19: deleted, ended before settling, then only 503 past the age limit: `absent`, no dead letter."""
    s3.create_bucket("bucket", {"a": b""})
    intent = promised(chain, "a")
    chain.emit(intent)
    end_before_receipts(chain, s3_endpoint_url=s3.url)
    s3.script(on_deletes(lambda request: SLOW_DOWN))
    given: dict[str, Any] = {"s3_endpoint_url": s3.url, "reaper_patience_s": 0.2, "reaper_age_limit_s": 0.01}

    chain.reap(**given, reaper_defer_delays_s=(3600.0,))
    assert [d.effect_unknown for d in chain.deferred()] == [True]
    chain.reap(**given, reaper_defer_delays_s=(0.001,))

    assert (folded(chain, intent), chain.dead_letters()) == ([GONE], [])
