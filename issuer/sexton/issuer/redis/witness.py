"""The second witness: Redis' projection must agree with the fold, and is set to the log where it does not.

A verdict never comes from here. What Redis says can only make a call wait until the fold has caught up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from sexton.issuer.deadline import Deadline
from sexton.issuer.log.reader import LogReader
from sexton.issuer.metrics import Metrics
from sexton.issuer.redis.connection import ProjectionMissing
from sexton.issuer.redis.projection import (
    Difference,
    Entry,
    Projection,
    ProposalStale,
    entries_of,
    entry,
)
from sexton.schemas.errors import KafkaUnavailable
from sexton.schemas.events import Grant

__all__ = ["Witness"]

_T = TypeVar("_T")
_log = logging.getLogger("sexton.issuer.witness")


class Witness:
    """Compares, proposes and repairs; `catch_up` folds the log up to the end that it has now."""

    def __init__(
        self,
        projection: Projection,
        reader: LogReader,
        catch_up: Callable[[Deadline], None],
        metrics: Metrics,
    ) -> None:
        self._projection = projection
        self._reader = reader
        self._catch_up = catch_up
        self._metrics = metrics
        self._building = threading.Lock()

    def agree(self, tenants: Iterable[str], deadline: Deadline) -> None:
        """Return when Redis and the fold agree on these tenants, or Redis was set to the log.

        Raises RedisUnavailable, KafkaUnavailable, LogBroken.
        """
        names = list(tenants)
        self._there(lambda: self._mend(self._projection.compare(self._entries(names)), deadline), deadline)

    def propose(self, tenants: Iterable[str], deadline: Deadline) -> list[Grant]:
        """Return a proposal for each tenant, made atomically in Redis for up to 1,000 of them at a time."""
        names = list(tenants)
        while True:
            try:
                return self._there(lambda: self._projection.propose(self._entries(names)), deadline)
            except ProposalStale:
                self.agree(names, deadline)
            deadline.require("proposing in Redis")

    def project(self, tenants: Iterable[str], deadline: Deadline) -> None:
        """Write what the fold says of tenants whose event was valid."""
        names = list(tenants)
        self._there(lambda: self._projection.project(self._entries(names)), deadline)

    def withdraw(self, tenants: Iterable[str], deadline: Deadline) -> None:
        """Set Redis to what the log says of tenants whose event was void."""
        names = list(tenants)
        self._there(lambda: self._projection.withdraw(names), deadline)
        self.project(names, deadline)

    def _entries(self, names: Iterable[str]) -> dict[str, Entry]:
        with self._reader.state() as state:
            return entries_of(state, names)

    def _there(self, work: Callable[[], _T], deadline: Deadline) -> _T:
        """Do what needs a projection; one that is gone or damaged is built from the log first."""
        while True:
            try:
                return work()
            except ProjectionMissing:
                self._rebuild(deadline)

    def _rebuild(self, deadline: Deadline) -> None:
        """Build the whole projection from the fold; one caller does it for all."""
        if not self._building.acquire(timeout=deadline.require("rebuilding Redis")):
            raise KafkaUnavailable("no time left: rebuilding Redis")
        try:
            if self._projection.is_whole():
                return
            with self._reader.state() as state:
                entries = entries_of(state)
            self._projection.rebuild(entries)
            self._metrics.rebuilds.inc()
        finally:
            self._building.release()

    def _mend(self, differences: list[Difference], deadline: Deadline) -> None:
        if not differences:
            return
        if not all(d.only_late for d in differences):
            # Redis may know more than this fold: the end of the log, read now, settles it.
            self._catch_up(deadline)
        with self._reader.state() as state:
            now = [Difference(d.tenant, entry(state.tenant(d.tenant)), d.raw) for d in differences]
        late = {d.tenant: d.expected for d in now if d.only_late}
        wrong = [d for d in now if d.raw != d.expected and not d.only_late]
        # Never the log to Redis: a number that only Redis has was answered to nobody.
        self._projection.project(late)
        for difference in wrong:
            self._metrics.disagreements.inc()
            _log.error(
                "redis disagrees with the log and is set to it: tenant=%r redis=%r log=%r",
                difference.tenant,
                difference.raw,
                difference.expected,
            )
        self._projection.repair(wrong)
