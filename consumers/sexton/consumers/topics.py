"""Reading topics without a group: from the beginning, or from now on, to the end or for ever."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Message

from sexton.schemas import records
from sexton.schemas.errors import NoSuchTopic, SextonError
from sexton.schemas.kafka.reader import Reader, place
from sexton.schemas.settings import Settings

__all__ = ["Raw", "Start", "TopicMissing", "full_name", "opened", "read", "read_if_there", "read_on"]

_FIRST_CONTACT_S = 10.0  # as long as a reaper's start waits for brokers
_NAMES = frozenset(
    getattr(records, name)
    for name in (
        *("INTENTS", "DEFERRED", "GENERATIONS", "SNAPSHOTS"),
        *("OUTCOMES", "DEAD_LETTERS", "HORIZONS", "CONTROL"),
    )
)


class TopicMissing(SextonError):
    """A topic does not exist."""


class Start(StrEnum):
    """Where reading starts."""

    BEGINNING = "beginning"
    END = "end"


@dataclass(frozen=True, slots=True)
class Raw:
    """A record as Kafka has it; `timestamp` is the log-append or create time."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]

    def header(self, name: str) -> str | None:
        """Return the last header of that name as text, None if there is none."""
        for found, value in reversed(self.headers):
            if found == name and value is not None:
                return value.decode("utf-8", "replace")
        return None


def full_name(settings: Settings, topic: str) -> str:
    """Return a topic's full name: a name of Sexton's gets the prefix, unless it has it already."""
    if topic in _NAMES or not topic.startswith(settings.topic_prefix):
        return settings.topic(topic)
    return topic


def read(
    settings: Settings,
    topic: str,
    *,
    start: Start = Start.BEGINNING,
    until_end: bool = True,
    committed: bool = True,
    timeout: float = 30.0,
) -> Iterator[Raw]:
    """Yield the records of a topic, in order within each partition.

    With `until_end` the end is the one at the time of the call, else it continues for ever. `committed` hides
    records of open and aborted transactions. `timeout` bounds, in seconds, the time without any progress
    before the end, and the first contact, which has 10 at most. Raises TopicMissing, KafkaUnavailable.
    """
    properties = {
        **({} if committed else {"isolation.level": "read_uncommitted"}),
        **({} if until_end else {"fetch.wait.max.ms": 500}),
    }
    with opened(settings, topic, start=start, timeout=timeout, **properties) as reader:
        if not until_end:
            yield from map(_raw, reader.follow())
        yield from read_on(reader, timeout)


@contextmanager
def opened(
    settings: Settings,
    topic: str,
    *,
    start: Start = Start.BEGINNING,
    timeout: float = 30.0,
    **properties: Any,
) -> Iterator[Reader]:
    """Give a reader of all partitions of a topic, with librdkafka's `properties`.

    `timeout` bounds the first contact, in seconds. Raises TopicMissing, KafkaUnavailable.
    """
    name = full_name(settings, topic)
    what = f"the brokers do not answer: {settings.kafka_bootstrap_servers}"
    with closing(Reader(settings, name, "sexton-console", what, **properties)) as reader:
        try:
            partitions = reader.partitions(min(timeout, _FIRST_CONTACT_S))
        except NoSuchTopic as error:
            raise TopicMissing(str(error), hint=_where_it_may_be(settings, name)) from error
        at = OFFSET_BEGINNING if start is Start.BEGINNING else OFFSET_END
        reader.positions = dict.fromkeys(partitions, at)
        yield reader


def read_on(reader: Reader, timeout: float = 30.0) -> Iterator[Raw]:
    """Yield the records from where the reader is to the end as of now; later on, those that came since."""
    bounds = {number: reader.bounds(number, timeout) for number in reader.positions}
    ends = {number: end for number, (first, end) in bounds.items() if end > first}
    yield from map(_raw, reader.read(ends, answer_s=timeout))


def read_if_there(settings: Settings, topic: str, timeout: float = 30.0) -> Iterator[Raw]:
    """Yield the records of a topic up to its end as of now, none if the topic does not exist."""
    try:
        yield from read(settings, topic, timeout=timeout)
    except TopicMissing:
        return


def _where_it_may_be(settings: Settings, name: str) -> str:
    short = name.removeprefix(settings.topic_prefix)
    if short in _NAMES:
        return (
            f"`sexton topics create` makes it; or is SEXTON_TOPIC_PREFIX not {settings.topic_prefix!r} there?"
        )
    close = difflib.get_close_matches(short, _NAMES, n=1)
    asked = f"did you mean {close[0]}? " if close else ""
    return f"{asked}Sexton's topics: {', '.join(sorted(_NAMES))}"


def _raw(message: Message) -> Raw:
    kind, milliseconds = message.timestamp()
    headers: Any = message.headers() or ()
    partition, offset = place(message)
    return Raw(
        message.topic() or "",
        partition,
        offset,
        datetime.fromtimestamp(milliseconds / 1000, UTC) if kind else None,
        message.key(),
        message.value(),
        tuple(headers),
    )
