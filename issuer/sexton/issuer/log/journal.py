"""Appending to the log and reading back: the steps that every call which changes something goes through."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from sexton.issuer.deadline import Coalescer, Deadline
from sexton.issuer.log.positions import Ends, Positions
from sexton.issuer.log.reader import LogReader
from sexton.issuer.log.writer import LogWriter
from sexton.issuer.metrics import Metrics
from sexton.issuer.operations import FOLDS
from sexton.issuer.state.state import State
from sexton.schemas.events import GenerationEvent, PartitionOffsets

__all__ = ["Journal"]


class Journal:
    """One issuer's way to the log; safe for use by several threads."""

    def __init__(self, positions: Positions, reader: LogReader, writer: LogWriter, metrics: Metrics) -> None:
        self._writer = writer
        self._metrics = metrics
        self._ends = Coalescer(positions.read)
        self._reader = reader

    def state(self) -> AbstractContextManager[State]:
        """Hold the fold still and return it."""
        return self._reader.state()

    def read_ends(self, deadline: Deadline) -> PartitionOffsets:
        """Read the end offsets and fold the log up to the end that it had then."""
        ends = self.positions(deadline)
        # What is decided by an older fold supersedes a number that is not the newest: void, and once more.
        self._metrics.fold_lag.set(max(0, ends.log_end - self._reader.next_offset))
        self.wait_for(ends.log_end - 1, deadline)
        return ends.intents

    def ends(self, deadline: Deadline) -> PartitionOffsets:
        """Read the end offsets of the intents topic."""
        return self.positions(deadline).intents

    def positions(self, deadline: Deadline) -> Ends:
        """Read the end offsets; calls that wait at the same moment share a reading."""
        return self._ends.get(deadline)

    def wait_for(self, offset: int, deadline: Deadline) -> None:
        """Return once the log is folded up to this offset."""
        self._reader.wait_for(offset, deadline)

    def append(self, event: Any, part: int, deadline: Deadline) -> bool:
        """Append, read back, and say whether this very event is the valid one of its request and part."""
        # From here on only the fold says what is answered. Where a crash or the time ends this after the
        # append, the event may count: the caller's retry finds it by its request id and is answered from it.
        offset = self.write(event, deadline)
        with self.state() as state:
            request = state.request(event.request_id)
        valid = request is not None and request.offsets.get(part) == offset
        if valid:
            self._metrics.numbers.inc(FOLDS[type(event)].numbers(event))
        else:
            self._metrics.voids.labels(self._reader.void_reason(offset)).inc()
        return valid

    def write(self, event: GenerationEvent, deadline: Deadline) -> int:
        """Append an event, read the log up to it and return its offset."""
        offset = self._writer.append(event, deadline)
        self._metrics.events.inc()
        self.wait_for(offset, deadline)
        return offset

    def event_at(self, offset: int, deadline: Deadline) -> GenerationEvent | None:
        """Read one event again; None where the log is cut off."""
        return self._reader.event_at(offset, deadline)
