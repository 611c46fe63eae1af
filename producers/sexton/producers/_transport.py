"""What the emitter asks of a transport: it takes records and says for each, once, what became of it.

The one over Kafka is in `_kafka_transport`, `testing` has one without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sexton.producers._limits import Deadline

__all__ = ["Delivered", "Record", "Report", "Transport"]


@dataclass(frozen=True, slots=True)
class Record:
    """A Kafka record that has been encoded and checked."""

    topic: str
    key: bytes
    value: bytes
    headers: list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class Delivered:
    """Where an intent stands in the intents topic, acknowledged by all in-sync replicas."""

    partition: int
    offset: int


class Report(Protocol):
    """Told once what became of a record."""

    def delivered(self, where: Delivered) -> None:
        """Kafka has acknowledged it."""

    def failed(self, reason: str, hint: str | None = None) -> None:
        """Kafka has refused it, or did not answer in time: it may or may not be in the log."""


class Transport(Protocol):
    """Takes records to the log."""

    def send(self, record: Record, report: Report, deadline: Deadline) -> None:
        """Queue a record.

        Raises BufferError when there is no room before the deadline, ProducerFailed, ConnectionClosed.
        """

    def flush(self, deadline: Deadline) -> None:
        """Wait until every record was reported on, or the deadline."""

    def close(self, deadline: Deadline) -> None:
        """Flush, then report what is left as failed."""

    def renew(self) -> None:
        """Start afresh in a forked child: what the parent has queued is the parent's."""

    def topic_id(self, topic: str, deadline: Deadline) -> str:
        """Return the id of the topic that stands under this name now; raises KafkaUnavailable."""
