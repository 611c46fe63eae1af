"""From intents to acknowledged records: check and encode all of a call, then send, then keep count.

Counters add up at any moment: emitted = delivered + failed + pending.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from sexton.producers._at_exit import tell_at_exit
from sexton.producers._errors import DeliveryFailed, QueueFull
from sexton.producers._fork import notice_fork, renew_after_fork
from sexton.producers._kafka_transport import KafkaTransport
from sexton.producers._limits import Deadline, Limits
from sexton.producers._receipt import Flight, Receipt
from sexton.producers._transport import Record, Transport
from sexton.producers._values import check_texts
from sexton.schemas import events, records
from sexton.schemas.checks import check_likely
from sexton.schemas.codec import Codec
from sexton.schemas.errors import InvalidEvent
from sexton.schemas.intents import MAX_INTENT_BYTES, check_intent
from sexton.schemas.registry import open_codec
from sexton.schemas.settings import Settings

__all__ = ["Emitter", "Prepared", "Statistics"]

_HEADERS = 4_096  # key and headers at their longest: two tenants and an intent id
_LAST_LOOK = 0.1  # seconds at the end of a process that has not closed, for reports that are there already
_FAILED_KEPT = 100_000  # ids of intents that failed before `close`, beside those that are on their way then


@dataclass(frozen=True, slots=True)
class Statistics:
    """Intents since the connection was made: emitted = delivered + failed + pending."""

    emitted: int
    delivered: int
    failed: int
    pending: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """An intent that is checked and encoded: nothing can be wrong with it any more."""

    intent: events.DeletionIntent
    record: Record


_OnFailed = Callable[[events.DeletionIntent], None]


class Emitter:
    """Sends intents to the intents topic."""

    def __init__(
        self, transport: Transport, topic: str, codec: Codec, limits: Limits, *, any_key: bool = False
    ) -> None:
        self.any_key = any_key
        self.limits = replace(limits, message_bytes=min(limits.message_bytes, MAX_INTENT_BYTES))
        self._transport = transport
        self._topic = topic
        self._codec = codec
        self._closed = False
        self._reset()
        notice_fork()  # before it is one of those to renew
        renew_after_fork(self)
        tell_at_exit(self)

    @classmethod
    def open(cls, settings: Settings, limits: Limits, *, any_key: bool = False) -> Emitter:
        """Return an emitter over Kafka; raises InvalidSettings when the Kafka client refuses them.

        Unless `any_key`, what is hardly a key (a URI, a path from the root) is refused.
        """
        transport = KafkaTransport(settings, limits)
        names = {"message.max.bytes": "message_bytes", "queue.buffering.max.messages": "queue_messages"}
        given = {own: settings.kafka_extra.get(name) for name, own in names.items()}
        # Numbers: the Kafka client has taken them.
        limits = replace(limits, **{own: int(value) for own, value in given.items() if value})
        return cls(transport, settings.topic(records.INTENTS), open_codec(settings), limits, any_key=any_key)

    def topic_id(self, timeout: float) -> str:
        """Return the id of the intents topic as it stands now; raises KafkaUnavailable."""
        notice_fork()
        return self._transport.topic_id(self._topic, Deadline(timeout))

    def new_id(self) -> str:
        """Return an intent id that nobody else has."""
        notice_fork()
        return f"{self._id_prefix}-{next(self._id_numbers):08x}"

    def prepare(
        self, intents: Iterable[events.DeletionIntent], *, any_key: bool | None = None
    ) -> list[Prepared]:
        """Check and encode intents, sending nothing; `any_key` in place of the emitter's own.

        Raises InvalidEvent for the first that may not be written; EnvironmentFault when a schema registry is
        configured and away.
        """
        allowed = self.any_key if any_key is None else any_key
        return [self._prepare(intent, any_key=allowed) for intent in intents]

    def send(
        self, prepared: Sequence[Prepared], timeout: float | None = None, on_failed: _OnFailed | None = None
    ) -> Receipt:
        """Hand prepared intents to Kafka in their order and return at once, unless the queue is full.

        `timeout` bounds the wait for room, in seconds. `on_failed` is called for each that is not delivered.
        Raises QueueFull with the intents that were not sent, ProducerFailed, ConnectionClosed.
        """
        notice_fork()
        deadline = Deadline(self.limits.call_timeout if timeout is None else timeout)
        flights: list[Flight] = []
        for index, one in enumerate(prepared):
            flight = Flight(one.intent.intent_id, self._landed)
            # Not the record: its bytes are the Kafka client's by then, a second copy only fills the memory.
            self._pending[flight] = (one.intent, on_failed)
            self._emitted += 1
            try:
                self._transport.send(one.record, flight, deadline)
            except BaseException as error:
                if self._pending.pop(flight, None) is not None:  # else a close meanwhile has failed it
                    self._emitted -= 1
                self._not_sent(prepared[index:], flights, error, on_failed)
                raise
            flights.append(flight)
        return Receipt(flights)

    def send_again(self, prepared: Sequence[Prepared], timeout: float, failed: Iterable[str]) -> Receipt:
        """Send as `send` does; of ids that have `failed` before, `close` tells only if they fail again."""
        for intent_id in failed:
            with suppress(ValueError):  # so many have failed since that it is not told of anyway
                self._failed.remove(intent_id)
        return self.send(prepared, timeout)

    def emit(
        self,
        intents: Iterable[events.DeletionIntent],
        timeout: float | None = None,
        *,
        any_key: bool | None = None,
    ) -> Receipt:
        """Check and encode all intents, then send them: if one is bad, nothing is sent."""
        return self.send(self.prepare(intents, any_key=any_key), timeout)

    def statistics(self) -> Statistics:
        """Return the counts as of now."""
        notice_fork()
        delivered, failed = self._delivered, self._failures
        return Statistics(self._emitted, delivered, failed, self._emitted - delivered - failed)

    def flush(self, timeout: float) -> int:
        """Wait until nothing is pending, at most `timeout` seconds; return how many still are."""
        notice_fork()
        self._transport.flush(Deadline(timeout))
        return len(self._pending)

    def close(self, timeout: float) -> tuple[str, ...]:
        """Deliver what can be delivered in `timeout` seconds and return the ids of what was not.

        Of what has failed before they are the latest.
        """
        notice_fork()
        self._closed = True
        try:
            self._transport.close(Deadline(timeout))
        finally:
            for flight in list(self._pending):
                flight.failed("the connection was closed first")
        return tuple(self._failed)

    def settle(self, timeout: float) -> tuple[str, ...]:
        """Wait for what is on its way, as `close` does, and return the ids of what was not delivered yet."""
        self._transport.flush(Deadline(timeout))
        return (*self._failed, *(flight.intent_id for flight in list(self._pending)))

    def unacknowledged(self) -> tuple[int, Sequence[str]]:
        """Return how many intents of this process Kafka has not acknowledged, and ids; none after `close`."""
        notice_fork()
        if self._closed:
            return 0, ()
        self._transport.flush(Deadline(_LAST_LOOK if self._pending else 0.0))
        pending = [flight.intent_id for flight in list(self._pending)]
        return self._failures + len(pending), [*self._failed, *pending]

    def renew(self) -> None:
        """In a forked child: what is pending belongs to the parent, which will deliver it."""
        self._reset()
        self._transport.renew()

    def relock(self) -> None:
        """Nothing is locked here, and the transport looks for itself."""

    def _reset(self) -> None:
        self._pending: dict[Flight, tuple[events.DeletionIntent, _OnFailed | None]] = {}
        # For a broker that is away for days: each receipt has told of its own, this is for who held none.
        self._failed: deque[str] = deque(maxlen=_FAILED_KEPT + self.limits.queue_messages)
        self._failures = 0
        self.first_failure: DeliveryFailed | None = None
        self._emitted = self._delivered = 0
        # Unique without a random number for each intent: nobody else, no child either, draws these 96 bits.
        self._id_prefix = os.urandom(12).hex()
        self._id_numbers = itertools.count(1)

    def _landed(self, flight: Flight, error: DeliveryFailed | None) -> bool:
        """Take an intent off the pending ones; False if it was not one of them."""
        known = self._pending.pop(flight, None)
        if known is None:
            return False
        if error is not None:
            intent, on_failed = known
            self._failed.append(flight.intent_id)
            self._failures += 1
            self.first_failure = self.first_failure or error
            if on_failed is not None:
                on_failed(intent)
        else:
            self._delivered += 1
        return True

    def _not_sent(
        self,
        left: Sequence[Prepared],
        sent: Sequence[Flight],
        error: BaseException,
        on_failed: _OnFailed | None,
    ) -> None:
        if on_failed is not None:
            for unsent in left:
                on_failed(unsent.intent)
        if isinstance(error, BufferError):
            ids = [unsent.intent.intent_id for unsent in left]
            accepted = [flight.intent_id for flight in sent]
            raise QueueFull(
                f"no room in the send queue, intents not sent: {len(ids)}", ids, accepted
            ) from error

    def _prepare(self, intent: events.DeletionIntent, *, any_key: bool) -> Prepared:
        try:
            value = self._codec.encode(intent, self._topic)  # first: it checks types that the rules rely on
        except InvalidEvent:
            check_texts(intent.action.keys)
            raise
        check_intent(intent)
        if not any_key:
            check_likely(intent.action.reaches)
        if intent.vetoes and not any_key:
            # Where what a veto asks about is never there, one stops everything and another one nothing.
            check_likely([key for veto in intent.vetoes for key in veto.objects])
        key = intent.tenant.encode()
        headers: list[tuple[str, str | bytes | None]] = [*records.headers(intent)]
        if len(value) + _HEADERS > self.limits.message_bytes:
            raise InvalidEvent(
                f"an intent does not fit into a message, bytes: {len(value)}: {intent.intent_id}",
                hint=f"a message has at most {self.limits.message_bytes} bytes: name fewer keys in an intent",
            )
        return Prepared(intent, Record(self._topic, key, value, headers))
