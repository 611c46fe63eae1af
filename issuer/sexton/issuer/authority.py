"""Where an issuer process carries calls out: Redis proposes, the log disposes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, TypeVar

from sexton.issuer.deadline import Coalescer, Deadline
from sexton.issuer.log.journal import Journal
from sexton.issuer.log.positions import Positions
from sexton.issuer.log.reader import LogReader
from sexton.issuer.log.writer import LogWriter
from sexton.issuer.metrics import Metrics
from sexton.issuer.operations.barrier import raise_barrier
from sexton.issuer.operations.base import Operation
from sexton.issuer.redis.witness import Witness
from sexton.issuer.views import View
from sexton.issuer.wire import BarrierAnswer

__all__ = ["Authority"]

_A = TypeVar("_A")


class Authority:
    """Answers the calls of one issuer process; safe for use by several threads."""

    def __init__(
        self,
        positions: Positions,
        reader: LogReader,
        writer: LogWriter,
        witness: Witness,
        metrics: Metrics,
        revocation_delay_s: float,
    ) -> None:
        self.revocation_delay_s = revocation_delay_s
        self.log = Journal(positions, reader, writer, metrics)
        self.witness = witness
        self._metrics = metrics
        self._barriers = Coalescer(lambda deadline: raise_barrier(self, None, deadline))

    def answer(self, asked: Operation[_A], deadline: Deadline) -> _A:
        """Carry a call out; raises RequestRefused, UsageError, EnvironmentFault."""
        return asked.carry_out(self, deadline)

    def look(self, view: View[_A], name: str, history: int, deadline: Deadline) -> _A:
        """Return a view of something with its newest `history` numbers, as of the log's end."""
        self.catch_up(deadline)
        with self.log.state() as state:
            return view.of(state, name, history)

    def catch_up(self, deadline: Deadline) -> None:
        """Fold the log up to the end that it has now."""
        self.log.read_ends(deadline)

    def asked_about(self, asked: Operation[Any]) -> set[str | None]:
        """Return the nodes whose numbers a call asks about."""
        with self.log.state() as state:
            return set(asked.asks_about(state))

    def barrier(self, deadline: Deadline) -> BarrierAnswer:
        """Append a barrier whose end offsets were read after this call began; waiting calls share one."""
        with self._metrics.barrier_seconds.time():
            return self._barriers.get(deadline)

    def confirm(self, deadline: Deadline) -> None:
        """Make a barrier: only who can append to the log knows its end."""
        self.barrier(deadline)

    def now(self) -> datetime:
        """Return the time."""
        return datetime.now(UTC)

    def timed(self, histogram: str) -> AbstractContextManager[Any]:
        """Measure into the histogram of that name."""
        timer: AbstractContextManager[Any] = getattr(self._metrics, histogram).time()
        return timer

    def count_barrier(self) -> None:
        """Count a barrier that was appended."""
        self._metrics.barriers.inc()

    def count_subjects(self, asked: int, **answers: int) -> None:
        """Count the answers about subjects; the rest of what was asked is unknown."""
        for answer, count in {**answers, "unknown": asked - sum(answers.values())}.items():
            self._metrics.subjects.labels(answer).inc(count)
