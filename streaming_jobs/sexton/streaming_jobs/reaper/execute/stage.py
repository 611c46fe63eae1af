"""Stage 3, execute: what passed is deleted, and of what did not pass nothing is sent.

An intent that waited and is not executed any more may have been begun: what is gone of it is looked for, so
that its outcome says so. Nothing leaves this stage before every request is acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from sexton.schemas.events import OutcomeKind, Verdict, VerdictResult
from sexton.storage import StoreSettings, open_deleter
from sexton.storage.wire import open_to_all
from sexton.streaming_jobs.budget import NoBudget, open_budget
from sexton.streaming_jobs.reaper import clients
from sexton.streaming_jobs.reaper.actions.registry import ROOMS as ACTIONS
from sexton.streaming_jobs.reaper.broken import Broken, alone
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.execute.dry_store import DryStore
from sexton.streaming_jobs.reaper.execute.execution import Execution
from sexton.streaming_jobs.reaper.execute.executor import Executor, Limits
from sexton.streaming_jobs.reaper.execute.gate import gate_of
from sexton.streaming_jobs.reaper.execute.result import Result
from sexton.streaming_jobs.reaper.judge import Judged, parse_allow, probes_under
from sexton.streaming_jobs.reaper.plan import TaskPlan
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt, attempt_of

__all__ = ["UNTRIED", "ExecuteStage", "Executed", "open_executor"]

UNTRIED = {VerdictResult.NEVER: OutcomeKind.STALE, VerdictResult.REFUSED: OutcomeKind.REFUSED}
"""The outcome of each key of an intent that did not pass, unless it is gone."""


@dataclass(frozen=True, slots=True)
class Executed:
    """An intent at the end of the stage; `result` is None where nothing of it was ever sent, as far as known.

    `begun_before`: an earlier attempt may have sent it, and what became of its keys then is not known.
    `broken`: a stage failed for it.
    """

    judged: Judged
    result: Result | None = None
    begun_before: bool = False
    broken: Broken | None = None


@dataclass(slots=True)
class ExecuteStage:
    """The third stage of one task; `retried` where Spark runs it once more: all may have been sent."""

    executor: Executor
    plan: TaskPlan
    now: datetime
    counts: Counts
    retried: bool = False
    _taken: list[tuple[Judged, Execution | Broken | None]] = field(default_factory=list)

    def take(self, judged: Iterable[Judged]) -> None:
        """Begin what passed; raises EnvironmentFault."""
        with self.counts.stage("execute"):
            for each in judged:
                begun = alone("execute", partial(self._begin, each)) if each.passed else None
                self._taken.append((each, begun))

    def finish(self) -> list[Executed]:
        """Return what became of all, once every request is acknowledged.

        Raises EnvironmentFault when something is wrong with everything: then nothing may be settled.
        """
        executor, counts = self.executor, self.counts
        with counts.stage("execute"):
            executor.finish()
            sender = executor.sender
            counts.requests, counts.keys_sent = sender.requests, sender.keys_sent
            counts.keys_retried, counts.throttled = sender.retried, sender.throttled
            counts.failing.update(executor.failing())
            counts.said.update(executor.said())
            counts.advances += executor.advances
            counts.set_back.update(executor.set_back)
            counts.healthy |= executor.healthy()
            # Nothing of an intent leaves before here: an outcome that is written while a request is out could
            # be contradicted by its reply, and nobody would repair a receipt.
            return [self._executed(judged, execution) for judged, execution in self._taken]

    def _begin(self, judged: Judged) -> Execution:
        decoded = judged.decoded
        intent, waited = decoded.intent, decoded.waited
        execution = ACTIONS[type(intent.action)].begin(intent, waited, decoded.before)
        execution.earlier, execution.gate = self._earlier(judged), gate_of(intent)
        if waited is not None and waited.waiting_since is not None:
            limit = timedelta(seconds=self.plan.settings.reaper_age_limit_s)
            execution.overdue = self.now - waited.waiting_since > limit
        self.executor.add(execution)
        return execution

    def _executed(self, judged: Judged, execution: Execution | Broken | None) -> Executed:
        if isinstance(execution, Broken):
            return Executed(judged, broken=execution)
        if execution is not None:
            result = execution.attempt(partial(self.executor.result, execution), None)
            return Executed(judged, result, broken=execution.broken)
        found = alone("execute", partial(self._not_executed, judged))
        return Executed(judged, broken=found) if isinstance(found, Broken) else found

    def _not_executed(self, judged: Judged) -> Executed:
        decoded, verdict = judged.decoded, judged.judgement
        if isinstance(verdict, Broken):
            return Executed(judged, broken=verdict)
        if not isinstance(verdict, Verdict):
            return Executed(judged)
        if (waited := decoded.waited) and (decoded.before or waited.gone or waited.effect_unknown):
            action = decoded.intent.action
            untried = ACTIONS[type(action)].untried
            kind = UNTRIED[verdict.result]
            return Executed(judged, untried(action, waited, decoded.before, kind, self.executor.deleter))
        # Allowed then, its keys may be gone. Where it is not allowed now, nothing is verified either.
        refused = verdict.result is VerdictResult.REFUSED
        return Executed(judged, begun_before=refused and self._earlier(judged) is not None)

    def _earlier(self, judged: Judged) -> Attempt | None:
        plan = self.plan
        return attempt_of(judged.decoded, judged.first, plan.earlier, plan.replayed, retried=self.retried)


def open_executor(plan: TaskPlan) -> Executor:
    """Return the executor of one task, with this process' connections."""
    settings = plan.settings
    limits = Limits(
        in_flight=settings.reaper_requests_in_flight,
        failure_threshold_s=settings.reaper_patience_s,
        slice_s=settings.reaper_slice_s,
        prefix_objects=settings.reaper_prefix_slice,
        allow_bypass=settings.reaper_allow_bypass,
    )
    if plan.dry_run:
        reads = DryStore(lambda: open_deleter(StoreSettings.of(settings)).calls)
        return Executor(reads, NoBudget(), limits, dry=True)
    store = open_deleter(StoreSettings.of(settings))
    # In this process, not only in the driver's: each can be paused alone, and continues where it stopped.
    store.ask_first(clients.lease(settings, plan.holder).check if plan.holder else open_to_all)
    under = probes_under(parse_allow(settings.allow))
    return Executor(store, open_budget(settings, tasks=plan.tasks), limits, plan.held, under)
