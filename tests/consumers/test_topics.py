"""Reading topics to their ends."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from sexton.consumers.topics import Start, TopicMissing, full_name, read
from sexton.schemas.errors import KafkaUnavailable
from sexton.schemas.settings import Settings, load

Write = Callable[..., None]


def test_all_records_of_all_partitions_are_read(settings: Settings, write: Write) -> None:
    """Every record up to the end as of now, once, in order within its partition."""
    for partition in range(4):
        write("intents", *(f"{partition}-{i}".encode() for i in range(700)), partition=partition)
    found = [record.value for record in read(settings, "intents")]

    assert len(found) == 2_800
    assert [v for v in found if v and v.startswith(b"2-")] == [f"2-{i}".encode() for i in range(700)]


def test_an_empty_topic_ends_at_once(settings: Settings) -> None:
    """Nothing to read is no error."""
    assert list(read(settings, "outcomes")) == []


def test_a_record_keeps_its_parts(settings: Settings, write: Write) -> None:
    """Key, headers, a null value and the position come as Kafka has them."""
    write("intents", None, key=b"\xff", headers=[("a", b"1"), ("a", b"2"), ("b", None)], partition=3)
    (record,) = read(settings, "intents")

    assert (record.topic, record.partition, record.offset) == ("sexton.intents", 3, 0)
    assert (record.key, record.value) == (b"\xff", None)
    assert (record.header("a"), record.header("b"), record.header("c")) == ("2", None, None)
    assert record.timestamp is not None


def test_the_end_is_that_at_the_time_of_the_call(settings: Settings, write: Write) -> None:
    """Records written while reading are not waited for."""
    write("intents", b"1", b"2")
    reading = read(settings, "intents")
    assert next(reading).value == b"1"
    write("intents", b"3")

    assert [record.value for record in reading] == [b"2"]


def test_following_goes_on_after_the_end(settings: Settings, write: Write) -> None:
    """Without an end, reading continues with what is written later."""
    write("intents", b"1")
    reading = read(settings, "intents", until_end=False)
    assert next(reading).value == b"1"
    write("intents", b"2")

    assert next(reading).value == b"2"
    reading.close()  # type: ignore[attr-defined]


def test_reading_from_the_end_to_the_end_is_empty(settings: Settings, write: Write) -> None:
    """From the end, up to the end as of now, is nothing."""
    write("intents", b"1")

    assert list(read(settings, "intents", start=Start.END, timeout=5)) == []


def test_a_slow_reader_is_no_outage(settings: Settings, write: Write) -> None:
    """The time that the caller spends on a record does not count as Kafka's."""
    for partition in range(4):
        write("intents", b"x", partition=partition)
    found = []
    for record in read(settings, "intents", timeout=1):
        found.append(record.partition)
        time.sleep(1.1 if len(found) == 1 else 0)

    assert sorted(found) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("intents", "sexton.intents"),
        ("sexton.intents", "sexton.intents"),
        ("generations.snapshots", "sexton.generations.snapshots"),
        ("other", "sexton.other"),
    ],
)
def test_a_topic_is_named_with_or_without_the_prefix(given: str, full: str) -> None:
    """Both forms of a name mean the same topic."""
    assert full_name(load({}), given) == full


def test_a_prefix_that_begins_a_topics_name_is_no_riddle() -> None:
    """One of Sexton's own names always gets the prefix, also where it happens to begin with it."""
    odd, none = load({"SEXTON_TOPIC_PREFIX": "int"}), load({"SEXTON_TOPIC_PREFIX": "x."}).model_copy()

    assert full_name(odd, "intents") == "intintents"
    assert full_name(none.model_copy(update={"topic_prefix": ""}), "intents") == "intents"


def test_an_unreachable_broker_is_a_typed_fault() -> None:
    """Kafka away is reported within the time that was given."""
    with pytest.raises(KafkaUnavailable):
        list(read(load({"SEXTON_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}), "intents", timeout=0.5))


@pytest.mark.real
def test_a_missing_topic_is_told(settings_of_stack: Settings) -> None:
    """One of Sexton's is an error that says how to make it; any other name, which names there are."""
    elsewhere = settings_of_stack.model_copy(update={"topic_prefix": "elsewhere."})
    hints = {}
    for settings, topic in (
        (elsewhere, "intents"),
        (settings_of_stack, "outcome"),
        (settings_of_stack, "nope"),
    ):
        with pytest.raises(TopicMissing) as caught:
            list(read(settings, topic, timeout=10))
        hints[topic] = caught.value.hint or ""

    assert "`sexton topics create` makes it" in hints["intents"]
    assert "SEXTON_TOPIC_PREFIX" in hints["intents"]
    assert hints["outcome"].startswith(
        "did you mean outcomes? Sexton's topics: control, dead-letters, deferred"
    )
    assert hints["nope"].startswith("Sexton's topics: control, dead-letters, deferred, generations, ")


@pytest.mark.real
def test_f_1_aborted_and_open_transactions_are_hidden(settings_of_stack: Settings) -> None:
    """F-1: read committed: an aborted record is not there, and markers or an open one at the end end it."""
    from confluent_kafka import Producer

    producer = Producer(settings_of_stack.kafka(**{"transactional.id": "x"}))
    producer.init_transactions(30)
    name = settings_of_stack.topic("outcomes")
    for value, end in (("A", producer.abort_transaction), ("B", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(name, value, partition=0)
        assert producer.flush(10) == 0
        end(30)
    producer.begin_transaction()
    producer.produce(name, "C", partition=0)
    assert producer.flush(10) == 0

    def values(committed: bool) -> list[bytes | None]:
        return [r.value for r in read(settings_of_stack, "outcomes", committed=committed, timeout=10)]

    assert values(True) == [b"B"]
    assert values(False) == [b"A", b"B", b"C"]
    producer.abort_transaction(30)
