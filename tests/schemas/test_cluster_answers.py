"""What is made of the answers of brokers that no single broker gives."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sexton.schemas.errors import KafkaUnavailable, NoSuchTopic
from sexton.schemas.kafka import admin
from sexton.schemas.kafka.admin import TopicIdentity, result


def failed(code: int) -> Future[Any]:
    """An answer that is this error."""
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(code)))
    return future


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, True),
        (KafkaError._UNKNOWN_PARTITION, True),
        (KafkaError.REQUEST_TIMED_OUT, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
        (KafkaError.LEADER_NOT_AVAILABLE, False),
    ],
)
def test_only_the_brokers_own_word_makes_a_topic_absent(code: int, absent: bool) -> None:
    """A topic that may not be read, or whose leader is away, is no topic to create anew."""
    with pytest.raises(KafkaUnavailable, match=r"^topic x: ") as told:
        result(failed(code), "topic x")

    assert isinstance(told.value, NoSuchTopic) is absent


def test_an_answer_that_does_not_come_has_an_end() -> None:
    """The call is named, as nobody else knows what was waited for."""
    with pytest.raises(KafkaUnavailable, match="no time left: cluster id"):
        result(Future(), "cluster id", 0.01)


@pytest.mark.parametrize(
    ("replicas", "fewest"),
    [([3, 1, 3], 1), ([3, 3], 3), ([0], 0), ([], 0)],
    ids=["one lone", "all", "none", "no"],
)
def test_a_topic_has_as_many_copies_as_its_worst_partition(replicas: list[int], fewest: int) -> None:
    """A single partition on one disk loses verdicts as surely as a topic on one disk."""
    partitions = [SimpleNamespace(replicas=[object()] * number) for number in replicas]
    described = SimpleNamespace(topic_id="a+b/c", partitions=partitions)

    # In the form of Kafka's own tools.
    assert admin._identity(described) == TopicIdentity("a-b_c", len(replicas), fewest)
