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

__all__ = ["ExecutorWatch", "Wait"]

_FIRST_S = 10.0
_EACH_S = 60.0
_HINT = "free or add workers, or ask for less: docs/operating.md, 'No executors'"


@dataclass(slots=True)
class Wait:
    """For how long something has been waited for, and when that has to be said."""

    _since: float | None = None
    _due: float = 0.0
    _said: bool = False

    def note(self, waiting: bool, now: float) -> tuple[bool, float] | None:
        """Take in whether it is waited for; return whether that goes on and for how many seconds it has, or
        did, if that has to be said now. `now` in seconds.
        """
        if waiting and self._since is None:
            self._since, self._due = now, now + _FIRST_S
        if self._since is None or (waiting and now < self._due):
            return None
        waited_s, said = now - self._since, self._said
        if waiting:
            self._due, self._said = now + _EACH_S, True
            return True, waited_s
        self._since, self._said = None, False
        return (False, waited_s) if said else None


@dataclass(slots=True)
class ExecutorWatch:
    """Looks at what the cluster gives, and reports when that is nothing; in local mode there is no need."""

    spark: SparkSession
    report: Callable[..., None]
    _absence: Wait = field(default_factory=Wait)
    _preparation: Wait = field(default_factory=Wait)

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
        match self._absence.note(needed and self._running() == 0, time.monotonic()):
            case (True, waited_s):
                self.report("no_executors", waited_s=round(waited_s), **self._why())
            case (False, waited_s):
                self.report("executors", waited_s=round(waited_s), running=self._running())

    def look_for_answer(self) -> None:
        """Do as `look` while the first tasks run: report, too, that executors are there and still prepare."""
        self.look()
        running = self._running()
        match self._preparation.note(running > 0, time.monotonic()):
            case (True, waited_s):
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
