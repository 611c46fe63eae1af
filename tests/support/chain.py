"""Drives the whole chain on one installation: emit intents, run the reaper in this process, read back."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, get_args

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from pyspark.sql import SparkSession
from tests.support.topic_settings import configure

from sexton.issuer.client import IssuerClient
from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.job import Reaper
from sexton.streaming_jobs.reaper.progress import Progress
from sexton.streaming_jobs.reaper.stop import StopFlag

_Event = TypeVar("_Event", bound=events.Event)
_numbers = itertools.count(1)
NEVER = 3600.0


@dataclass
class Chain:
    """One installation with a reaper that runs on demand."""

    settings: Settings
    spark: SparkSession
    bucket: str
    codec: Codec = field(default_factory=Codec)

    def issuer(self) -> IssuerClient:
        """A client of the installation's issuer."""
        return IssuerClient(self.settings.issuer_url)

    def intent(
        self,
        tenant: str,
        generation: int | None,
        keys: Sequence[str],
        *,
        guards: Sequence[events.Guard] | None = None,
        action: events.Action | None = None,
        intent_id: str | None = None,
    ) -> events.DeletionIntent:
        """An intent of `tenant`, guarded by its generation unless other guards are given."""
        if guards is None:
            assert generation is not None
            guards = (events.GenerationGuard(tenant, generation),)
        return events.DeletionIntent(
            intent_id or f"intent-{next(_numbers):05d}",
            tenant,
            datetime.now(UTC),
            "test",
            guards,
            action or events.DeleteObjects(self.bucket, (tuple(keys),)),
        )

    def produce(
        self,
        *values: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        topic: str = records.INTENTS,
        **config: Any,
    ) -> list[int]:
        """Write raw records to a topic, in order; returns their offsets."""
        producer = Producer(self.settings.kafka(**{"acks": "all", **config}))
        offsets: list[int] = []

        def landed(error: Any, message: Any) -> None:
            assert error is None, error
            offsets.append(message.offset())

        extra: dict[str, Any] = {} if partition is None else {"partition": partition}
        for value in values:
            producer.produce(self.settings.topic(topic), value=value, key=key, on_delivery=landed, **extra)
        assert producer.flush(20) == 0
        return offsets

    def emit(self, *intents: events.DeletionIntent, partition: int | None = 0) -> list[str]:
        """Write intents to one partition, in order; returns their ids."""
        self.produce(*(self.codec.encode(intent) for intent in intents), partition=partition)
        return [intent.intent_id for intent in intents]

    def reap(self, progress: Progress | None = None, **overrides: Any) -> Counts:
        """Process what is there, as `reaper run --once` does."""
        settings = self.settings.model_copy(update=overrides)
        reaper = Reaper(
            settings, self.spark, StopFlag(NEVER, lambda: None), once=True, progress=progress or Progress()
        )
        reaper.run()
        return reaper.progress.total

    def outcomes(self) -> list[events.Outcome]:
        """Every outcome, in no special order."""
        return self._read(records.OUTCOMES, events.Outcome)

    def words(self) -> dict[str, str]:
        """The outcome of each intent id; fails when records of one intent disagree."""
        found: dict[str, set[str]] = {}
        for outcome in self.outcomes():
            found.setdefault(outcome.intent_id, set()).add(outcome.outcome.value)
        assert all(len(words) == 1 for words in found.values()), found
        return {intent_id: words.pop() for intent_id, words in found.items()}

    def dead_letters(self) -> list[events.DeadLetter]:
        """Every dead letter."""
        return self._read(records.DEAD_LETTERS, events.DeadLetter)

    def deferred(self) -> list[events.DeferredIntent]:
        """Every deferred copy."""
        return self._read(records.DEFERRED, events.DeferredIntent)

    def generation_events(self) -> list[events.Event]:
        """The issuer's log."""
        return self._read(records.GENERATIONS, *get_args(events.GenerationEvent))

    def topic_id(self, topic: str) -> str:
        """The id that a topic has now."""
        cluster = Cluster(self.settings)
        cluster.topic_names()
        found = cluster.topic_id(self.settings.topic(topic))
        assert found is not None
        return found

    def configure(self, topic: str, name: str, value: str) -> None:
        """Change a setting of a topic."""
        configure(self.settings, topic, name, value)

    def messages(self, topic: str) -> list[Message]:
        """Every committed record of a topic, as it came."""
        return messages(self.settings, self.settings.topic(topic))

    def _read(self, topic: str, *kinds: type[_Event]) -> list[_Event]:
        return [self.codec.decode(message.value(), *kinds) for message in self.messages(topic)]


def messages(settings: Settings, topic: str) -> list[Message]:
    """Every committed record of a topic up to its end as of now, by partition and offset."""
    consumer = Consumer(
        settings.kafka(
            **{
                "group.id": "tests",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
            }
        )
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        left, found = set(partitions), []
        while left:
            message = consumer.poll(10)
            assert message is not None, f"no answer while reading {topic}"
            if message.error() is not None:
                left.discard(message.partition())
                continue
            found.append(message)
        return sorted(found, key=lambda m: (m.partition() or 0, m.offset() or 0))
    finally:
        consumer.close()


def forget_last_commit(chain: Chain) -> None:
    """Bring the checkpoint back to the moment between the last micro-batch's work and its commit."""
    assert chain.settings.checkpoint is not None
    commits = [p for p in (Path(chain.settings.checkpoint) / "commits").iterdir() if p.name.isdigit()]
    last = max(commits, key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()


def keys(prefix: str, count: int) -> list[str]:
    """Plain object names."""
    return [f"{prefix}/{i:05d}" for i in range(count)]
