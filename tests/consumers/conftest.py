"""A mock broker with Sexton's topics, and a producer for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from confluent_kafka import Producer
from tests.support.mock_kafka import mock_kafka

from sexton.deploy.local import Installation
from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.settings import Settings, load

Write = Callable[..., None]


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Settings that lead to a mock broker; the environment does so too."""
    topics = [records.INTENTS, records.DEFERRED, records.OUTCOMES, records.DEAD_LETTERS]
    with mock_kafka(*(f"sexton.{topic}" for topic in topics)) as address:
        monkeypatch.setenv("SEXTON_KAFKA_BOOTSTRAP_SERVERS", address)
        yield load()


@pytest.fixture
def settings_of_stack(installation: Installation) -> Settings:
    """Settings that lead to real servers."""
    return installation.settings


@pytest.fixture
def write(settings: Settings) -> Write:
    """Write raw values or events to a topic, acknowledged, in order, to one partition."""
    producer = Producer(settings.kafka(acks="all", log_level=0))

    def put(
        topic: str,
        *values: bytes | events.Event | None,
        key: bytes | None = None,
        headers: Sequence[tuple[str, str | bytes | None]] | None = None,
        partition: int = 0,
    ) -> None:
        for value in values:
            reported = [] if headers is None else list(headers)
            if isinstance(value, bytes) or value is None:
                data = value
            else:
                data = Codec().encode(value)
                reported = [*records.headers(value)] if headers is None else reported
            producer.produce(settings.topic(topic), data, key, headers=reported, partition=partition)
        assert producer.flush(10) == 0

    return put
