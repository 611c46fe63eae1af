"""Appending to the generations log."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from sexton.issuer.deadline import Deadline
from sexton.issuer.json_lines import KAFKA
from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.errors import KafkaUnavailable, RequestRefused, SextonError
from sexton.schemas.kafka import refusals
from sexton.schemas.settings import Settings

__all__ = ["MAX_EVENT_BYTES", "LogWriter"]

MAX_EVENT_BYTES = 8 * 1024 * 1024  # 10,000 grants with the longest names fit
_POLL_S = 0.05
_AGAIN_S = 0.5
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_DEAD_PRODUCER = (KafkaError._FATAL, KafkaError._STATE)
_log = logging.getLogger("sexton.issuer.log")
_codec = Codec()  # always single-object encoding: the truth must be readable without a registry


class LogWriter:
    """Appends events, acknowledged by all in-sync replicas, with a poll thread of its own.

    An idempotent producer is given an id first, which takes half a second; `idempotent=False` is for an event
    of which a second copy is void.
    """

    def __init__(self, settings: Settings, *, idempotent: bool = True) -> None:
        self._settings = settings
        self._idempotent = idempotent
        self._topic = settings.topic(records.GENERATIONS)
        self._lock = threading.Lock()
        self._ended: KafkaError | None = None  # what the last producer that could not continue has met
        self._producer = self._make()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="sexton-append", daemon=True)
        self._thread.start()

    def append(self, event: events.GenerationEvent, deadline: Deadline) -> int:
        """Append an event and return its offset.

        Raises KafkaUnavailable when it is not acknowledged in time: then it may be in the log, or get there
        later, and only the log can tell; RequestRefused `too-large` for one that no broker takes.
        """
        left = deadline.require("appending to the generations log")
        written: Future[int] = Future()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                written.set_result(cast(int, message.offset()))
            else:
                written.set_exception(self._not_appended(error))
                if error.fatal() or error.code() in _DEAD_PRODUCER:
                    self._rebuild()

        value, headers = _codec.encode(event), cast(Any, records.headers(event))
        try:
            self._producer.produce(self._topic, value, partition=0, headers=headers, on_delivery=delivered)
        except BufferError as error:
            raise KafkaUnavailable(f"appending to the generations log: {error}") from error
        except KafkaException as error:
            if error.args[0].code() in _DEAD_PRODUCER:
                self._rebuild()
            raise self._not_appended(error.args[0]) from error
        try:
            return written.result(timeout=left)
        except FutureTimeout as error:
            raise KafkaUnavailable("no time left: appending to the generations log") from error

    def close(self) -> None:
        """Stop; what is not acknowledged yet is waited for, at most for a second."""
        with suppress(KafkaException):  # a fatal error: nothing is waited for any more
            self._producer.flush(1)
        self._stopping.set()
        self._thread.join()
        self._producer.purge()
        self._producer.close()

    def _make(self) -> Producer:
        return Producer(
            self._settings.kafka(
                **{
                    "client.id": "sexton-issuer",
                    "enable.idempotence": self._idempotent,
                    # What one broker alone has could go with it, and its numbers be issued again.
                    "acks": "all",
                    "linger.ms": 0,
                    "message.max.bytes": MAX_EVENT_BYTES,
                    # An event older than this is not sent any more: its caller has long given up.
                    "message.timeout.ms": max(1000, int(self._settings.issuer_timeout_s * 1000)),
                    "reconnect.backoff.max.ms": 1000,
                }
            ),
            logger=KAFKA,
        )

    def _rebuild(self) -> None:
        """Replace a producer with a fatal error; its caller's event has failed or is in the log already."""
        with self._lock:
            _log.warning("the log's producer failed for good and is made anew")
            self._producer = self._make()

    def _poll(self) -> None:
        while not self._stopping.is_set():
            producer = self._producer
            try:
                producer.poll(_POLL_S)
            except KafkaException as error:  # a fatal one is raised here, once, and told by no callback
                self._end(producer, error.args[0])

    def _end(self, producer: Producer, error: KafkaError) -> None:
        """Let go of a producer that cannot continue, for want of a right say, and poll on for the next."""
        self._ended = error
        producer.purge()  # who waits for an event hears at once that it may or may not be in the log
        with suppress(KafkaException):
            producer.poll(_POLL_S)
        if producer is self._producer:
            self._rebuild()
        self._stopping.wait(_AGAIN_S)  # the next one may meet the same

    def _not_appended(self, error: KafkaError) -> SextonError:
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:  # and never will be
            message = f"the event would be larger than the log takes, {MAX_EVENT_BYTES} bytes: split the call"
            return RequestRefused("too-large", message, status=413)
        if error.code() in _PURGED and self._ended is not None:
            error = self._ended
        return KafkaUnavailable(f"appending to the generations log: {error.str()}", hint=refusals.hint(error))
