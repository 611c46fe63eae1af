"""What Kafka says of the two topics that the truth rests on: end offsets, topic ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import TopicPartition

from sexton.issuer.deadline import Deadline
from sexton.schemas import events, records
from sexton.schemas.errors import EnvironmentFault, NoSuchTopic
from sexton.schemas.kafka.admin import Cluster, TopicIdentity
from sexton.schemas.settings import Settings

__all__ = ["REACH_S", "Ends", "Positions", "WrongTopic", "verify"]

REACH_S = 15.0
"""Seconds in which brokers answer an operator's command, or are given up; folding the log may take longer."""


class WrongTopic(EnvironmentFault):
    """A topic is not the one that the log belongs to, or is set up so that its offsets prove nothing."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Last stable end offsets of the intents topic, and the end of the generations log read with them."""

    intents: events.PartitionOffsets
    log_end: int


class Positions:
    """Reads positions and identities through one admin client; safe for use by several threads."""

    def __init__(self, settings: Settings) -> None:
        self.log = settings.topic(records.GENERATIONS)
        self.intents = settings.topic(records.INTENTS)
        self.cluster = Cluster(settings, **{"client.id": "sexton-issuer", "socket.timeout.ms": 6000})
        self._named: Mapping[str, str] = {}
        self._partitions = 0

    def expect(self, genesis: events.Genesis) -> None:
        """From now on refuse topics whose ids are not those that Genesis names."""
        self._named = {self.log: genesis.generations_topic_id, self.intents: genesis.intents_topic_id}

    def describe(self, deadline: Deadline) -> dict[str, TopicIdentity]:
        """Return the identities of the log and the intents topic by full name.

        Raises WrongTopic when one is missing, KafkaUnavailable when Kafka does not answer.
        """
        names = [self.log, self.intents]
        found = self.cluster.identities(names, deadline.require("topic ids"))
        for name in names:
            if name not in found:
                raise WrongTopic(f"there is no such topic: {name}", hint="run `sexton topics create`")
        return found

    def read(self, deadline: Deadline) -> Ends:
        """Read the end offsets, then the topic ids, so that no id found is older than the offsets.

        Raises WrongTopic when a topic was re-created, KafkaUnavailable when Kafka does not answer in time.
        """
        return self.cluster.ask(lambda left_s: self._read(deadline.within(left_s)), deadline.left)

    def _read(self, deadline: Deadline) -> Ends:
        # Once more where it was not known before how many partitions there are.
        while (ends := self._read_once(deadline)) is None:
            pass
        return ends

    def _read_once(self, deadline: Deadline) -> Ends | None:
        # The offsets first: a topic that was created anew in between is seen by its id. Read after the ids,
        # the new one's offsets would be taken for the old one's.
        offsets = self._latest(self._partitions, deadline) if self._partitions else None
        facts = self.describe(deadline)
        verify(self._named, facts)
        # Partitions may have been added in between: their offsets must be in the answer too.
        missed, self._partitions = self._partitions, facts[self.intents].partitions
        if offsets is None or missed != self._partitions:
            return None
        return Ends(events.PartitionOffsets(facts[self.intents].topic_id, offsets[1:]), offsets[0])

    def _latest(self, partitions: int, deadline: Deadline) -> list[int] | None:
        intents = [TopicPartition(self.intents, partition) for partition in range(partitions)]
        try:
            places = [TopicPartition(self.log, 0), *intents]
            return self.cluster.stable_ends(places, deadline.require("end offsets"))
        except NoSuchTopic:
            return None  # the description that follows says which topic it is


def verify(named: Mapping[str, str], facts: Mapping[str, TopicIdentity]) -> None:
    """Raise WrongTopic unless each topic has the id that Genesis names; `named` is empty before there is one.

    Windows are offsets of the topics that Genesis names. Those of a topic that was created again begin at 0
    once more, and would stand in windows of generations that are long over.
    """
    for name, topic_id in named.items():
        if facts[name].topic_id != topic_id:
            raise WrongTopic(
                f"the log belongs to another topic {name}: {topic_id}, found {facts[name].topic_id}",
                hint="a topic was deleted and created again; offsets of the old one prove nothing here",
            )
