"""Reading topics without a group: from the beginning, or from now on, to the end or for ever."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from sexton.schemas import records
from sexton.schemas.errors import KafkaUnavailable, SextonError
from sexton.schemas.settings import Settings

__all__ = ["Raw", "Start", "TopicMissing", "full_name", "read", "read_if_there"]

_BATCH = 1_000
_SLICE_S = 0.2  # longest single wait inside the C library, so that Ctrl-C is heard
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
    name = full_name(settings, topic)
    config = settings.kafka(
        **{
            "group.id": "sexton-console",  # needed by the client; no offset is ever committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            # The end is reported by an empty fetch, for which the broker waits half a second by default.
            "fetch.wait.max.ms": 10 if until_end else 500,
            "error_cb": lambda error: None,  # told by the timeout, as a typed error
            "log_level": 0,
        }
    )
    consumer = Consumer(config)
    try:
        partitions = _partitions(consumer, settings, name, timeout)
        at = OFFSET_BEGINNING if start is Start.BEGINNING else OFFSET_END
        ends = _ends(consumer, name, partitions, timeout) if until_end else {}
        consumer.assign([TopicPartition(name, number, at) for number in partitions])
        yield from _records(consumer, ends, until_end=until_end, timeout=timeout)
    except KafkaException as error:
        brokers = settings.kafka_bootstrap_servers
        raise KafkaUnavailable(f"the brokers do not answer: {brokers}: {_told(error)}") from error
    finally:
        consumer.close()


def read_if_there(settings: Settings, topic: str, timeout: float = 30.0) -> Iterator[Raw]:
    """Yield the records of a topic up to its end as of now, none if the topic does not exist."""
    try:
        yield from read(settings, topic, timeout=timeout)
    except TopicMissing:
        return


def _partitions(consumer: Consumer, settings: Settings, name: str, timeout: float) -> list[int]:
    found = consumer.list_topics(name, timeout=min(timeout, _FIRST_CONTACT_S)).topics[name]
    if found.error is not None:
        if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise TopicMissing(f"no such topic: {name}", hint=_where_it_may_be(settings, name))
        raise KafkaException(found.error)
    return sorted(found.partitions)


def _where_it_may_be(settings: Settings, name: str) -> str:
    short = name.removeprefix(settings.topic_prefix)
    if short in _NAMES:
        return (
            f"`sexton topics create` makes it; or is SEXTON_TOPIC_PREFIX not {settings.topic_prefix!r} there?"
        )
    close = difflib.get_close_matches(short, _NAMES, n=1)
    asked = f"did you mean {close[0]}? " if close else ""
    return f"{asked}Sexton's topics: {', '.join(sorted(_NAMES))}"


def _ends(consumer: Consumer, name: str, partitions: Sequence[int], timeout: float) -> dict[int, int]:
    """Return, for each partition that is not empty, the end offset as of now."""
    ends = {}
    for number in partitions:
        first, end = consumer.get_watermark_offsets(TopicPartition(name, number), timeout=timeout)
        if end > first:
            ends[number] = end
    return ends


def _records(consumer: Consumer, ends: dict[int, int], *, until_end: bool, timeout: float) -> Iterator[Raw]:
    waiting = dict(ends)
    progress = time.monotonic()
    while waiting or not until_end:
        messages = consumer.consume(_BATCH, _SLICE_S)
        if not messages and until_end and time.monotonic() - progress > timeout:
            raise KafkaUnavailable(f"no progress in {timeout:g} s, partitions left: {len(waiting)}")
        for message in messages:
            partition, offset = _place(message)
            error = message.error()
            if error is None:
                if not until_end or offset < ends.get(partition, 0):
                    yield _raw(message)
                if offset + 1 >= ends.get(partition, 0):
                    waiting.pop(partition, None)
            elif error.code() == KafkaError._PARTITION_EOF:
                # Also where the last offsets are transaction markers or aborted, and no record comes.
                waiting.pop(partition, None)
            elif not error.retriable():
                raise KafkaException(error)
        if messages:
            progress = time.monotonic()  # after the caller had them: its time is not Kafka's


def _place(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    return (-1 if partition is None else partition), (-1 if offset is None else offset)


def _raw(message: Message) -> Raw:
    kind, milliseconds = message.timestamp()
    headers: Any = message.headers() or ()
    partition, offset = _place(message)
    return Raw(
        message.topic() or "",
        partition,
        offset,
        datetime.fromtimestamp(milliseconds / 1000, UTC) if kind else None,
        message.key(),
        message.value(),
        tuple(headers),
    )


def _told(error: KafkaException) -> str:
    first = error.args[0] if error.args else error
    return str(first.str() if isinstance(first, KafkaError) else first)
