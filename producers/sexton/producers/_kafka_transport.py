"""The one place of the SDK that meets the Kafka client."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from sexton.producers._errors import ConnectionClosed, ProducerFailed
from sexton.producers._fork import can_look_up_names, settle_before_fork
from sexton.producers._limits import Deadline, Limits
from sexton.producers._polling import SLICE, Polling, are_greenlets, polling
from sexton.producers._transport import Delivered, Record, Report
from sexton.schemas import records
from sexton.schemas.errors import InvalidSettings, NoSuchTopic, UsageError
from sexton.schemas.kafka import refusals
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.settings import Settings

__all__ = ["KafkaTransport", "no_such_topic", "where_it_may_be"]

_log = logging.getLogger(__name__)
_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_BROKERS = ("bootstrap.servers", "metadata.broker.list")
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_ENDED, _ANEW = "the kafka client cannot continue", "connect anew"
_NO_NAMES = (
    "this process was forked at the moment when another thread looked up a name, and can look up none",
    "fork before the first intent is emitted, or start processes by spawn",
)
_IDLE = 1.0  # longest wait of the reader when nothing is on its way and threads are greenlets
# Of a client that was opened just now, what a fork waits at most for its first report. Not 1: each full
# second the client tries all brokers anew that are away, and looks up their names.
_SETTLING = 0.8
_PURGE = 0.3  # of the time to close: what is kept for purging and reading the last reports


def _config(settings: Settings, limits: Limits) -> dict[str, Any]:
    """Return the properties of the producer."""
    own = settings.kafka_extra.get("queue.buffering.max.messages", "")
    queue = (
        int(own) if own.isdecimal() else limits.queue_messages
    )  # the Kafka client refuses what is no number
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

    def __init__(self, settings: Settings, limits: Limits) -> None:
        self._settings = settings
        self._config = _config(settings, limits)
        self._closed = False
        self._producer: Producer | None = None
        self._of_a_child = False
        self._afresh()
        # Settings are tried on a client that knows no broker, and is gone when this returns. One that stayed
        # would run threads, and what these have locked in C at a fork stays locked in the child.
        _client({name: value for name, value in self._config.items() if name not in _BROKERS}, self._polling)

    def send(self, record: Record, report: Report, deadline: Deadline) -> None:
        """Queue a record, waiting for room until the deadline."""
        if self._producer is None and self._polling.greenlets != are_greenlets():
            self._afresh()  # patched after the fork that took the client away
        producer = self._producer or self._open()
        if self._thread is None:
            self._read(producer)
        try:
            self._produce(producer, record, report)
        except BufferError:
            self._wait_for_room(producer, record, report, deadline)
        if self._polling.greenlets and not self._sent.is_set():
            self._sent.set()

    def flush(self, deadline: Deadline) -> None:
        """Wait until every record was reported on, or the deadline."""
        if (producer := self._producer) is not None:
            self._drain(producer, deadline)

    def close(self, deadline: Deadline) -> None:
        """Flush, then purge what is left, so that its reports come now and not never."""
        with self._opening:
            self._closed = True
            producer = self._producer
        if producer is None:
            return
        self._drain(producer, Deadline(max(0.0, deadline.left() - _PURGE)))
        if len(producer):
            producer.purge(blocking=False)
            self._drain(producer, Deadline(_PURGE))
        with self._opening:
            if self._producer is None:
                return  # closed once more meanwhile, by a signal handler say
            self._producer = None
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
        self._of_a_child = True
        self._afresh()

    def before_fork(self) -> None:
        """Wait for the first report of a client that was opened just now, so that it has its connections.

        While it makes them it looks up names, and a child that is forked then can look up none. Connections
        of later are rare, and brief; where one is caught the child is told by `_open`.
        """
        left = self._opened + _SETTLING - time.monotonic()
        if self._thread is not None and left > 0 and not self._heard.is_set() and not self._looks():
            with self._waits(hurry=True):
                self._heard.wait(left)

    def topic_id(self, topic: str, deadline: Deadline) -> str:
        """Ask the brokers, with a client that is gone when this returns."""
        found = Cluster(self._settings).identities([topic], deadline.left()).get(topic)
        if found is None:
            raise NoSuchTopic(no_such_topic(topic), hint=where_it_may_be(topic))
        return found.topic_id

    def _afresh(self) -> None:
        self._fatal: str | None = None
        self._fatal_hint = _ANEW
        self._opening = threading.RLock()  # a signal handler may close while its thread opens
        self._opened = 0.0
        self._heard = threading.Event()  # a first report
        self._stop = threading.Event()
        self._sent = threading.Event()
        self._room = threading.Condition()
        self._waiting = self._hurry = 0
        self._thread: threading.Thread | None = None
        self._polling: Polling = polling(self._on_error)

    def _produce(self, producer: Producer, record: Record, report: Report) -> None:
        self._check()
        on_delivery = functools.partial(self._polling.tell, self._reported, report)
        try:
            producer.produce(
                record.topic, record.value, record.key, headers=record.headers, on_delivery=on_delivery
            )
        except KafkaException as error:
            kafka = error.args[0]
            if kafka.fatal() or kafka.code() == KafkaError._FATAL:
                raise BufferError from error  # the next look says why it cannot continue
            _refused(report, kafka, record.topic)  # what the brokers have said of the records before

    def _reported(self, report: Report, error: KafkaError | None, message: Any) -> None:
        if not self._heard.is_set():
            self._heard.set()
        if error is None:
            report.delivered(Delivered(message.partition(), message.offset()))
        elif self._fatal is not None and error.code() in _PURGED:
            report.failed(f"{_ENDED}: {self._fatal}", self._fatal_hint)
        else:
            _refused(report, error, message.topic())

    def _wait_for_room(self, producer: Producer, record: Record, report: Report, deadline: Deadline) -> None:
        looks = self._looks()
        with self._waits(hurry=False):
            while True:
                with self._room:
                    try:
                        self._produce(producer, record, report)
                        return
                    except BufferError:
                        if deadline.passed or self._polling.is_within():
                            raise
                    if not looks:
                        self._room.wait(min(SLICE, deadline.left()))
                if looks:  # what is said meanwhile is told by whoever began to tell
                    self._polling.poll(producer, min(SLICE, deadline.left()))

    def _drain(self, producer: Producer, deadline: Deadline) -> None:
        """Wait until every record was reported on and that was told, or the deadline."""
        if self._looks():
            while (len(producer) or not self._polling.all_told()) and not deadline.passed:
                self._polling.flush(producer, min(SLICE, deadline.left()))
                self._polling.hand_out()
            return
        with self._waits(hurry=True), self._room:
            while (len(producer) or not self._polling.all_told()) and not deadline.passed:
                self._room.wait(min(SLICE, deadline.left()))

    def _looks(self) -> bool:
        """Return whether the caller itself looks after the client while it waits, and not the reader.

        A greenlet may. A thread is the reader, in a callback, or the last one of the process. No other one:
        a signal handler would run within the client's own call.
        """
        reader = self._thread
        return (
            self._polling.greenlets
            or reader is None
            or reader is threading.current_thread()
            or sys.is_finalizing()
        )

    @contextmanager
    def _waits(self, *, hurry: bool) -> Iterator[None]:
        """Have the reader say when something has changed, and with `hurry` let nothing linger."""
        with self._room:
            self._waiting += 1
            self._hurry += hurry
        try:
            yield
        finally:
            with self._room:
                self._waiting -= 1
                self._hurry -= hurry

    def _serve(self, producer: Producer, stop: threading.Event, sent: threading.Event) -> None:
        polling, here = self._polling, os.getpid()
        # A greenlet goes on in a forked child, where the client must not be touched.
        while not stop.is_set() and os.getpid() == here:
            look = polling.flush if self._hurry and not polling.greenlets else polling.poll
            look(producer, SLICE)
            if os.getpid() == here:
                self._tell()
            # Only after the look has returned are the slots of the reported records free again.
            if self._waiting:
                with self._room:
                    self._room.notify_all()
            if polling.greenlets and os.getpid() == here and not len(producer):
                sent.clear()
                if not stop.is_set() and not len(producer):  # neither came before the clear
                    sent.wait(_IDLE)

    def _tell(self) -> None:
        while True:
            try:
                return self._polling.hand_out()
            except (Exception, SystemExit):  # noqa: BLE001 - whatever a service's callback raises
                # The reader lives on: without it nobody hears of any intent.
                _log.exception("a callback of the service has raised")

    def _open(self) -> Producer:
        with self._opening:
            self._check()
            if self._producer is None:
                if self._of_a_child and not can_look_up_names():
                    self._fatal, self._fatal_hint = _NO_NAMES
                    self._check()
                on_error = functools.partial(self._polling.tell, self._on_error)
                self._producer = _client({**self._config, "error_cb": on_error}, self._polling)
                self._opened = time.monotonic()
                settle_before_fork(self)
            return self._producer

    def _read(self, producer: Producer) -> None:
        """Start the reader, not before there is something to hear of.

        A master that only connects has no thread then, neither of ours nor of the client's: one that holds
        the interpreter at the moment of a fork in C leaves a child that never runs.
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
            raise ProducerFailed(f"{_ENDED}: {self._fatal}", hint=self._fatal_hint)
        if self._polling.greenlets != are_greenlets():
            raise UsageError(
                "threads have become greenlets after connect", hint="call monkey_patch first, then connect"
            )

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            right = refusals.hint(error)
            self._fatal_hint = f"{right}; then {_ANEW}" if right else _ANEW
            self._fatal = error.str()
            _log.error("%s: %s", _ENDED, error.str())
            if (producer := self._producer) is not None:
                producer.purge(blocking=False)  # what it still holds would be reported on by nobody
        else:
            _log.debug("kafka: %s", error.str())


def _client(config: Mapping[str, Any], polling: Polling) -> Producer:
    try:
        return Producer({**config, "logger": _Quiet(polling)})
    except (KafkaException, ValueError, TypeError) as error:
        raise InvalidSettings(f"the kafka client refuses its settings: {error}") from error


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


def _refused(report: Report, error: KafkaError, topic: str) -> None:
    if error.code() in _ABSENT:
        report.failed(no_such_topic(topic), where_it_may_be(topic))
    else:
        report.failed(error.str(), refusals.hint(error))
