"""What the Kafka cluster says of itself: its id, its topics with their ids and settings, where they start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from sexton.schemas.errors import KafkaUnavailable
from sexton.schemas.settings import Settings
from sexton.schemas.topics import TopicFound

__all__ = ["Cluster", "TopicFacts"]

_REACH_S = 10.0
_ANSWER_S = 30.0


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as the brokers describe it; `topic_id` in the form of Kafka's own tools."""

    topic_id: str
    found: TopicFound


class NoSuchTopic(KafkaUnavailable):
    """The brokers know no such topic, or not yet."""


class Cluster:
    """Asks the brokers; every method raises KafkaUnavailable when they do not answer in time."""

    def __init__(self, settings: Settings) -> None:
        self.admin = AdminClient(settings.kafka(log_level=0))

    def topic_names(self) -> frozenset[str]:
        """Return the names of all topics."""
        return frozenset(self._metadata().topics)

    def brokers(self) -> int:
        """Return how many brokers there are."""
        return len(self._metadata().brokers)

    def cluster_id(self) -> str:
        """Return the id of the cluster."""
        described = self.admin.describe_cluster(request_timeout=_ANSWER_S)
        return str(result(described, "cluster id").cluster_id)

    def topics(self, names: Sequence[str]) -> dict[str, TopicFacts]:
        """Return the facts of those of the named topics that exist."""
        present = sorted(self.topic_names().intersection(names))
        if not present:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in present]
        configs = self.admin.describe_configs(resources, request_timeout=_ANSWER_S)
        settings = {
            resource.name: {
                key: str(entry.value) for key, entry in result(f, f"settings of {resource.name}").items()
            }
            for resource, f in configs.items()
        }
        described = self.admin.describe_topics(TopicCollection(present), request_timeout=_ANSWER_S)
        return {
            name: _facts(result(future, f"topic {name}"), settings[name])
            for name, future in described.items()
        }

    def topic_id(self, name: str) -> str | None:
        """Return the id that a topic has now, None when it does not exist."""
        future = self.admin.describe_topics(TopicCollection([name]), request_timeout=_REACH_S)[name]
        try:
            return _canonical(result(future, f"topic {name}").topic_id)
        except NoSuchTopic:
            return None

    def earliest(self, topic: str, partitions: int) -> dict[int, int]:
        """Return the first offset that each partition still has."""
        # Asked first: after a broker's restart the admin client goes on asking a deposed leader until then.
        self._metadata()
        first = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, p): first for p in range(partitions)}
        futures = self.admin.list_offsets(asked, request_timeout=_ANSWER_S)
        return {place.partition: result(f, f"offsets of {topic}").offset for place, f in futures.items()}

    def assigned_members(self, group: str) -> list[str]:
        """Return the members of a consumer group that hold a partition, each as client id and host."""
        self._metadata()
        future = self.admin.describe_consumer_groups([group], request_timeout=_REACH_S)[group]
        return [
            f"process {member.client_id} on {member.host}"
            for member in result(future, f"consumer group {group}").members
            if member.assignment is not None and member.assignment.topic_partitions
        ]

    def _metadata(self) -> Any:
        try:
            return self.admin.list_topics(timeout=_REACH_S)
        except KafkaException as error:
            raise KafkaUnavailable(f"the brokers do not answer: {error.args[0].str()}") from error


def result(future: Future[Any], what: str) -> Any:
    """Return what an admin call has answered; raises KafkaUnavailable that names what was asked."""
    try:
        return future.result(timeout=_ANSWER_S + 5)
    except KafkaException as error:
        kafka = error.args[0]
        absent = kafka.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        raise (NoSuchTopic if absent else KafkaUnavailable)(f"{what}: {kafka.str()}") from error
    except FutureTimeout as error:
        raise KafkaUnavailable(f"no answer in time: {what}") from error


def _canonical(topic_id: object) -> str:
    """Return a topic id in the form of Kafka's own tools; the client library uses the other base64."""
    return str(topic_id).replace("+", "-").replace("/", "_")


def _facts(described: Any, config: Mapping[str, str]) -> TopicFacts:
    replicas = min((len(partition.replicas) for partition in described.partitions), default=0)
    return TopicFacts(_canonical(described.topic_id), TopicFound(len(described.partitions), replicas, config))
