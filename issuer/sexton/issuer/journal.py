"""Appending to the log and reading back: the steps that every call which changes something goes through."""

from __future__ import annotations

from sexton.issuer.deadline import Coalescer, Deadline
from sexton.issuer.log import LogReader, LogWriter
from sexton.issuer.metrics import Metrics
from sexton.issuer.positions import Ends, Positions
from sexton.schemas import events

__all__ = ["Journal", "RequestEvent"]

RequestEvent = (
    events.Issued
    | events.IssuedFirstForm
    | events.NodeRegistered
    | events.Detached
    | events.Fenced
    | events.Imported
    | events.Dropped
)
"""The events that carry out a call, and so a request id."""


class Journal:
    """One issuer's way to the log; safe for use by several threads."""

    def __init__(self, positions: Positions, reader: LogReader, writer: LogWriter, metrics: Metrics) -> None:
        self._writer = writer
        self._metrics = metrics
        self._ends = Coalescer(positions.read)
        self.reader = reader

    def read_ends(self, deadline: Deadline) -> Ends:
        """Read the end offsets and fold the log up to the end that it had then."""
        ends = self.positions(deadline)
        self._metrics.fold_lag.set(max(0, ends.log_end - self.reader.next_offset))
        self.reader.wait_for(ends.log_end - 1, deadline)
        return ends

    def positions(self, deadline: Deadline) -> Ends:
        """Read the end offsets; calls that wait at the same moment share a reading."""
        return self._ends.get(deadline)

    def append(self, event: RequestEvent, part: int, deadline: Deadline) -> bool:
        """Append, read back, and say whether this very event is the valid one of its request and part."""
        offset = self.write(event, deadline)
        with self.reader.state() as state:
            request = state.request(event.request_id)
        valid = request is not None and request.offsets.get(part) == offset
        if valid:
            self._metrics.numbers.inc(_numbers(event))
        else:
            self._metrics.voids.labels(self.reader.void_reason(offset)).inc()
        return valid

    def write(self, event: events.GenerationEvent, deadline: Deadline) -> int:
        """Append an event, read the log up to it and return its offset."""
        offset = self._writer.append(event, deadline)
        self._metrics.events.inc()
        self.reader.wait_for(offset, deadline)
        return offset


def _numbers(event: RequestEvent) -> int:
    """Return how many numbers an event hands out; those of an import were handed out elsewhere."""
    match event:
        case events.Issued() | events.IssuedFirstForm():
            return len(event.grants)
        case events.NodeRegistered() | events.Fenced():
            return 1
    return 0
