"""The transport against librdkafka's mock cluster."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError
from tests.support.children import exit_code, forked

from sexton.consumers.topics import read
from sexton.deploy.local import LocalStack
from sexton.producers import (
    ConnectionClosed,
    DeliveryFailed,
    DeliveryPending,
    InvalidSettings,
    Limits,
    ProducerFailed,
    Sexton,
)
from sexton.producers.testing import FakeIssuer
from sexton.schemas.events import DeletionIntent
from sexton.schemas.settings import load

Connect = Callable[..., Sexton]
Arrived = Callable[[], list[DeletionIntent]]
NOBODY = "127.0.0.1:1"


def test_a_receipt_says_where_the_intent_stands(connect: Connect, arrived: Arrived) -> None:
    """Waiting returns the position of each intent once Kafka has acknowledged it."""
    receipt = connect().attach("t").delete("bucket", ["a"])
    (where,) = receipt.wait(10).values()

    assert where.offset == 0
    assert [intent.intent_id for intent in arrived()] == list(receipt.intent_ids)


def test_a_record_tells_what_it_is_without_a_decoder(connect: Connect, kafka: str) -> None:
    """The key is the tenant in UTF-8, the headers carry kind, intent id and tenant."""
    receipt = connect().attach("tenant ☃").delete("bucket", ["a"])
    receipt.wait(10)
    (record,) = read(load({"SEXTON_KAFKA_BOOTSTRAP_SERVERS": kafka}), "intents")

    assert record.key == "tenant ☃".encode()
    assert record.header("sexton-type") == "DeletionIntent"
    assert record.header("intent-id") == receipt.intent_ids[0]
    assert record.header("tenant") == "tenant ☃"


def test_a_tenants_intents_go_to_javas_partition(connect: Connect, kafka: str) -> None:
    """The partition is that of the Java client's murmur2, so that all writers agree."""
    sexton = connect()
    for name in ("a", "tenant-42", "é"):
        (where,) = sexton.attach(name).delete("bucket", ["k"]).wait(10).values()

        assert where.partition == (_murmur2(name.encode()) & 0x7FFFFFFF) % 4


def test_f_7_close_with_an_unreachable_broker_is_in_time(connect: Connect) -> None:
    """F-7: `close(2)` returns within 3 s with the ids of what was not delivered."""
    sexton = connect(kafka_bootstrap_servers=NOBODY)
    tenant = sexton.attach("t")
    receipts = [tenant.delete("bucket", [f"k{i}"]) for i in range(1_000)]
    began = time.monotonic()
    undelivered = sexton.close(2)

    assert time.monotonic() - began < 3
    assert undelivered == tuple(i for receipt in receipts for i in receipt.intent_ids)
    with pytest.raises(DeliveryFailed):
        receipts[0].wait(0)


@pytest.mark.slow
def test_f_7_a_small_queue_pushes_back_and_loses_nothing(connect: Connect, arrived: Arrived) -> None:
    """F-7: a queue of 3 and 10,000 emits: each waits for room, all arrive, in order."""
    sexton = connect(limits=Limits(queue_messages=3, linger=0))
    tenant = sexton.attach("t")
    receipts = [tenant.delete("bucket", [f"k{i}"]) for i in range(10_000)]
    for receipt in receipts:
        receipt.wait(30)

    assert [i.intent_id for i in arrived()] == [i for receipt in receipts for i in receipt.intent_ids]


@pytest.mark.parametrize("before", [[], ["first", "queued"]])
def test_f_7_a_forked_child_emits_exactly_its_own(
    connect: Connect, arrived: Arrived, before: list[str]
) -> None:
    """F-7: after a fork parent and child each deliver what they emitted, once."""
    sexton = connect(limits=Limits(linger=0.2))
    tenant = sexton.attach("t")
    for key in before:
        receipt = tenant.delete("bucket", [key])
        if key == "first":
            receipt.wait(10)  # of the other one nothing is known at the fork
    child = forked(lambda: _child(sexton, "child"))
    ours = tenant.delete("bucket", ["parent"])
    ours.wait(10)
    assert exit_code(child) == 0
    sexton.flush(10)
    keys = sorted(key for intent in arrived() for phase in intent.action.phases for key in phase)  # type: ignore[union-attr]

    assert keys == sorted(["child", "parent", *before])


