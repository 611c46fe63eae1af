"""The Kafka client's own mock cluster: speaks the protocol, keeps records, creates topics when asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

__all__ = ["mock_kafka"]


@contextmanager
def mock_kafka(*topics: str) -> Iterator[str]:
    """Run a mock broker and yield its address; the named topics exist."""
    cluster = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    brokers = cluster.list_topics(timeout=10).brokers.values()
    for topic in topics:
        cluster.list_topics(topic, timeout=10)
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del cluster
