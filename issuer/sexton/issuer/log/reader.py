"""Reading the generations log: one thread tails and folds it.

What has not been read back as valid was never issued: `LogWriter.append` returns where an event is, and only
`LogReader.wait_for` that offset says what it did.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import cast, get_args

from confluent_kafka import Message

from sexton.issuer.deadline import Deadline
from sexton.issuer.json_lines import KAFKA
from sexton.issuer.log.positions import Positions
from sexton.issuer.log.ranges import RangeReader
from sexton.issuer.log.writer import MAX_EVENT_BYTES
from sexton.issuer.snapshots.store import Snapshots
from sexton.issuer.state.fold import State, Void, apply
from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.errors import KafkaUnavailable, LogBroken, UndecodableRecord
from sexton.schemas.kafka.reader import CUT_OFF, Reader
from sexton.schemas.settings import Settings

__all__ = ["LogReader", "decode_event", "open_reader"]

_EVENTS: tuple[type[events.GenerationEvent], ...] = get_args(events.GenerationEvent)
_KEPT_REASONS = 10_000
_POLL_S = 0.05
_log = logging.getLogger("sexton.issuer.log")
_codec = Codec()  # always single-object encoding: the truth must be readable without a registry


def _reader(settings: Settings) -> Reader:
    return Reader(
        settings,
        settings.topic(records.GENERATIONS),
        "sexton-issuer",
        "reading the generations log",
        logger=KAFKA,
        **{
            "client.id": "sexton-issuer",
            "enable.partition.eof": False,  # it has no end: what comes is folded
            "fetch.wait.max.ms": 50,  # the longest wait for nothing: a record ends it at once
            "fetch.error.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            "fetch.message.max.bytes": MAX_EVENT_BYTES,
        },
    )


def decode_event(message: Message) -> events.GenerationEvent:
    """Return the event in a record of the log; raises LogBroken when it is none that this version knows."""
    try:
        return _codec.decode(message.value(), *_EVENTS)
    except UndecodableRecord as error:
        # A newer writer's event too: to skip it could hand out a number twice.
        where = f"the generations log cannot be read at offset {message.offset()}"
        raise LogBroken(f"{where}: {error}", hint="a newer Sexton wrote it, or it is damaged") from error


class LogReader:
    """Tails the log in a thread of its own and folds it into one `State`; until `start` it knows nothing."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic = settings.topic(records.GENERATIONS)
        self._state = State()
        self._changed = threading.Condition()
        self._void: dict[int, str] = {}
        self._void_order: deque[int] = deque()
        self._failure: str | None = None
        self._stopping = threading.Event()
        self._reader = _reader(settings)
        self._thread = threading.Thread(target=self._run, name="sexton-fold", daemon=True)

    def start(self, deadline: Deadline, state: State | None = None) -> None:
        """Start to read: the log from its beginning, or what comes after a snapshot's state.

        Raises KafkaUnavailable when the brokers do not say in time where the log is; it can be asked again.
        """
        # A client that was not asked looks for a partition's leader once a second only.
        self._reader.partitions(deadline.require("the leader of the generations log"))
        with self._changed:
            self._state = self._state if state is None else state
            self._changed.notify_all()
        self._reader.positions = {0: self._state.next_offset}
        self._reader.assign([0])
        self._thread.start()

    @property
    def started(self) -> bool:
        """Whether it has begun to read."""
        return self._thread.ident is not None

    def fail(self, why: str) -> None:
        """Say that there is nothing to start with: whoever asks or waits gets LogBroken."""
        with self._changed:
            self._failure = why
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop reading and free the consumer."""
        self._stopping.set()
        if self.started:
            self._thread.join()
        self._reader.close()

    @contextmanager
    def state(self) -> Iterator[State]:
        """Give the state, unchanged while the block runs; raises LogBroken once the fold stopped."""
        with self._changed:
            self._require()
            yield self._state

    @property
    def failure(self) -> str | None:
        """Why the fold stopped for good, None while it continues."""
        return self._failure

    @property
    def next_offset(self) -> int:
        """Offset of the event that is read next."""
        return self._state.next_offset

    @property
    def tenants(self) -> int:
        """How many tenants the log knows."""
        return len(self._state)

    def wait_for(self, offset: int, deadline: Deadline) -> None:
        """Return once the event at `offset` is folded in.

        Raises LogBroken when the fold stopped, KafkaUnavailable when the time is over.
        """
        with self._changed:
            while self._state.next_offset <= offset:
                self._require()
                self._changed.wait(deadline.require(f"reading the generations log up to offset {offset}"))
            self._require()

    def event_at(self, offset: int, deadline: Deadline) -> events.GenerationEvent | None:
        """Read one event again, apart from the fold; None where the log is cut off.

        Raises KafkaUnavailable when the time is over.
        """
        with closing(RangeReader(self._settings, self._topic)) as reader:
            found = [m for m in reader.read(offset, offset + 1, deadline) if m.offset() == offset]
        return decode_event(found[0]) if found else None

    def void_reason(self, offset: int) -> str:
        """Return why the event at `offset` was void, as far as that is still remembered."""
        with self._changed:
            return self._void.get(offset, "unknown")

    def _require(self) -> None:
        if self._failure is not None:
            raise LogBroken(self._failure)

    def _run(self) -> None:
        failure = "the fold ended unexpectedly"
        try:
            while not self._stopping.is_set():
                self._step()
        except LogBroken as error:
            failure = str(error)
            _log.error("the generations log cannot be folded: %s", failure)
        finally:
            with self._changed:
                self._failure = "the issuer is stopping" if self._stopping.is_set() else failure
                self._changed.notify_all()

    def _step(self) -> None:
        batch = self._reader.poll(_POLL_S)
        if not batch:
            return
        decoded = [(cast(int, m.offset()), decode_event(m)) for m in batch if not self._is_trouble(m)]
        with self._changed:
            for offset, event in decoded:
                self._apply(offset, event)
            self._changed.notify_all()

    def _apply(self, offset: int, event: events.GenerationEvent) -> None:
        verdict = apply(self._state, offset, event)
        if isinstance(verdict, Void):
            self._void[offset] = verdict.reason
            self._void_order.append(offset)
            if len(self._void_order) > _KEPT_REASONS:
                del self._void[self._void_order.popleft()]

    def _is_trouble(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return False
        # The events in between are not in this state: on without them, numbers would be issued again. A
        # restart begins at a snapshot above the cut, or refuses.
        if error.code() in CUT_OFF:
            raise LogBroken(f"the generations log was truncated or re-created: {error.str()}")
        _log.warning("reading the generations log: %s", error.str())
        return True


def open_reader(settings: Settings, positions: Positions, deadline: Deadline) -> LogReader:
    """Return a reader that runs from the newest good snapshot, or from the log's start.

    Raises LogBroken when there is neither, WrongTopic or KafkaUnavailable when Kafka cannot tell.
    """
    snapshots = Snapshots(settings, positions)
    state = snapshots.start(snapshots.facts(deadline), deadline)
    reader = LogReader(settings)
    try:
        reader.start(deadline, state)
    except KafkaUnavailable:
        reader.stop()
        raise
    return reader
