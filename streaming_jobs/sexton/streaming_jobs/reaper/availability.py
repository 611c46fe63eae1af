"""Whether the cluster gives the reaper any executor, and whether these answer.

Spark waits for both for ever, and without a word: what it says of it is a warning, which the reaper's log
leaves out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from sexton.streaming_jobs.cluster import has_executors

__all__ = ["Absence", "ExecutorWatch", "Preparation"]

_FIRST_S = 10.0
_EACH_S = 60.0
_HINT = "free or add workers, or ask for less: docs/operating.md, 'No executors'"


@dataclass(slots=True)
class Absence:
    """For how long tasks have waited for an executor, and when that has to be said."""

    _since: float | None = None
    _due: float = 0.0
    _said: bool = False

    def note(self, waiting: bool, now: float) -> tuple[str, float] | None:
        """Take in whether tasks wait for an executor; return the event to be said now, if any, and for
        how many seconds they have waited, or did. `now` in seconds.
        """
        if waiting and self._since is None:
            self._since, self._due = now, now + _FIRST_S
        if self._since is None or (waiting and now < self._due):
            return None
        waited_s, said = now - self._since, self._said
        if waiting:
            self._due, self._said = now + _EACH_S, True
            return "no_executors", waited_s
        self._since, self._said = None, False
        return ("executors", waited_s) if said else None


@dataclass(slots=True)
class Preparation:
    """For how long executors that are there have not answered, and when that has to be said."""

    _since: float | None = None
    _due: float = 0.0

    def note(self, preparing: bool, now: float) -> float | None:
        """Take in whether some are there; return for how many seconds, when that has to be said. `now` in
        seconds.
        """
        if not preparing:
            self._since = None
            return None
        if self._since is None:
            self._since, self._due = now, now + _FIRST_S
        if now < self._due:
            return None
        self._due = now + _EACH_S
        return now - self._since


@dataclass(slots=True)
class ExecutorWatch:
    """Looks at what the cluster gives, and reports when that is nothing; in local mode there is no need."""

    spark: SparkSession
    report: Callable[..., None]
    _absence: Absence = field(default_factory=Absence)
    _preparation: Preparation = field(default_factory=Preparation)

    @property
    def is_needed(self) -> bool:
        """Return whether tasks run in executors, which a cluster has to give."""
        return has_executors(self.spark.sparkContext.master or "local")

    def look(self, needed: bool = True) -> None:
        """Report once tasks have waited for long, then again at times, and once they need not any more.

        `needed` says whether there are tasks: where executors are given on demand an idle reaper has none.
        Raises Py4J's errors when the JVM is gone.
        """
        if not self.is_needed:
            return
        said = self._absence.note(needed and self._running() == 0, time.monotonic())
        if said is None:
            return
        event, waited_s = said
        values = self._why() if event == "no_executors" else {"running": self._running()}
        self.report(event, waited_s=round(waited_s), **values)

    def look_for_answer(self) -> None:
        """Do as `look` while the first tasks run: report, too, that executors are there and still prepare."""
        self.look()
        running = self._running()
        if (waited_s := self._preparation.note(running > 0, time.monotonic())) is not None:
            self.report("executors_preparing", waited_s=round(waited_s), running=running)

    def _running(self) -> int:
        # PySpark's own method asks for eight things of each executor, one call after the other.
        tracker: Any = self.spark.sparkContext.statusTracker()._jtracker
        return len(tracker.getExecutorInfos()) - 1  # the driver is one of them

    def _why(self) -> dict[str, str]:
        memory = self.spark.sparkContext.getConf().get("spark.executor.memory", "1g")
        fault = (
            "the cluster gives no executor: all its cores are taken, no worker has the memory"
            f" (spark.executor.memory is {memory}), or none can start one"
        )
        return {"fault": fault, "hint": _HINT}
