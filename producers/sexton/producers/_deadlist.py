"""A transaction's deadlist: collected first, written whole, and known to stand in one topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from sexton.producers._emitter import Emitter
from sexton.producers._limits import Deadline
from sexton.producers._receipt import Flight, Receipt
from sexton.producers._transport import Delivered
from sexton.schemas import events
from sexton.schemas.errors import KafkaUnavailable

__all__ = ["Deadlist", "ends_behind"]

_LEAST_S = 1.0  # for the question which topic it is, when the deadline has gone by on the way


class Deadlist:
    """Intents that die if and when the transaction commits; nothing is sent before `deliver`."""

    def __init__(self, emitter: Emitter) -> None:
        self.intents: list[events.DeletionIntent] = []
        self._emitter = emitter
        self._flights: dict[str, Flight] = {}
        self._topic_id: str | None = None

    def add(self, checked: Iterable[events.DeletionIntent]) -> None:
        """Collect intents, each of which may be written."""
        self.intents += checked

    def deliver(self, deadline: Deadline) -> events.PartitionOffsets | None:
        """Write all that Kafka has not acknowledged, wait until it has, and return the offsets behind it.

        None for an empty deadlist. A second call writes again what has failed, under the same ids. Raises
        QueueFull, DeliveryFailed, DeliveryPending (with the ids that are missing), ProducerFailed,
        ConnectionClosed, KafkaUnavailable.
        """
        if not self.intents:
            return None
        topic_id = self._emitter.topic_id(max(deadline.left(), _LEAST_S))
        if topic_id != self._topic_id:
            self._topic_id, self._flights = topic_id, {}
        now = datetime.now(UTC)
        due = [replace(intent, emitted_at=now) for intent in self.intents if self._is_due(intent)]
        # Each key was looked at when it was collected.
        prepared = self._emitter.prepare(due, any_key=True)
        failed = [intent.intent_id for intent in due if intent.intent_id in self._flights]
        receipt = self._emitter.send_again(prepared, deadline.left(), failed)
        self._flights |= receipt.flights
        delivered = Receipt([*self._flights.values()]).wait(deadline.left())
        # Asked again: a topic of the same name that was made meanwhile has other intents at these offsets.
        found = self._emitter.topic_id(max(deadline.left(), _LEAST_S))
        if found != topic_id:
            self._flights = {}
            raise KafkaUnavailable(
                f"the intents topic was made anew while the deadlist was written: {topic_id}, now {found}",
                hint="the issuer's log belongs to the old one: see `sexton issuer show`",
            )
        return ends_behind(topic_id, delivered.values())

    def _is_due(self, intent: events.DeletionIntent) -> bool:
        flight = self._flights.get(intent.intent_id)
        return flight is None or flight.has_failed


def ends_behind(topic_id: str, delivered: Iterable[Delivered]) -> events.PartitionOffsets:
    """Return the offset behind what was written, for each partition up to the last one of these."""
    ends: dict[int, int] = {}
    for where in delivered:
        ends[where.partition] = max(ends.get(where.partition, 0), where.offset + 1)
    return events.PartitionOffsets(topic_id, tuple(ends.get(each, 0) for each in range(max(ends) + 1)))