def test_f_7_a_fork_waits_for_the_first_report_of_a_new_client(connect: Connect) -> None:
    """F-7: until it has its connections it looks up names; a child of that moment could look up none."""
    receipt = connect(limits=Limits(linger=5)).attach("t").delete("bucket", ["first"])
    child = forked(lambda: None)

    assert len(receipt.wait(0)) == 1
    assert exit_code(child) == 0


def test_f_7_forks_do_not_wait_for_a_broker_that_is_away(connect: Connect) -> None:
    """F-7: a second for the first of them, whatever their number."""
    connect(kafka_bootstrap_servers=NOBODY).attach("t").delete("bucket", ["k"])
    began = time.monotonic()
    for _ in range(5):
        assert exit_code(forked(lambda: None)) == 0

    assert time.monotonic() - began < 3


def test_f_7_a_forked_child_may_go_without_closing(connect: Connect, arrived: Arrived) -> None:
    """F-7: a child that never emits ends cleanly, and takes nothing of the parent's with it."""
    sexton = connect(limits=Limits(linger=0.2))
    receipt = sexton.attach("t").delete("bucket", ["parent"])
    child = forked(lambda: None)

    assert exit_code(child) == 0
    receipt.wait(10)
    assert len(arrived()) == 1


def test_a_wait_ends_at_its_deadline(connect: Connect) -> None:
    """A receipt whose intents are on their way says so, with their ids."""
    receipt = connect(kafka_bootstrap_servers=NOBODY).attach("t").delete("bucket", ["k"])
    with pytest.raises(DeliveryPending) as caught:
        receipt.wait(0.05)

    assert caught.value.intent_ids == receipt.intent_ids


def test_a_delivery_that_takes_too_long_fails_with_its_id(connect: Connect) -> None:
    """Kafka away for longer than the delivery timeout is a typed failure of each intent."""
    sexton = connect(kafka_bootstrap_servers=NOBODY, limits=Limits(delivery_timeout=0.2))
    receipt = sexton.attach("t").delete("bucket", ["k"])
    with pytest.raises(DeliveryFailed, match="timed out") as caught:
        receipt.wait(10)

    assert caught.value.intent_ids == receipt.intent_ids
    assert sexton.close(1) == receipt.intent_ids


def test_a_fatal_error_of_the_client_is_typed(connect: Connect) -> None:
    """After a fatal error every call says that a new connection is needed."""
    sexton = connect()
    tenant = sexton.attach("t")
    fatal = KafkaError(KafkaError._FATAL, "epoch was fenced", fatal=True)
    sexton._emitter._transport._on_error(fatal)  # type: ignore[attr-defined]
    with pytest.raises(ProducerFailed, match="fenced"):
        tenant.delete("bucket", ["k"])


@pytest.mark.real
def test_a_topic_that_is_not_there_fails_by_its_name(stack: LocalStack) -> None:
    """Not after the delivery timeout, but once Kafka's client gives it up; the hint asks for the prefix."""
    settings = load({}, kafka_bootstrap_servers=stack.env["SEXTON_KAFKA_BOOTSTRAP_SERVERS"])
    soon = {"topic.metadata.propagation.max.ms": "1000"}  # half a minute by default: brokers may be slow
    sexton = Sexton.connect("n", settings, issuer=FakeIssuer(), topic_prefix="nowhere.", kafka_extra=soon)
    receipt = sexton.attach("t").delete("bucket", ["k"])
    with pytest.raises(DeliveryFailed, match=r"no such topic: nowhere\.intents") as caught:
        receipt.wait(15)

    assert "SEXTON_TOPIC_PREFIX not 'nowhere.' there?" in str(caught.value.hint)
    assert sexton.close(1) == receipt.intent_ids


