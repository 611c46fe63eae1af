"""What a bucket holds waits and comes back, on a real broker, with a store whose answers are scripted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import s3_api
from tests.support.chain import Chain
from tests.support.intents import GONE, folded, promised
from tests.support.replies import NO_BUCKET, SLOW_DOWN, on_bucket, on_deletes, partly
from tests.support.running import running
from tests.support.s3_recorder import Recorded, Reply, S3Recorder

from sexton.schemas import events, records

pytestmark = [pytest.mark.real, pytest.mark.spark]


@pytest.mark.slow
def test_x_7_x_13_bad_buckets_hold_their_own_intents_and_they_come_back(chain: Chain, s3: S3Recorder) -> None:
    """X-7, X-13: a bucket that is busy, missing or denies every key holds its own; others continue."""
    codes = {
        "busy": "SlowDown",
        "missing": "NoSuchBucket",
        "denied": "AccessDenied",
        "denies": "AccessDenied",
    }
    for bucket in ("busy", "denied", "denies", "good"):
        s3.create_bucket(bucket, {"a": b"", "b": b""})
    denied = s3_api.error_reply(403, "AccessDenied", "Access Denied")

    def script(request: Recorded) -> Reply | None:
        if request.bucket == "busy":
            return SLOW_DOWN
        deletes = request.is_delete_objects or request.method == "DELETE"
        if request.bucket == "denied" and deletes:
            return denied
        if request.bucket == "denies" and request.is_delete_objects:
            return partly(s3, request, dict.fromkeys(request.keys, "AccessDenied"))
        return denied if request.bucket == "denies" and deletes else None

    s3.script(script)
    bad = [promised(chain, key, bucket=bucket) for bucket in codes for key in ("a", "b")]
    good = promised(chain, "a", "b", bucket="good")
    chain.emit(*bad, good)

    counts = chain.reap(s3_endpoint_url=s3.url, reaper_patience_s=0.5, reaper_defer_delays_s=(3600.0,))

    assert chain.words() == {good.intent_id: "deleted"}
    assert counts.intents == {"deferred": 8, "deleted": 1}
    waiting = sorted(chain.deferred(), key=lambda d: d.first.offset)
    assert [(d.first.partition, d.first.offset) for d in waiting] == [(0, n) for n in range(8)]
    assert [d.reason for d in waiting] == [code for code in codes.values() for _ in range(2)]
    assert all(d.waiting_since is not None and d.attempt == 1 for d in waiting)
    assert counts.failing == codes
    assert chain.dead_letters() == []
    assert all(s3.objects(bucket).keys() == {"a", "b"} for bucket in ("busy", "denied", "denies"))

    s3.script(None)
    s3.create_bucket("missing", {"a": b"", "b": b""})
    counts = chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=(0.001,))

    assert folded(chain, *bad, good) == [GONE] * 9
    assert (counts.returned, [s3.objects(bucket) for bucket in codes]) == (8, [{}] * 4)
    assert (len(chain.deferred()), chain.dead_letters()) == (8, [])
    assert chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=(0.001,)).records == 0


@pytest.mark.slow
def test_delays_grow_and_nothing_is_rewritten_while_it_waits(chain: Chain, s3: S3Recorder) -> None:
    """Each failed attempt is one record in the next tier; what is not due is not touched."""
    s3.create_bucket("bad", {"a": b""})
    s3.script(on_bucket("bad", SLOW_DOWN))
    chain.emit(promised(chain, "a", bucket="bad"))
    slow: dict[str, Any] = {"s3_endpoint_url": s3.url, "reaper_patience_s": 0.2}

    chain.reap(**slow, reaper_defer_delays_s=(3600.0, 7200.0))
    chain.reap(**slow, reaper_defer_delays_s=(3600.0, 7200.0))
    assert len(chain.deferred()) == 1
    chain.reap(**slow, reaper_defer_delays_s=(0.001, 7200.0))

    messages = chain.messages(records.DEFERRED)
    assert [(m.partition(), d.attempt) for m, d in zip(messages, chain.deferred(), strict=True)] == [
        (0, 1),
        (1, 2),
    ]
    one, two = chain.deferred()
    assert one.waiting_since == two.waiting_since
    assert one.raw_value == two.raw_value


@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.slow
def test_x_19_past_the_age_limit_a_key_that_is_gone_is_no_dead_letter(
    chain: Chain, s3: S3Recorder, gone: bool
) -> None:
    """X-19: a 503 past the age limit: `absent` for what is gone, a dead letter for what is there."""
    s3.create_bucket("bad", {} if gone else {"a": b""})
    s3.script(on_deletes(lambda request: SLOW_DOWN))
    (asked,) = chain.emit(promised(chain, "a", bucket="bad"))
    given: dict[str, Any] = {"s3_endpoint_url": s3.url, "reaper_patience_s": 0.2, "reaper_age_limit_s": 0.01}

    chain.reap(**given, reaper_defer_delays_s=(3600.0,))
    assert (chain.outcomes(), len(chain.deferred())) == ([], 1)
    chain.reap(**given, reaper_defer_delays_s=(0.001,))

    assert chain.words() == {asked: "absent" if gone else "dead-lettered"}
    assert [d.reason for d in chain.dead_letters()] == ([] if gone else ["expired"])
    if not gone:
        (dead,) = chain.dead_letters()
        assert (dead.keys, dead.position.offset, dead.raw_value) == (["a"], 0, chain.deferred()[0].raw_value)


@pytest.mark.slow
def test_a_guarded_intent_is_judged_by_its_first_position_when_it_comes_back(
    chain: Chain, s3: S3Recorder
) -> None:
    """J-8: accepted before its successor was issued, it passes after an hour of waiting too."""
    s3.create_bucket("bad", {"a": b""})
    s3.script(on_bucket("bad", SLOW_DOWN))
    with chain.issuer() as issuer:
        old = issuer.attach("node-a", "tenant").generation
        (asked,) = chain.emit(chain.intent("tenant", old, (), action=events.DeleteObjects("bad", (("a",),))))
        chain.reap(s3_endpoint_url=s3.url, reaper_patience_s=0.2, reaper_defer_delays_s=(3600.0,))
        issuer.attach("node-b", "tenant")
        (late,) = chain.emit(chain.intent("tenant", old, (), action=events.DeleteObjects("bad", (("b",),))))
    s3.script(None)

    chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=(0.001,))

    assert chain.words() == {asked: "deleted", late: "stale"}


def test_garbage_in_the_waiting_room_is_a_dead_letter(chain: Chain, s3: S3Recorder) -> None:
    """What is no deferred intent becomes a dead letter with its raw bytes and place; neighbours continue."""
    s3.create_bucket("bucket", {"a": b""})
    intent = promised(chain, "a")
    topic_id = chain.topic_id(records.INTENTS)
    good = events.DeferredIntent(
        events.Position(topic_id, 0, 0),
        intent.emitted_at,
        "test",
        "",
        1,
        None,
        None,
        chain.codec.encode(intent),
    )
    chain.emit(promised(chain, "x"))
    chain.produce(b"garbage", chain.codec.encode(good), b"", partition=0, topic=records.DEFERRED)

    chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=(0.001,))

    assert chain.words()[intent.intent_id] == "deleted"
    dead = sorted(chain.dead_letters(), key=lambda d: d.position.offset)
    assert [(d.topic.rpartition(".")[2], d.position.offset, d.raw_value) for d in dead] == [
        (records.DEFERRED, 0, b"garbage"),
        (records.DEFERRED, 2, b""),
    ]


@pytest.mark.slow
def test_barriers_carry_the_oldest_position_that_waits(chain: Chain, s3: S3Recorder) -> None:
    """History is kept for what waits: each barrier names the oldest first position without an outcome."""
    s3.create_bucket("bad", {"a": b""})
    s3.create_bucket("good", {"c": b""})
    s3.script(on_bucket("bad", SLOW_DOWN))
    slow: dict[str, Any] = {
        "s3_endpoint_url": s3.url,
        "reaper_patience_s": 0.2,
        "reaper_defer_delays_s": (3600.0,),
    }
    chain.emit(promised(chain, "c", bucket="good"))
    chain.reap(**slow)
    chain.emit(promised(chain, "a", bucket="bad"), promised(chain, "c", bucket="good"))
    chain.reap(**slow)
    chain.emit(promised(chain, "c", bucket="good"))
    chain.reap(**slow)

    barriers = [e for e in chain.generation_events() if isinstance(e, events.Barrier)]
    reported = [list(b.unsettled.offsets)[:1] for b in barriers if b.unsettled is not None]
    assert reported == [[0], [1], [1]]


@pytest.mark.slow
def test_what_is_held_comes_back_while_the_reaper_runs(chain: Chain, s3: S3Recorder) -> None:
    """A running reaper brings held intents back by itself, beside new ones."""
    s3.create_bucket("bad", {"a": b""})
    s3.create_bucket("good", {"b": b""})
    s3.script(on_bucket("bad", NO_BUCKET))
    quick = {"s3_endpoint_url": s3.url, "reaper_patience_s": 0.3, "reaper_defer_delays_s": (1.0, 2.0)}
    (held,) = chain.emit(promised(chain, "a", bucket="bad"))
    with running(chain, **quick) as reaper:
        reaper.until(lambda: len(chain.deferred()) >= 2)
        (other,) = chain.emit(promised(chain, "b", bucket="good"))
        reaper.until(lambda: other in chain.words())
        assert held not in chain.words()
        s3.script(None)
        reaper.until(lambda: held in chain.words())

    assert chain.words() == {held: "deleted", other: "deleted"}
