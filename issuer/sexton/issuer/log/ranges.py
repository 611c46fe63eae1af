"""Ranges of the log, or of the snapshots, read once and apart from the fold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from confluent_kafka import Message

from sexton.issuer.deadline import Deadline
from sexton.issuer.json_lines import KAFKA
from sexton.schemas.errors import NoSuchTopic
from sexton.schemas.kafka.reader import CutOff, Reader
from sexton.schemas.settings import Settings

__all__ = ["RangeReader"]

_LARGEST_BYTES = 8 * 1024 * 1024  # an event, or a chunk of a snapshot


class RangeReader:
    """Reads ranges of a topic's partition 0; raises KafkaUnavailable when it cannot in time."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._topic = topic
        self._reader = Reader(
            settings,
            topic,
            "sexton-issuer",
            f"reading {topic}",
            logger=KAFKA,
            **{
                "client.id": "sexton-issuer-snapshots",
                "fetch.wait.max.ms": 5,
                "fetch.message.max.bytes": _LARGEST_BYTES,
            },
        )

    def close(self) -> None:
        """Free the consumer."""
        self._reader.close()

    def bounds(self, deadline: Deadline) -> tuple[int, int] | None:
        """Return the first offset and the end of the topic, None when there is no such topic."""
        what = f"bounds of {self._topic}"
        try:
            self._reader.partitions(deadline.require(what))
            return self._reader.bounds(0, deadline.require(what))
        except NoSuchTopic:
            return None

    def read(self, start: int, end: int, deadline: Deadline) -> Iterator[Message]:
        """Yield the records in [start, end) that are there."""
        what = f"reading {self._topic}"
        self._reader.positions[0] = start
        with suppress(CutOff):  # what is not there the caller finds missing
            yield from self._reader.read({0: end}, wait=lambda: min(1.0, deadline.require(what)))
