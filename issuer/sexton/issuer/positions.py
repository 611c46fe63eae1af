"""What Kafka says of the two topics that the truth rests on: end offsets, topic ids, settings."""

from __future__ import annotations

import time
from collections.abc import Mapping
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

from sexton.issuer.deadline import Deadline
from sexton.schemas import events, records
from sexton.schemas.errors import EnvironmentFault, KafkaUnavailable
from sexton.schemas.settings import Settings
from sexton.schemas.topics import TopicFound

__all__ = ["Ends", "Positions", "TopicFacts", "WrongTopic"]

_T = TypeVar("_T")
_MOVING = (
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "OFFSET_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "_NOENT",  # no leader known
)
_MOVING_S = 0.05
_LEADER_WAIT_S = 0.05
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class _Moving(KafkaUnavailable):
    """A partition is between two leaders, or its topic was created a moment ago."""


class WrongTopic(EnvironmentFault):
    """A topic is not the one that the log belongs to, or is set up so that its offsets prove nothing."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Last stable end offsets of the intents topic, and the end of the generations log read with them."""

    intents: events.PartitionOffsets
    log_end: int


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Identity of one topic and how many partitions and replicas it has."""

    topic_id: str
    partitions: int
    replicas: int


class Positions:
    """Reads positions and identities through one admin client; safe for use by several threads."""

    def __init__(self, settings: Settings) -> None:
        self.log = settings.topic(records.GENERATIONS)
        self.intents = settings.topic(records.INTENTS)
        self._admin = AdminClient(
            settings.kafka(**{"client.id": "sexton-issuer", "socket.timeout.ms": 6000, "log_level": 0})
        )
        self._genesis: events.Genesis | None = None
        self._partitions = 0

    def expect(self, genesis: events.Genesis) -> None:
        """From now on refuse topics whose ids are not those that Genesis names."""
        self._genesis = genesis

    def cluster_id(self, deadline: Deadline) -> str:
        """Return the id of the Kafka cluster; raises KafkaUnavailable."""
        described = self._admin.describe_cluster(request_timeout=deadline.require("cluster id"))
        return str(_result(described, deadline, "cluster id").cluster_id)

    def describe(self, deadline: Deadline) -> dict[str, TopicFacts]:
        """Return the facts of the log and the intents topic by full name.

        Raises WrongTopic when one is missing, KafkaUnavailable when Kafka does not answer.
        """
        asked = TopicCollection([self.log, self.intents])
        futures = self._admin.describe_topics(asked, request_timeout=deadline.require("topic ids"))
        found = {}
        for name, future in futures.items():
            topic = _result(future, deadline, f"topic {name}")
            replicas = min((len(p.replicas) for p in topic.partitions), default=0)
            found[name] = TopicFacts(_canonical(topic.topic_id), len(topic.partitions), replicas)
        return found

    def read(self, deadline: Deadline) -> Ends:
        """Read the end offsets, then the topic ids, so that no id found is older than the offsets.

        Raises WrongTopic when a topic was re-created, KafkaUnavailable when Kafka does not answer in time.
        """
        while True:
            try:
                offsets = self._latest(self._partitions, deadline) if self._partitions else None
            except _Moving as trouble:
                self._look_again(trouble, deadline)
                continue
            facts = self.describe(deadline)
            self._verify(facts)
            # Partitions may have been added in between: their offsets must be in the answer too.
            missed, self._partitions = self._partitions, facts[self.intents].partitions
            if offsets is not None and missed == self._partitions:
                ends = events.PartitionOffsets(facts[self.intents].topic_id, offsets[1:])
                return Ends(ends, offsets[0])

    def brokers(self, deadline: Deadline) -> int:
        """Return how many brokers the cluster has; raises KafkaUnavailable."""
        described = self._admin.describe_cluster(request_timeout=deadline.require("brokers"))
        return len(_result(described, deadline, "brokers").nodes)

    def found(self, deadline: Deadline) -> dict[str, TopicFound]:
        """Return both topics as the brokers describe them, by full name; raises as `describe` does."""
        return {
            name: TopicFound(facts.partitions, facts.replicas, self._config(name, deadline))
            for name, facts in self.describe(deadline).items()
        }

    def _config(self, name: str, deadline: Deadline) -> dict[str, str]:
        asked = [ConfigResource(ResourceType.TOPIC, name)]
        (future,) = self._admin.describe_configs(asked, request_timeout=deadline.require("settings")).values()
        entries = _result(future, deadline, f"settings of {name}")
        return {key: str(entry.value) for key, entry in entries.items()}

    def _look_again(self, trouble: _Moving, deadline: Deadline) -> None:
        """Make the client ask who leads: by itself it uses a deposed leader, or none, for ever."""
        if deadline.left() <= _MOVING_S:
            raise trouble
        with suppress(KafkaException):  # the next reading finds the same trouble and tells it
            self._admin.list_topics(timeout=min(1.0, deadline.left()))
        time.sleep(min(_MOVING_S, deadline.left()))

    def _latest(self, partitions: int, deadline: Deadline) -> list[int] | None:
        asked = {TopicPartition(self.log, 0): _LATEST}
        for partition in range(partitions):
            asked[TopicPartition(self.intents, partition)] = _LATEST
        futures = self._admin.list_offsets(
            asked,
            isolation_level=IsolationLevel.READ_COMMITTED,  # an open transaction's records are not settled
            request_timeout=deadline.require("end offsets"),
        )
        try:
            return [_result(future, deadline, "end offsets").offset for future in futures.values()]
        except WrongTopic:
            return None  # the description that follows says which topic it is
        except _NoLeader:
            time.sleep(_LEADER_WAIT_S)  # an election, or a topic made a moment ago; until the deadline
            return None

    def _verify(self, facts: Mapping[str, TopicFacts]) -> None:
        if self._genesis is None:
            return
        named = {self.log: self._genesis.generations_topic_id, self.intents: self._genesis.intents_topic_id}
        for name, topic_id in named.items():
            if facts[name].topic_id != topic_id:
                raise WrongTopic(
                    f"the log belongs to another topic {name}: {topic_id}, found {facts[name].topic_id}",
                    hint="a topic was deleted and created again; offsets of the old one prove nothing here",
                )


class _NoLeader(KafkaUnavailable):
    """A partition has no leader at this moment."""


def _canonical(topic_id: Any) -> str:
    """Return a topic id in the form of Kafka's own tools; the client library uses the other base64."""
    return str(topic_id).replace("+", "-").replace("/", "_")


def _result(future: Future[_T], deadline: Deadline, what: str) -> Any:
    try:
        return future.result(timeout=deadline.require(what))
    except KafkaException as error:
        kafka = error.args[0]
        if kafka.name() in ("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_PARTITION"):
            raise WrongTopic(f"{what}: {kafka.str()}", hint="run `sexton topics create`") from error
        if kafka.name() in ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE"):
            raise _NoLeader(f"{what}: {kafka.str()}") from error
        kind = _Moving if kafka.name() in _MOVING else KafkaUnavailable
        raise kind(f"{what}: {kafka.str()}") from error
    except FutureTimeout as error:
        raise KafkaUnavailable(f"no time left: {what}") from error