def test_what_an_error_leaves_undelivered_is_logged(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """The error on its way out of the block does not tell of it; otherwise it is reported by
    DeliveryFailed.
    """
    limits = Limits(close_timeout=0.5)
    sexton = connect(kafka_bootstrap_servers=NOBODY, limits=limits)
    (lost,) = sexton.attach("t").delete("bucket", ["k"]).intent_ids
    sexton.__exit__(KeyError, KeyError("the service's own"), None)
    assert [record.getMessage() for record in caplog.records] == [f"intents not delivered: 1: {lost}"]
    caplog.clear()

    sexton = connect(kafka_bootstrap_servers=NOBODY, limits=limits)
    (lost,) = sexton.attach("t").delete("bucket", ["k"]).intent_ids
    with pytest.raises(DeliveryFailed, match=f"^intents not delivered: 1: .+: {lost}$"):
        sexton.__exit__(None, None, None)
    assert caplog.records == []


@pytest.mark.parametrize(
    "extra",
    [
        {"acks": "1"},
        {"enable.idempotence": "false"},
        {"partitioner": "random"},
        {"transactional.id": "x"},
        {"no.such.property": "1"},
        {"queue.buffering.max.messages": "many"},
        {"message.max.bytes": "much"},
        {"max.in.flight": "10"},
        {"retries": "0"},
    ],
)
def test_settings_that_would_lose_intents_are_refused(extra: dict[str, str]) -> None:
    """What makes an acknowledgement untrue, or puts an intent into a transaction, is refused at once."""
    with pytest.raises(InvalidSettings):
        Sexton.connect(node="n", issuer=FakeIssuer(), kafka_extra=extra)


def test_a_misspelt_setting_is_refused() -> None:
    """An override that is no setting is an error, also on top of given settings."""
    for settings in (None, load({})):
        with pytest.raises(InvalidSettings):
            Sexton.connect(node="n", settings=settings, kafka_bootstrap="x")


def test_a_wrong_argument_is_told_as_one() -> None:
    """Its name with the one that is close, or its value; Python has no flags."""
    with pytest.raises(InvalidSettings, match=r"of this name: issuer_ur$") as caught:
        Sexton.connect(node="n", issuer_ur="x")
    assert caught.value.hint == "did you mean issuer_url?"
    for settings in (None, load({})):
        with pytest.raises(InvalidSettings, match=r"SEXTON_ISSUER_URL \(argument\): "):
            Sexton.connect(node="n", settings=settings, issuer_url="no url")


def test_a_closed_connection_says_so(connect: Connect) -> None:
    """In the form of all messages."""
    sexton = connect()
    sexton.close(1)
    with pytest.raises(ConnectionClosed, match=r"^the connection is closed$"):
        sexton.attach("t")


def test_overrides_stand_on_given_settings(kafka: str) -> None:
    """A single override leaves the other given settings as they are."""
    settings = load({"SEXTON_TOPIC_PREFIX": "mine.", "SEXTON_REDIS_URL": "redis://:secret@h/0"})
    sexton = Sexton.connect(node="n", settings=settings, issuer=FakeIssuer(), kafka_bootstrap_servers=kafka)
    sexton.attach("t").delete("bucket", ["k"]).wait(10)
    sexton.close(1)

    seen = settings.model_copy(update={"kafka_bootstrap_servers": kafka})
    assert len(list(read(seen, "intents", timeout=5))) == 1


def _child(sexton: Sexton, key: str) -> None:
    receipt = sexton.attach("t2").delete("bucket", [key])
    receipt.wait(10)
    assert sexton.statistics().emitted == 1
    assert sexton.close(2) == ()


def _murmur2(data: bytes) -> int:
    """Return Kafka's hash of a key as its Java client computes it."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    for at in range(0, len(data) // 4 * 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    rest = data[len(data) // 4 * 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15
