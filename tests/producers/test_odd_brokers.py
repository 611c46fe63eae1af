"""P-12, P-13: brokers that refuse, are older, or are of others: all ends soon, in the broker's own word.

A protocol stand-in (the Kafka client's own mock broker) gives the answers that no single real broker gives.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.support.mock_kafka import Api, OddKafka
from tests.support.services import GREEN, service

from sexton.deploy import topics
from sexton.issuer.deadline import Deadline
from sexton.issuer.log.writer import LogWriter
from sexton.producers import DeliveryFailed, Limits, ProducerFailed, Sexton
from sexton.producers.testing import FakeIssuer
from sexton.schemas import events
from sexton.schemas.errors import KafkaUnavailable
from sexton.schemas.settings import Settings, load
from sexton.schemas.topics import TOPICS, TopicFound, compare
from sexton.streaming_jobs.reaper.recovery.lock import CheckpointLock

EVENT = events.Dropped("r", "c", "t", datetime.now(UTC))
FATAL = {
    "no right": (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed", "IDEMPOTENT_WRITE"),
    "no right to an id": (
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed",
        "transactional id",
    ),
    "no idempotence": (None, "Idempotent producer not supported", "connect anew"),
}


@pytest.fixture
def odd() -> Iterator[OddKafka]:
    """A broker that answers as told."""
    made = OddKafka("sexton.intents", "sexton.control", "sexton.generations")
    yield made
    made.close()


@pytest.fixture
def settings(odd: OddKafka) -> Settings:
    """Settings that lead to it."""
    return load({"SEXTON_KAFKA_BOOTSTRAP_SERVERS": odd.at})


@pytest.fixture
def sexton(settings: Settings) -> Iterator[Sexton]:
    """A connection to it."""
    made = Sexton.connect("n", settings, issuer=FakeIssuer(), limits=Limits(linger=0))
    yield made
    made.close(1)


@pytest.mark.parametrize("why", FATAL)
def test_p_12_a_producer_that_may_not_be_idempotent_ends_its_receipts(
    odd: OddKafka, sexton: Sexton, why: str
) -> None:
    """P-12: at once, with the right that is missing, and not as brokers that are away."""
    code, word, hint = FATAL[why]
    if code is None:
        odd.without(Api.INIT_PRODUCER_ID)
    else:
        odd.refuse(Api.INIT_PRODUCER_ID, code)
    tenant = sexton.attach("t")
    receipts = [tenant.delete("bucket", [f"k{n}"]) for n in range(3)]
    began = time.monotonic()
    for receipt in receipts:
        with pytest.raises(DeliveryFailed, match=f"cannot continue: .*{word}") as told:
            receipt.wait(30)
        assert hint in (told.value.hint or "")
    with pytest.raises(ProducerFailed, match=word) as refused:
        tenant.delete("bucket", ["later"])
    assert hint in (refused.value.hint or "")
    assert time.monotonic() - began < 25
    assert len(sexton.close(3)) == 3


@pytest.mark.faults
@pytest.mark.parametrize("kind", GREEN)
def test_p_12_greenlets_hear_of_a_producer_that_cannot_continue(kind: str, odd: OddKafka) -> None:
    """P-12: whoever of them looks after the client, the error is a typed one, and told to all."""
    odd.refuse(Api.INIT_PRODUCER_ID, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    body = """
    import logging; logging.disable()
    sexton = connect(linger=0, queue_messages=2)
    tenant, told = sexton.attach("t"), []
    def emit(n):
        try:
            sexton.attach(f"t{n}").delete("bucket", ["k"]).wait(10)
        except (DeliveryFailed, ProducerFailed) as error:
            assert "Cluster authorization failed" in str(error), error
            told.append(n)
    threads = [threading.Thread(target=emit, args=(n,)) for n in range(5)]
    for thread in threads: thread.start()
    for thread in threads: thread.join(15)
    assert sorted(told) == [0, 1, 2, 3, 4], told
    sexton.flush(1)
    began = time.monotonic(); sexton.close(3); assert time.monotonic() - began < 5
    """
    service(odd.at, body, first=GREEN[kind])


@pytest.mark.parametrize(
    ("code", "word", "hint"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed", "WRITE and DESCRIBE"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed", "IDEMPOTENT_WRITE"),
        (KafkaError.MSG_SIZE_TOO_LARGE, "Message size too large", r"max.message.bytes"),
        (KafkaError.POLICY_VIOLATION, "Policy violation", "say no"),
        (KafkaError.INVALID_RECORD, "failed to validate record", "say no"),
        (KafkaError.UNSUPPORTED_COMPRESSION_TYPE, "Unsupported compression type", "say no"),
    ],
)
def test_p_12_a_record_that_is_refused_is_told_in_the_brokers_word(
    odd: OddKafka, sexton: Sexton, code: int, word: str, hint: str
) -> None:
    """P-12: by its receipt, each time, with what to do; the connection lives on."""
    odd.refuse(Api.PRODUCE, code, times=2)
    tenant = sexton.attach("t")
    for n in range(2):
        with pytest.raises(DeliveryFailed, match=word) as told:
            tenant.delete("bucket", [f"k{n}"]).wait(10)
        assert hint in (told.value.hint or "")
    counts = sexton.statistics()
    assert (counts.emitted, counts.failed, counts.pending) == (2, 2, 0)


@pytest.mark.parametrize(
    "code",
    [KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.UNKNOWN_PRODUCER_ID, KafkaError.NOT_LEADER_FOR_PARTITION],
)
def test_p_12_what_passes_is_asked_again(odd: OddKafka, sexton: Sexton, code: int) -> None:
    """P-12: too few replicas for a moment, a producer that the broker has forgotten, a leader that moved."""
    odd.refuse(Api.PRODUCE, code, times=2)
    sexton.attach("t").delete("bucket", ["k"]).wait(20)
    assert sexton.statistics().delivered == 1


def test_p_12_the_issuer_goes_on_once_it_may_write(odd: OddKafka, settings: Settings) -> None:
    """P-12: its producer cannot continue: told with the right that is missing, and made anew until it can."""
    odd.refuse(Api.INIT_PRODUCER_ID, KafkaError.CLUSTER_AUTHORIZATION_FAILED, times=2)
    writer = LogWriter(replace_timeout(settings, 5))
    try:
        with pytest.raises(KafkaUnavailable, match="Cluster authorization failed") as told:
            writer.append(EVENT, Deadline.after(5))
        assert "IDEMPOTENT_WRITE" in (told.value.hint or "")
        until = time.monotonic() + 20
        while True:
            try:
                assert writer.append(EVENT, Deadline.after(5)) >= 0
                break
            except KafkaUnavailable:
                assert time.monotonic() < until
    finally:
        closing = threading.Thread(target=writer.close)
        closing.start()
        closing.join(10)
        assert not closing.is_alive()


def replace_timeout(settings: Settings, seconds: float) -> Settings:
    """The settings with another time for a call."""
    return settings.model_copy(update={"issuer_timeout_s": seconds})


@pytest.mark.parametrize(
    ("code", "word", "hint"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "Group authorization failed", "READ and DESCRIBE"),
        (KafkaError.INVALID_SESSION_TIMEOUT, "Invalid session timeout", "group.min.session.timeout.ms"),
        (KafkaError.GROUP_MAX_SIZE_REACHED, "group has reached maximum size", "group.max.size"),
        (KafkaError.INCONSISTENT_GROUP_PROTOCOL, "Inconsistent group protocol", "another kind"),
        (KafkaError.INVALID_GROUP_ID, "Invalid group.id", "say no"),
    ],
)
@pytest.mark.parametrize("api", [Api.JOIN_GROUP, Api.FIND_COORDINATOR])
def test_p_13_a_lock_that_is_refused_is_told_at_once(
    odd: OddKafka, settings: Settings, api: Api, code: int, word: str, hint: str
) -> None:
    """P-13: by whichever broker, in its word, with what to do, and never as another reaper."""
    odd.refuse(api, code)
    began = time.monotonic()
    with pytest.raises(KafkaUnavailable, match=f"cannot be locked: .*{word}") as refused:
        CheckpointLock(settings, "one").acquire(wait_s=40)
    assert hint in (refused.value.hint or "")
    assert time.monotonic() - began < 35


@pytest.mark.parametrize("code", [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS])
@pytest.mark.slow
def test_p_13_a_coordinator_on_its_way_is_waited_for(odd: OddKafka, settings: Settings, code: int) -> None:
    """P-13: what passes by itself is no refusal."""
    odd.refuse(Api.JOIN_GROUP, code, times=2)
    lock = CheckpointLock(settings, "one")
    lock.acquire(wait_s=30)
    lock.release()


# Sets of settings such as brokers that are not Apache Kafka may tell: assumed, taken from no running one.
TOLD = {
    "Redpanda": {"cleanup.policy": "delete", "retention.ms": "2592000000", "retention.bytes": "-1",
                 "max.message.bytes": "1048576", "message.timestamp.type": "LogAppendTime"},
    "Event Hubs": {"retention.ms": "7776000000", "cleanup.policy": "delete"},
    "WarpStream": {"retention.ms": "2592000000", "cleanup.policy": "delete",
                   "message.timestamp.type": "LogAppendTime", "max.message.bytes": "1048588"},
    "Confluent Cloud": {"cleanup.policy": "delete", "retention.ms": "2592000000", "retention.bytes": "-1",
                        "max.message.bytes": "8388608", "message.timestamp.type": "LogAppendTime",
                        "min.insync.replicas": "2"},
}  # fmt: skip


@pytest.mark.parametrize("broker", TOLD)
def test_p_12_what_brokers_of_others_do_not_tell_is_a_warning(broker: str) -> None:
    """P-12: what they do tell is compared; the rest is unknown, and said to be."""
    found = TopicFound(12, 3, TOLD[broker])
    problems = list(compare("sexton.intents", TOPICS[0], found, brokers=3))

    assert not [problem for problem in problems if problem.fatal]
    assert {problem.found for problem in problems} <= {"unknown"}
    wrong = replace(found, config={**TOLD[broker], "cleanup.policy": "compact"})
    assert any(problem.fatal for problem in compare("sexton.intents", TOPICS[0], wrong, brokers=3))


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (KafkaError.INVALID_CONFIG, "their own tools"),  # Redpanda, of a setting that it does not have
        (KafkaError.POLICY_VIOLATION, "their own tools"),  # Confluent Cloud, MSK: replication, or a setting
        (KafkaError.INVALID_REPLICATION_FACTOR, "their own tools"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "their own tools"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "their own tools"),
        (KafkaError._UNSUPPORTED_FEATURE, "their own tools"),  # no such request
        (KafkaError._TIMED_OUT, "are the brokers up"),
        (KafkaError._TRANSPORT, "are the brokers up"),
        (KafkaError.NOT_CONTROLLER, "are the brokers up"),
    ],
)
def test_p_12_brokers_that_create_no_topics_are_told_as_such(code: int, hint: str) -> None:
    """P-12: who answers is not away: with how to make them; who does not answer is."""
    answer: Future[None] = Future()
    answer.set_exception(KafkaException(KafkaError(code)))
    with pytest.raises(KafkaUnavailable, match=r"^topic cannot be created: t: ") as refused:
        topics._done(answer, "topic cannot be created: t")
    assert hint in (refused.value.hint or "")


def test_p_12_a_controller_that_never_answers_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-12: brokers that have none say nothing."""
    monkeypatch.setattr(topics, "_SECONDS", -5)
    with pytest.raises(KafkaUnavailable, match="no controller answers"):
        topics._done(Future(), "topic cannot be created: t")
