"""The generations log: what starts it, and what stops it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from tests.support.issuing import Serve, Write, attach, newest
from tests.support.topic_settings import configure

from sexton.deploy.local import Installation
from sexton.deploy.topics import create_topics
from sexton.issuer.deadline import Deadline
from sexton.issuer.log.genesis import write_genesis
from sexton.issuer.log.positions import Positions, WrongTopic
from sexton.issuer.log.reader import LogReader
from sexton.issuer.log.writer import LogWriter
from sexton.issuer.service import Service
from sexton.schemas import events, records
from sexton.schemas.errors import LogBroken, SextonError
from sexton.schemas.settings import Settings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
pytestmark = pytest.mark.real


def raw(settings: Settings, value: bytes) -> None:
    """Append bytes to the generations log."""
    producer = Producer(settings.kafka())
    producer.produce(settings.topic(records.GENERATIONS), value, partition=0)
    assert producer.flush(10) == 0


def append(settings: Settings, event: events.GenerationEvent) -> None:
    """Append an event to the generations log, as another issuer would."""
    writer = LogWriter(settings)
    writer.append(event, Deadline.after(10))
    writer.close()


def transaction(settings: Settings) -> None:
    """Leave a transaction's control record, and so a gap, in the log."""
    producer = Producer(settings.kafka(**{"transactional.id": "gap"}))
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(settings.topic(records.GENERATIONS), b"x", partition=0)
    producer.flush(10)
    producer.abort_transaction(10)


@pytest.mark.parametrize("damage", ["garbage", "gap", "newer"])
def test_a_log_that_cannot_be_folded(fresh: Installation, serve: Serve, damage: str) -> None:
    """A gap, garbage, or a record that only a newer version knows: nothing is answered any more."""
    service = serve(fresh.settings)
    attach(service, "n", "t")
    if damage == "gap":
        transaction(fresh.settings)
        append(fresh.settings, events.Barrier("b", events.PartitionOffsets("x", []), None, NOW))
    else:
        raw(fresh.settings, b"\xc3\x01later..and more" if damage == "newer" else b"garbage")

    with pytest.raises(LogBroken):
        service.reader.wait_for(10, Deadline.after(10))
    calls: list[Callable[[], object]] = [
        lambda: attach(service, "n", "t"),
        lambda: newest(service, "t", 1),
    ]
    for call in calls:
        with pytest.raises(LogBroken, match="generations log"):
            call()


def test_an_empty_log_is_not_served(bare: Installation) -> None:
    """An issuer refuses to start on an empty log and says what to do."""
    with pytest.raises(SextonError, match="log is empty") as refused:
        Service(bare.settings)

    assert "sexton topics create" in str(refused.value.hint)


def test_genesis_needs_an_empty_intents_topic(bare: Installation, write: Write) -> None:
    """A lost log is not started anew beside intents that it could not judge."""
    write(bare.settings, 0, 1)

    with pytest.raises(SextonError, match="has records"):
        write_genesis(bare.settings)


@pytest.mark.parametrize("wrong", ["cluster", "intents"])
def test_a_log_of_another_place_is_not_served(bare: Installation, soon: Deadline, wrong: str) -> None:
    """A log whose Genesis names another cluster or another topic is refused."""
    positions = Positions(bare.settings)
    facts = positions.describe(soon)
    genesis = events.Genesis(
        1,
        "another" if wrong == "cluster" else positions.cluster.cluster_id(),
        facts[positions.log].topic_id,
        "another" if wrong == "intents" else facts[positions.intents].topic_id,
        NOW,
    )
    append(bare.settings, genesis)

    for start in (lambda: Service(bare.settings), lambda: write_genesis(bare.settings)):
        with pytest.raises(WrongTopic, match="belongs to another"):
            start()


@pytest.mark.parametrize("topic", [records.INTENTS, records.GENERATIONS])
def test_j_13_a_topic_is_created_again(fresh: Installation, serve: Serve, topic: str) -> None:
    """J-13: once the log or the intents topic was re-created nothing is issued or judged any more."""
    service = serve(fresh.settings)
    attach(service, "n", "t")
    admin = AdminClient(fresh.settings.kafka())
    admin.delete_topics([fresh.settings.topic(topic)])[fresh.settings.topic(topic)].result(10)
    until = Deadline.after(10)
    while until.left():
        try:
            create_topics(fresh.settings, partitions=3)
            Positions(fresh.settings).read(until)
            break
        except (KafkaException, SextonError):
            time.sleep(0.1)

    calls: list[Callable[[], object]] = [
        lambda: attach(service, "n", "t"),
        lambda: newest(service, "t", 1),
    ]
    for call in calls:
        with pytest.raises((WrongTopic, LogBroken)):
            call()
    with pytest.raises(SextonError):
        Service(fresh.settings)


def test_compacted_topics_are_refused(fresh: Installation) -> None:
    """An issuer does not start where compaction could drop what windows rest on."""
    configure(fresh.settings, records.INTENTS, "cleanup.policy", "compact")

    with pytest.raises(WrongTopic, match=r"cleanup.policy is compact"):
        Service(fresh.settings)


def test_the_log_is_read_back_by_the_pure_rule(fresh: Installation, serve: Serve, soon: Deadline) -> None:
    """What a service answered is what anybody finds who folds the log."""
    service = serve(fresh.settings)
    answered = [attach(service, "n", "t") for _ in range(4)]
    reader = LogReader(fresh.settings)
    reader.start(soon)
    reader.wait_for(Positions(fresh.settings).read(soon).log_end - 1, soon)
    with reader.state() as state:
        assert state.newest("t") == answered[-1] == 4
    reader.stop()


def test_an_append_whose_answer_was_lost(fresh: Installation, serve: Serve, soon: Deadline) -> None:
    """An event that got into the log while its caller gave up is the answer to the retry."""
    service = serve(fresh.settings)
    ends = Positions(fresh.settings).read(soon).intents
    grants = [events.Grant("t", 1, None)]
    attach_ = events.IssueOperation.ATTACH
    lost = events.Issued("r", "c", attach_, "n", 0, 1, grants, ends, NOW)
    append(fresh.settings, lost)

    assert attach(service, "n", "t", request_id="r", caller="c") == 1


def test_genesis_is_written_once(fresh: Installation) -> None:
    """Starting a log that was started is no change."""
    assert write_genesis(fresh.settings) == write_genesis(fresh.settings)
    assert Positions(fresh.settings).read(Deadline.after(10)).log_end == 1
