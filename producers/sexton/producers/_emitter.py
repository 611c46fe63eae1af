"""From intents to acknowledged records: check and encode all of a call, then send, then keep count.

Counters add up at any moment: emitted = delivered + failed + pending.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from sexton.producers._errors import DeliveryFailed, QueueFull
from sexton.producers._fork import renew_after_fork
from sexton.producers._limits import Deadline, Limits
from sexton.producers._receipt import Receipt
from sexton.producers._transport import Delivered, KafkaTransport, Record, Transport, kafka_config
from sexton.schemas import events, records
from sexton.schemas.checks import check_intent
from sexton.schemas.codec import Codec
from sexton.schemas.errors import InvalidEvent
from sexton.schemas.registry import open_codec
from sexton.schemas.settings import Settings

__all__ = ["Emitter", "Prepared", "Statistics", "split_keys"]

_log = logging.getLogger(__name__)
# Of a message's bytes: framing, ids, guard, headers and batch overhead beside names, which are counted.
_OVERHEAD = 8_192
_HEADERS = 4_096  # key and headers at their longest: two tenants and an intent id
_PER_KEY = 3  # length of a text: two bytes of varint up to 4 KiB, and one to spare


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


class _Flight:
    """An intent between the call and its report."""

    __slots__ = ("_emitter", "_on_failed", "future", "prepared")

    def __init__(self, emitter: Emitter, prepared: Prepared, on_failed: _OnFailed | None) -> None:
        self._emitter = emitter
        self._on_failed = on_failed
        self.prepared = prepared
        self.future: Future[Delivered] = Future()

    def delivered(self, where: Delivered) -> None:
        if self._emitter.landed(self, failed=False):
            self.future.set_result(where)

    def failed(self, reason: str) -> None:
        if self._emitter.landed(self, failed=True):
            if self._on_failed is not None:
                self._on_failed(self.prepared)
            intent_id = self.prepared.intent.intent_id
            self.future.set_exception(DeliveryFailed(f"{reason}: {intent_id}", (intent_id,)))


_OnFailed = Callable[[Prepared], None]


class Emitter:
    """Sends intents to the intents topic."""

    def __init__(self, transport: Transport, topic: str, codec: Codec, limits: Limits) -> None:
        self.limits = limits
        self._transport = transport
        self._topic = topic
        self._codec = codec
        self._reset()
        renew_after_fork(self)

    @classmethod
    def open(cls, settings: Settings, limits: Limits) -> Emitter:
        """Return an emitter over Kafka; raises InvalidSettings when the Kafka client refuses them."""
        transport = KafkaTransport(kafka_config(settings, limits))
        if own := settings.kafka_extra.get("message.max.bytes"):
            limits = replace(limits, message_bytes=int(own))  # a number: the Kafka client has taken it
        return cls(transport, settings.topic(records.INTENTS), open_codec(settings), limits)

    def prepare(self, intents: Iterable[events.DeletionIntent]) -> list[Prepared]:
        """Check and encode intents, sending nothing.

        Raises InvalidEvent for the first that may not be written; EnvironmentFault when a schema registry is
        configured and away.
        """
        return [self._prepare(intent) for intent in intents]

    def send(
        self, prepared: Sequence[Prepared], timeout: float | None = None, on_failed: _OnFailed | None = None
    ) -> Receipt:
        """Hand prepared intents to Kafka in their order and return at once, unless the queue is full.

        `timeout` bounds the wait for room, in seconds. `on_failed` is called for each that is not delivered.
        Raises QueueFull with the intents that were not sent, ProducerFailed, ConnectionClosed.
        """
        deadline = Deadline(self.limits.call_timeout if timeout is None else timeout)
        futures: dict[str, Future[Delivered]] = {}
        for index, one in enumerate(prepared):
            flight = _Flight(self, one, on_failed)
            self._pending[flight] = None
            self._emitted += 1
            try:
                self._transport.send(one.record, flight, deadline)
            except BaseException as error:
                self._pending.pop(flight, None)
                self._emitted -= 1
                left = prepared[index:]
                if on_failed is not None:
                    for unsent in left:
                        on_failed(unsent)
                if not isinstance(error, BufferError):
                    raise
                ids = [unsent.intent.intent_id for unsent in left]
                raise QueueFull(
                    f"no room in the send queue after {deadline.timeout:g} s, intents not sent: {len(ids)}",
                    ids,
                    tuple(futures),
                ) from error
            futures[one.intent.intent_id] = flight.future
        return Receipt(futures)

    def emit(self, intents: Iterable[events.DeletionIntent], timeout: float | None = None) -> Receipt:
        """Check and encode all intents, then send them: if one is bad, nothing is sent."""
        return self.send(self.prepare(intents), timeout)

    def landed(self, flight: _Flight, *, failed: bool) -> bool:
        """Take an intent off the pending ones; False if it was not one of them."""
        if self._pending.pop(flight, flight) is flight:
            return False
        if failed:
            self._failed.append(flight.prepared.intent.intent_id)
        else:
            self._delivered += 1
        return True

    def statistics(self) -> Statistics:
        """Return the counts as of now."""
        delivered, failed = self._delivered, len(self._failed)
        return Statistics(self._emitted, delivered, failed, self._emitted - delivered - failed)

    def flush(self, timeout: float) -> int:
        """Wait until nothing is pending, at most `timeout` seconds; return how many still are."""
        self._transport.flush(Deadline(timeout))
        return len(self._pending)

    def close(self, timeout: float) -> tuple[str, ...]:
        """Deliver what can be delivered in `timeout` seconds and return the ids of what was not."""
        try:
            self._transport.close(Deadline(timeout))
        finally:
            for flight in list(self._pending):
                flight.failed("the connection was closed first")
        if self._failed:
            _log.warning("intents not delivered: %d", len(self._failed))
        return tuple(self._failed)

    def renew(self) -> None:
        """In a forked child: what is pending belongs to the parent, which will deliver it."""
        self._reset()
        self._transport.renew()

    def _reset(self) -> None:
        self._pending: dict[_Flight, None] = {}
        self._failed: list[str] = []
        self._emitted = self._delivered = 0

    def _prepare(self, intent: events.DeletionIntent) -> Prepared:
        value = self._codec.encode(intent, self._topic)  # first: it checks the types that the rules rely on
        check_intent(intent)
        key = intent.tenant.encode()
        headers: list[tuple[str, str | bytes | None]] = [*records.headers(intent)]
        if len(value) + _HEADERS > self.limits.message_bytes:
            raise InvalidEvent(
                f"an intent does not fit into a message, bytes: {len(value)}: {intent.intent_id}",
                hint=f"a message has at most {self.limits.message_bytes} bytes: name fewer keys in an intent",
            )
        return Prepared(intent, Record(self._topic, key, value, headers))


def split_keys(keys: Sequence[str], fixed: int, limits: Limits) -> list[Sequence[str]]:
    """Cut keys into runs that each fit into one intent; `fixed` is the size of the other names, in bytes.

    The size is estimated from above for all keys at once, so that the usual call costs no loop over keys.
    """
    room = limits.message_bytes - _OVERHEAD - fixed
    size = len("".join(keys).encode("utf-8", "surrogatepass")) + _PER_KEY * len(keys)
    parts = max(-(-size // room) if room > 0 else len(keys), -(-len(keys) // limits.keys_per_intent), 1)
    if parts == 1 or len(keys) == 1:
        return [keys]
    step = -(-len(keys) // parts)
    if step == len(keys):
        step = -(-len(keys) // 2)
    runs = [keys[start : start + step] for start in range(0, len(keys), step)]
    return [part for run in runs for part in split_keys(run, fixed, limits)]
