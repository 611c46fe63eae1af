"""What operators and retention do to topics under a reaper's feet."""

from __future__ import annotations

import time
from contextlib import suppress

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.chain import Chain

from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.settings import Settings
from sexton.schemas.topics import TOPICS, config_for


def recreate(settings: Settings, topic: str) -> None:
    """Delete a topic and create it again under its name, as a hurried operator does."""
    name = settings.topic(topic)
    admin, cluster, deadline = AdminClient(settings.kafka()), Cluster(settings), time.monotonic() + 30
    old = cluster.topic_id(name)
    admin.delete_topics([name], operation_timeout=20)[name].result(20)
    need = next(need for need in TOPICS if need.name == topic)
    partitions = need.partitions if need.exact else 4
    made = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config_for(need, 1))
    # Brokers hear of it later than the controller: the old one may still be listed.
    while cluster.topic_id(name) in (None, old):
        assert time.monotonic() < deadline
        with suppress(KafkaException):  # the old one is not gone yet, or the new one is there already
            admin.create_topics([made], operation_timeout=20)[name].result(20)
        time.sleep(0.2)


def cut(chain: Chain, topic: str, offset: int, partition: int = 0) -> None:
    """Remove what lies below an offset of one of the topic's partitions, as retention does."""
    admin = AdminClient(chain.settings.kafka())
    admin.list_topics(timeout=10)  # else the client library may never send what follows
    place = TopicPartition(chain.settings.topic(topic), partition, offset)
    for future in admin.delete_records([place], operation_timeout=10, request_timeout=15).values():
        future.result(20)
