"""The one place of the SDK that meets the Kafka client.

A transport takes records and says for each, once, what became of it. `testing` has one without Kafka.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from sexton.producers._errors import ConnectionClosed, ProducerFailed
from sexton.producers._limits import Deadline, Limits
from sexton.producers._polling import SLICE, Polling, are_greenlets, polling
from sexton.schemas import records
from sexton.schemas.errors import InvalidSettings, UsageError
from sexton.schemas.settings import Settings

__all__ = [
    "Delivered",
    "KafkaTransport",
    "Record",
    "Report",
    "Transport",
    "kafka_config",
    "no_such_topic",
    "where_it_may_be",
]

_OnDelivery = Callable[[KafkaError | None, Any], None]
_log = logging.getLogger(__name__)
_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_IDLE = 1.0  # longest wait of the reader when nothing is on its way and threads are greenlets
_PURGE = 0.3  # of the time to close: what is kept for purging and reading the last reports
# What SEXTON_KAFKA_EXTRA may not turn off: without it an acknowledged intent can be lost, written twice,
# or written where no reader of Java's partitioning looks.
_REQUIRED = {
    "acks": ("all", "-1"),
    "request.required.acks": ("all", "-1"),
    "enable.idempotence": ("true",),
    "partitioner": ("murmur2", "murmur2_random"),
}


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


def kafka_config(settings: Settings, limits: Limits) -> dict[str, Any]:
    """Return the properties of the producer; raises InvalidSettings when the extra ones make it unsafe."""
    for name, value in settings.kafka_extra.items():
        if name == "transactional.id":
            raise InvalidSettings(
                "SEXTON_KAFKA_EXTRA: an intent is never written in a transaction: transactional.id"
            )
        if name in _REQUIRED and str(value).lower() not in _REQUIRED[name]:
            raise InvalidSettings(f"SEXTON_KAFKA_EXTRA: {name} must be {_REQUIRED[name][0]}: {value}")
    queue = int(settings.kafka_extra.get("queue.buffering.max.messages", limits.queue_messages))
    return settings.kafka(
        **{
            "client.id": "sexton-sdk",
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "murmur2",
            "linger.ms": limits.linger * 1000,
            "batch.num.messages": min(10_000, queue),  # a full queue does not linger
            "compression.type": "lz4",
            "message.max.bytes": limits.message_bytes,
            "message.timeout.ms": int(limits.delivery_timeout * 1000),
            "queue.buffering.max.messages": limits.queue_messages,
            "queue.buffering.max.kbytes": max(1, limits.queue_bytes // 1024),
        }
    )


class KafkaTransport:
    """An idempotent producer with a thread of its own that reads delivery reports.

    Where threads are greenlets (gevent, eventlet) so is the reader, and nothing blocks the others.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = dict(config)
        self._closed = False
        self._producer: Producer | None = None
        self._afresh()
        self._open()

    def send(self, record: Record, report: Report, deadline: Deadline) -> None:
        """Queue a record, waiting for room until the deadline."""
        if self._producer is None and self._polling.greenlets != are_greenlets():
            self._afresh()  # patched after the fork that took the client away
        producer = self._producer or self._open()
        if self._thread is None:
            self._read(producer)
        on_delivery = functools.partial(self._polling.tell, _report, report)
        try:
            self._produce(producer, record, on_delivery)
        except BufferError:
            self._wait_for_room(producer, record, on_delivery, deadline)
        if self._polling.greenlets and not self._sent.is_set():
            self._sent.set()

    def flush(self, deadline: Deadline) -> None:
        """Wait until every record was reported on, or the deadline."""
        producer = self._producer
        while producer is not None and len(producer) and not deadline.passed:
            self._polling.flush(producer, min(SLICE, deadline.left()))

    def close(self, deadline: Deadline) -> None:
        """Flush, then purge what is left, so that its reports come now and not never."""
        with self._opening:
            self._closed = True
            producer, self._producer = self._producer, None
        if producer is None:
            return
        last = Deadline(max(0.0, deadline.left() - _PURGE))
        while len(producer) and not last.passed:
            self._polling.flush(producer, min(SLICE, last.left()))
        if len(producer):
            producer.purge(blocking=False)
            end = Deadline(_PURGE)
            while len(producer) and not end.passed:
                self._polling.poll(producer, 0.02)
        self._stop.set()
        self._sent.set()
        last_reference = [producer]
        del producer
        self._polling.take_down(last_reference, self._thread, min(2 * SLICE, deadline.left()))

    def renew(self) -> None:
        """Let go of the parent's client: without its threads it can be neither used nor freed here."""
        if self._producer is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._producer))
        self._producer = None
        self._afresh()

    def _afresh(self) -> None:
        self._fatal: str | None = None
        self._opening = threading.Lock()
        self._stop = threading.Event()
        self._sent = threading.Event()
        self._room = threading.Condition()
        self._waiting = 0
        self._thread: threading.Thread | None = None
        self._polling: Polling = polling()

    def _produce(self, producer: Producer, record: Record, on_delivery: _OnDelivery) -> None:
        self._check()
        try:
            producer.produce(
                record.topic, record.value, record.key, headers=record.headers, on_delivery=on_delivery
            )
        except KafkaException as error:
            raise ProducerFailed(f"the kafka client takes no record: {error.args[0].str()}") from error

    def _wait_for_room(
        self, producer: Producer, record: Record, on_delivery: _OnDelivery, deadline: Deadline
    ) -> None:
        # A future's callback that emits; or greenlets, of which each may look.
        looks = self._polling.greenlets or threading.current_thread() is self._thread
        with self._room:
            self._waiting += 1
        try:
            while True:
                with self._room:
                    try:
                        self._produce(producer, record, on_delivery)
                        return
                    except BufferError:
                        if deadline.passed:
                            raise
                    if not looks:
                        self._room.wait(min(SLICE, deadline.left()))
                if looks:
                    self._polling.poll(producer, min(SLICE, deadline.left()))
        finally:
            with self._room:
                self._waiting -= 1

    def _serve(self, producer: Producer, stop: threading.Event, sent: threading.Event) -> None:
        greenlets, here = self._polling.greenlets, os.getpid()
        # A greenlet goes on in a forked child, where the client must not be touched.
        while not stop.is_set() and os.getpid() == here:
            # Only after poll has returned are the slots of the reported records free again.
            if self._polling.poll(producer, SLICE) and self._waiting:
                with self._room:
                    self._room.notify_all()
            if greenlets and os.getpid() == here and not len(producer):
                sent.clear()
                if not stop.is_set() and not len(producer):  # neither came before the clear
                    sent.wait(_IDLE)

    def _open(self) -> Producer:
        with self._opening:
            self._check()
            if self._producer is None:
                tell, on_error = self._polling.tell, self._on_error
                config = {
                    **self._config,
                    "error_cb": functools.partial(tell, on_error),
                    "logger": _Quiet(self._polling),
                }
                try:
                    self._producer = Producer(config)
                except (KafkaException, ValueError, TypeError) as error:
                    raise InvalidSettings(f"the kafka client refuses its settings: {error}") from error
            return self._producer

    def _read(self, producer: Producer) -> None:
        """Start the reader, not before there is something to hear of.

        A master that only connects has no thread then: one that holds the interpreter at the moment of a
        fork in C leaves a child that never runs.
        """
        with self._opening:
            if self._thread is None and not self._closed:
                serve = (producer, self._stop, self._sent)
                self._thread = threading.Thread(target=self._serve, args=serve, daemon=True)
                self._thread.name = "sexton-deliveries"
                self._thread.start()

    def _check(self) -> None:
        if self._closed:
            raise ConnectionClosed()
        if self._fatal is not None:
            raise ProducerFailed(f"the kafka client cannot continue: {self._fatal}", hint="connect anew")
        if self._polling.greenlets != are_greenlets():
            raise UsageError(
                "threads have become greenlets after connect", hint="call monkey_patch first, then connect"
            )

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error.str()
            _log.error("the kafka client cannot continue: %s", error.str())
        else:
            _log.debug("kafka: %s", error.str())


class _Quiet:
    """Takes the Kafka client's own log lines: what matters in them comes as typed errors too."""

    def __init__(self, polling: Polling) -> None:
        self._polling = polling

    def log(self, level: int, message: str, *args: object) -> None:
        self._polling.tell(_log.debug, message, *args)


def no_such_topic(name: str) -> str:
    """Return what is said of a topic that the brokers do not know."""
    return f"no such topic: {name}"


def where_it_may_be(name: str) -> str:
    """Return what to do about it."""
    prefix = name.removesuffix(records.INTENTS)
    return f"`sexton topics create` makes it; or is SEXTON_TOPIC_PREFIX not {prefix!r} there?"


def _report(report: Report, error: KafkaError | None, message: Any) -> None:
    if error is None:
        report.delivered(Delivered(message.partition(), message.offset()))
    elif error.code() in _ABSENT:
        report.failed(no_such_topic(message.topic()), where_it_may_be(message.topic()))
    else:
        report.failed(error.str())
