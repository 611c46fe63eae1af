"""What the Kafka cluster says of itself: its id, its topics with their ids and settings, where they start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from sexton.schemas.errors import InvalidSettings, KafkaUnavailable, NoSuchTopic
from sexton.schemas.kafka import refusals
from sexton.schemas.kafka.leaders import LEAST_S, ask_who_leads, countdown
from sexton.schemas.settings import Settings
from sexton.schemas.topics import TopicFound

__all__ = ["Cluster", "Member", "TopicFacts", "TopicIdentity", "reach", "result"]

_T = TypeVar("_T")
_REACH_S = 10.0
_FAILOVER_S = 20.0  # brokers miss one of them after nine by default; then another one takes its place
_ANSWER_S = 30.0
_LATE_S = 0.1  # the client says of a time-out by itself, and why
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """Which topic stands under a name now; `topic_id` in the form of Kafka's own tools."""

    topic_id: str
    partitions: int
    replicas: int


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as the brokers describe it; `topic_id` in the form of Kafka's own tools."""

    topic_id: str
    found: TopicFound


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a consumer group; `assigned`: it holds a partition, never said while one rebalances."""

    member_id: str
    client_id: str
    host: str
    assigned: bool


class Cluster:
    """Asks the brokers; every method raises KafkaUnavailable when they do not answer in time.

    `properties` are librdkafka's, on top of those of the settings. Safe for use by several threads.
    """

    def __init__(self, settings: Settings, **properties: Any) -> None:
        asked = settings.kafka(log_level=0, **properties)
        self._brokers = asked.get("metadata.broker.list", asked["bootstrap.servers"])
        try:
            self.admin = AdminClient(asked)
        except KafkaException as error:
            message = f"SEXTON_KAFKA_EXTRA: the kafka client refuses it: {error.args[0].str()}"
            raise InvalidSettings(message) from error

    def topic_names(self) -> frozenset[str]:
        """Return the names of all topics."""
        return frozenset(self.refresh().topics)

    def brokers(self) -> int:
        """Return how many brokers there are."""
        return len(self.refresh().brokers)

    def cluster_id(self, timeout_s: float = _ANSWER_S) -> str:
        """Return the id of the cluster."""
        described = self.admin.describe_cluster(request_timeout=timeout_s)
        return str(result(described, "cluster id", timeout_s).cluster_id)

    def identities(self, names: Sequence[str], timeout_s: float = _ANSWER_S) -> dict[str, TopicIdentity]:
        """Return those of the named topics that exist."""
        found: dict[str, TopicIdentity] = {}
        if not names:
            return found
        described = self.admin.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
        for name, future in described.items():
            with suppress(NoSuchTopic):
                found[name] = _identity(result(future, f"topic {name}", timeout_s))
        return found

    def topics(self, names: Sequence[str], timeout_s: float = _ANSWER_S) -> dict[str, TopicFacts]:
        """Return the facts of those of the named topics that exist.

        Without a setting that the brokers do not tell, and without any for a user who may not ask for them.
        """
        found = self.identities(sorted(names), timeout_s)
        if not found:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in found]
        configs = self.admin.describe_configs(resources, request_timeout=timeout_s)
        facts = {}
        for resource, future in configs.items():
            identity = found[resource.name]
            config = _told(future, resource.name, timeout_s)
            facts[resource.name] = TopicFacts(
                identity.topic_id, TopicFound(identity.partitions, identity.replicas, config)
            )
        return facts

    def topic_id(self, name: str) -> str | None:
        """Return the id that a topic has now, None when it does not exist."""
        found = self.ask(lambda left_s: self.identities([name], left_s), countdown(_FAILOVER_S)).get(name)
        return None if found is None else found.topic_id

    def earliest(self, topic: str, partitions: int) -> dict[int, int]:
        """Return the first offset that each partition still has."""
        self.refresh()
        spec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        return self._of_partitions({TopicPartition(topic, p): spec for p in range(partitions)})

    def latest(self, topic: str) -> dict[int, int]:
        """Return the end offset of each partition of a topic that exists."""
        partitions = self.refresh().topics[topic].partitions
        return self._of_partitions({TopicPartition(topic, p): _LATEST for p in partitions})

    def stable_ends(self, places: Sequence[TopicPartition], timeout_s: float) -> list[int]:
        """Return the last stable end offset of each place: an open transaction's records lie above it."""
        asked = dict.fromkeys(places, _LATEST)
        found = self._offsets(asked, timeout_s, isolation_level=IsolationLevel.READ_COMMITTED)
        return [found[place] for place in places]

    def _of_partitions(self, asked: Mapping[TopicPartition, OffsetSpec]) -> dict[int, int]:
        return {place.partition: offset for place, offset in self._offsets(asked, _ANSWER_S).items()}

    def _offsets(
        self, asked: Mapping[TopicPartition, OffsetSpec], timeout_s: float, **options: Any
    ) -> dict[TopicPartition, int]:
        timeout_s = max(timeout_s, LEAST_S)
        futures = self.admin.list_offsets(dict(asked), request_timeout=timeout_s, **options)
        return {at: result(f, f"offsets of {at.topic}", timeout_s).offset for at, f in futures.items()}

    def group_members(self, group: str) -> list[Member]:
        """Return the members of a consumer group as its coordinator knows them, none of one that is not."""
        described = self.ask(lambda left_s: self._described(group, left_s), countdown(_FAILOVER_S))
        return [
            Member(
                each.member_id,
                each.client_id,
                each.host,
                each.assignment is not None and bool(each.assignment.topic_partitions),
            )
            for each in described.members
        ]

    def _described(self, group: str, timeout_s: float) -> Any:
        future = self.admin.describe_consumer_groups([group], request_timeout=timeout_s)[group]
        return result(future, f"consumer group {group}", timeout_s)

    def ask(self, question: Callable[[float], _T], left: Callable[[], float]) -> _T:
        """Return the answer to a question of `leaders.ask_who_leads`, which is asked through this client."""
        return ask_who_leads(question, self.refresh, left)

    def refresh(self, timeout_s: float = _REACH_S) -> Any:
        """Ask who leads what and return it."""
        try:
            return self.admin.list_topics(timeout=timeout_s)
        except KafkaException as error:
            message = f"the brokers do not answer: {self._brokers}: {error.args[0].str()}"
            raise KafkaUnavailable(message) from error


