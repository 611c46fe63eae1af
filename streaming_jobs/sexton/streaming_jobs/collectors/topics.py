"""Reading topics for collectors: from the beginning to the end as of now, and single records by position."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Self

from confluent_kafka import OFFSET_BEGINNING, Message

from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.kafka.reader import CutOff, Reader
from sexton.schemas.settings import Settings

__all__ = ["Record", "Records", "read"]

_ANSWER_S = 30.0
_REACH_S = 10.0


@dataclass(frozen=True, slots=True)
class Record:
    """A record's value, and the intent id in its headers, None where it has none."""

    value: bytes | None
    intent_id: str | None


def read(settings: Settings, topic: str) -> Iterator[Record]:
    """Yield the records of a topic up to its end as of now; raises NoSuchTopic, KafkaUnavailable."""
    with closing(_reader(settings, topic)) as reader:
        partitions = reader.partitions(_REACH_S)
        reader.positions = dict.fromkeys(partitions, OFFSET_BEGINNING)
        bounds = {number: reader.bounds(number, _ANSWER_S) for number in partitions}
        ends = {number: end for number, (first, end) in bounds.items() if end > first}
        for message in reader.read(ends, answer_s=_ANSWER_S):
            yield Record(message.value(), _intent_id(message))


class Records:
    """Single records of a topic, by position."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._reader = _reader(settings, topic)
        self.topic_id = Cluster(settings).topic_id(settings.topic(topic))
        self._bounds: dict[int, tuple[int, int]] = {}

    def at(self, partition: int, offset: int) -> bytes | None:
        """Return the value at a position, None where retention has taken it, or nothing stands there."""
        if partition not in self._bounds:
            self._bounds[partition] = self._reader.bounds(partition, _ANSWER_S)
        first, end = self._bounds[partition]
        if not first <= offset < end:
            return None
        self._reader.positions = {partition: offset}
        try:
            found = list(self._reader.read({partition: offset + 1}, answer_s=_ANSWER_S))
        except CutOff:
            return None
        return found[0].value() if found else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()


def _reader(settings: Settings, topic: str) -> Reader:
    what = f"the brokers do not answer: {settings.kafka_bootstrap_servers}"
    return Reader(settings, settings.topic(topic), "sexton-collect", what)


def _intent_id(message: Message) -> str | None:
    headers: Any = message.headers() or ()
    for name, value in reversed(headers):
        if name == "intent-id" and value is not None:
            return str(value.decode("utf-8", "replace"))
    return None
