"""An issuer in memory, for unit tests of services: the real rules, without Kafka, Redis or HTTP.

issuer = FakeIssuer(partitions=2)
issuer.attach("node-7", "tenant-42").generation == 1
issuer.written(0, 5)                     # five intents now stand in partition 0
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any, Self, TypeVar

import msgspec

from sexton.issuer import wire
from sexton.issuer.api import Issuer
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.barrier import raise_barrier
from sexton.issuer.operations.base import Changing, Operation
from sexton.issuer.state.fold import FORMAT, State, Valid, apply
from sexton.issuer.views import View
from sexton.schemas import events
from sexton.schemas.errors import IssuerUnavailable, KafkaUnavailable, RequestRefused, UsageError

__all__ = ["FakeIssuer"]

_A = TypeVar("_A")
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class FakeIssuer(Issuer):
    """Behaves as `IssuerClient` does; `log` holds every event, `available = False` makes every call fail."""

    def __init__(
        self,
        partitions: int = 1,
        caller: str = "fake",
        topic_id: str = "fake-intents",
        *,
        revocation_delay_s: float = 3600.0,
        now: Callable[[], datetime] = lambda: _EPOCH,
    ) -> None:
        self.log: list[events.GenerationEvent] = []
        self.available = True
        self._caller = caller
        self._alone = threading.Lock()
        self.topic_id = topic_id
        self._desk = _Memory(self.log, [0] * partitions, topic_id, revocation_delay_s, now)

    def written(self, partition: int, records: int = 1) -> int:
        """Say that records were written to an intents partition; return its new end offset."""
        with self._alone:
            self._desk.offsets[partition] += records
            return self._desk.offsets[partition]

    def close(self) -> None:
        """Nothing is held."""

    def _call(self, asked: Operation[_A], end: float) -> _A:
        self._require()
        if isinstance(asked, Changing):
            asked.request_id, asked.caller = asked.request_id or None, self._caller
        try:
            # Over the wire and back, so that what the service would refuse is refused.
            read = wire.decode(msgspec.json.Decoder(type(asked)), msgspec.json.encode(asked))
            with self._alone:
                return read.carry_out(self._desk, Deadline(end))
        except UsageError as error:
            raise RequestRefused("invalid-request", str(error), status=400, hint=error.hint) from error
        except KafkaUnavailable as error:
            raise IssuerUnavailable(f"the issuer cannot answer: {error}") from error

    def _look(self, view: View[_A], name: str, end: float) -> _A | None:
        self._require()
        with self._alone:
            return view.build(self._desk.fold, name, sys.maxsize)

    def _require(self) -> None:
        if not self.available:
            raise IssuerUnavailable("the issuer does not answer: fake")


class _Memory:
    """A desk whose log is a list and whose second witness is the fold itself."""

    def __init__(
        self,
        log: list[events.GenerationEvent],
        offsets: list[int],
        topic_id: str,
        revocation_delay_s: float,
        now: Callable[[], datetime],
    ) -> None:
        self.offsets = offsets
        self.revocation_delay_s = revocation_delay_s
        self.now = now
        self.fold = State()
        self._events = log
        self._topic_id = topic_id
        genesis = events.Genesis(FORMAT, "fake", "fake-generations", topic_id, _EPOCH)
        self.write(genesis, Deadline(0.0))

    @property
    def log(self) -> Self:
        """This."""
        return self

    @property
    def witness(self) -> Self:
        """This."""
        return self

    def state(self) -> AbstractContextManager[State]:
        """Return the fold."""
        return nullcontext(self.fold)

    def ends(self, deadline: Deadline) -> events.PartitionOffsets:
        """Return how much was written."""
        return events.PartitionOffsets(self._topic_id, tuple(self.offsets))

    read_ends = ends

    def wait_for(self, offset: int, deadline: Deadline) -> None:
        """Refuse an offset that is not there: nobody else writes."""
        if offset > self.fold.log_offset:
            raise IssuerUnavailable(f"the log has not got to offset {offset}")

    def append(self, event: Any, part: int, deadline: Deadline) -> bool:
        """Append an event: valid, as nobody else writes."""
        self.write(event, deadline)
        return True

    def write(self, event: events.GenerationEvent, deadline: Deadline) -> int:
        """Append an event and return its offset."""
        offset = len(self._events)
        verdict = apply(self.fold, offset, event)
        self._events.append(event)
        assert isinstance(verdict, Valid), verdict
        return offset

    def event_at(self, offset: int, deadline: Deadline) -> events.GenerationEvent:
        """Return an event."""
        return self._events[offset]

    def propose(self, tenants: Iterable[str], deadline: Deadline) -> list[events.Grant]:
        """Return the next number of each tenant."""
        found = {name: self.fold.tenant(name) for name in tenants}
        newest = {name: tenant.proposed_after if tenant else None for name, tenant in found.items()}
        return [
            events.Grant(name, at[0] + 1 if at else 1, at[0] if at else None) for name, at in newest.items()
        ]

    def agree(self, tenants: Iterable[str], deadline: Deadline) -> None:
        """Do nothing: there is one witness."""

    project = withdraw = agree

    def barrier(self, deadline: Deadline) -> wire.BarrierAnswer:
        """Make a barrier."""
        return raise_barrier(self, None, deadline)

    def confirm(self, deadline: Deadline) -> None:
        """Do nothing: the list is the log."""

    def timed(self, histogram: str) -> AbstractContextManager[None]:
        """Measure nothing."""
        return nullcontext()

    def count_barrier(self) -> None:
        """Count nothing."""

    def count_subjects(self, asked: int, **answers: int) -> None:
        """Count nothing."""