def reach(settings: Settings) -> Settings:
    """Return the settings once the brokers that they name have answered; raises KafkaUnavailable."""
    Cluster(settings).refresh()
    return settings


def result(future: Future[Any], what: str, timeout_s: float = _ANSWER_S) -> Any:
    """Return what an admin call has answered; raises KafkaUnavailable (or NoSuchTopic) that names it."""
    try:
        return future.result(timeout=timeout_s + _LATE_S)
    except KafkaException as error:
        kafka = error.args[0]
        kind = NoSuchTopic if kafka.name() in refusals.ABSENT else KafkaUnavailable
        raise kind(f"{what}: {kafka.str()}", hint=refusals.hint(kafka)) from error
    except FutureTimeout as error:
        raise KafkaUnavailable(f"no time left: {what}") from error


def _told(future: Future[Any], topic: str, timeout_s: float) -> dict[str, str]:
    """Return the settings of a topic that this user is told, none where the brokers refuse to tell any."""
    try:
        entries = result(future, f"settings of {topic}", timeout_s)
    except NoSuchTopic:
        raise
    except KafkaUnavailable as error:
        cause = error.__cause__
        if isinstance(cause, KafkaException) and refusals.final(cause.args[0]):
            return {}
        raise
    return {name: str(entry.value) for name, entry in entries.items() if entry.value is not None}


def _identity(described: Any) -> TopicIdentity:
    replicas = min((len(partition.replicas) for partition in described.partitions), default=0)
    # The client library uses the other base64.
    topic_id = str(described.topic_id).replace("+", "-").replace("/", "_")
    return TopicIdentity(topic_id, len(described.partitions), replicas)
