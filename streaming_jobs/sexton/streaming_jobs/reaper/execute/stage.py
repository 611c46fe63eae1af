"""Stage 3, execute: the keys of all intents that passed, merged by bucket into requests of 1,000.

Keys of all tenants of a bucket share requests; an item that several intents name goes over the wire once.
Each bucket has a bucket of its own: one that is throttled, missing or slow never holds up another. A key that
met trouble is sent again, verified or given up by itself, and its neighbours continue. Phases are kept: the
next phase of an intent starts when everything before it is acknowledged gone (a commit object before its
data). A fault of the whole environment ends the task: nothing of the micro-batch is settled then, and it is
processed again from its start.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sexton.schemas import events
from sexton.streaming_jobs.reaper.actions.delete_prefix.passes import work_prefix
from sexton.streaming_jobs.reaper.actions.delete_prefix.progress import PrefixStep
from sexton.streaming_jobs.reaper.execute.bucket import Bucket
from sexton.streaming_jobs.reaper.execute.execution import Execution
from sexton.streaming_jobs.reaper.execute.expiry import expire
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome
from sexton.streaming_jobs.reaper.execute.paced import Deleter, OnePacer, Pacer
from sexton.streaming_jobs.reaper.execute.replies import Limits, Replies
from sexton.streaming_jobs.reaper.execute.results import Result, result_of
from sexton.streaming_jobs.reaper.execute.sender import Sender

__all__ = ["Deleter", "Executor", "Limits", "Pacer"]


@dataclass(slots=True)
class Executor:
    """Executes the intents of one task; `add` each, `finish` once, then ask for each `result`.

    Nothing of it is sent before `started`, seconds since 1970.
    """

    deleter: Deleter
    pacer: Pacer
    limits: Limits = field(default_factory=Limits)
    held: Mapping[str, str] = field(default_factory=dict)
    probes_under: Mapping[str, str] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random
    dry: bool = False
    started: float = field(default_factory=time.time)
    sender: Sender = field(init=False)
    _overdue: list[Execution] = field(default_factory=list)

    def __post_init__(self) -> None:
        replies = Replies(self.limits, self.clock, self.jitter)
        pacer = OnePacer(self.pacer)
        self.sender = Sender(self.deleter, pacer, replies, self.probes_under, self.clock, self.dry)

    def add(self, execution: Execution) -> None:
        """Queue the first phase of an intent; sends whatever fills a request."""
        self.sender.started = self.sender.started or self.clock()
        bucket = execution.bucket = self._bucket_of(execution.action)
        if execution.overdue:
            self._overdue.append(execution)
        if bucket.closed is not None:
            execution.held = bucket.closed
        elif bucket.abilities is None:
            bucket.unprobed.append(execution)
        else:
            self.sender.begin(execution, bucket)
        # Also for a bucket that waits for its probe: the answer may be among what has come back.
        self.sender.pump(bucket)

    def finish(self) -> None:
        """Send the rest, then phase after phase; returns when every key has an outcome.

        Raises EnvironmentFault when something is wrong with everything.
        """
        try:
            self.sender.settle()
            while self.sender.phased:
                # Not before here: a later phase that overtakes an earlier one would leave a commit object
                # that names data which is gone.
                self.sender.phased = [e for e in self.sender.phased if self._next_phase(e)]
                self.sender.settle()
            self._work_prefixes()
            expire(self._overdue, self.deleter)
        finally:
            self.sender.inbox.close()

    def result(self, execution: Execution) -> Result:
        """Return what became of an intent, after `finish`."""
        return result_of(execution, self.sender.request_ids)

    def failing(self) -> dict[str, str]:
        """Return the buckets that were closed, with the reason."""
        buckets = self.sender.buckets.values()
        return {bucket.name: bucket.closed.reason for bucket in buckets if bucket.closed is not None}

    def healthy(self) -> set[str]:
        """Return the buckets that did some work and are open."""
        return {
            bucket.name for bucket in self.sender.buckets.values() if bucket.closed is None and bucket.done
        }

    def _bucket_of(self, action: events.DeleteObjects | events.DeletePrefix) -> Bucket:
        name = (action.bucket, action.bypass_governance and self.limits.allow_bypass)
        bucket = self.sender.buckets.get(name)
        if bucket is None:
            bucket = self.sender.buckets[name] = Bucket(*name, self.started)
            if (why := self.held.get(action.bucket)) is not None:
                bucket.closed = ItemOutcome(None, why, "the bucket is held: its intents wait")
            else:
                self.sender.probe(bucket)
        return bucket

    def _next_phase(self, execution: Execution) -> bool:
        """Queue an intent's next phase if everything before it is gone; say whether more are to come."""
        assert isinstance(execution.action, events.DeleteObjects)
        assert execution.bucket is not None
        execution.blocked = execution.blocking()
        if execution.blocked is not None:
            return False
        if execution.bucket.closed is not None:
            execution.held = execution.bucket.closed
            return False
        number = len(execution.phases)
        self.sender.queue(execution, execution.bucket, execution.left[number])
        return len(execution.left) > number + 1

    def _work_prefixes(self) -> None:
        for execution in self.sender.prefixes:
            bucket = execution.bucket
            assert bucket is not None
            assert isinstance(execution.action, events.DeletePrefix)
            if bucket.closed is not None:
                execution.held = bucket.closed
                continue
            action, progress = execution.action, execution.progress
            self.sender.job(
                bucket,
                lambda action=action, progress=progress: work_prefix(  # type: ignore[misc]
                    self.sender.paced(action.bucket),
                    action,
                    progress,
                    max_objects=self.limits.prefix_objects,
                    deadline=self._out_of_time,
                    allow_bypass=self.limits.allow_bypass,
                ),
                lambda bucket, step, execution=execution: self._prefix_done(execution, bucket, step),  # type: ignore[misc]
            )
        self.sender.drain()
        for execution in self.sender.prefixes:
            if execution.step is None and execution.bucket is not None:
                execution.held = execution.held or execution.bucket.closed

    def _out_of_time(self) -> bool:
        return self.clock() - self.sender.started > self.limits.slice_s

    def _prefix_done(self, execution: Execution, bucket: Bucket, step: PrefixStep) -> None:
        execution.step = step
        if step.state == "environment":
            self.sender.note(str(step.fault))
        bucket.done += step.state == "done"
        if step.fault is not None and step.state == "bucket":
            self.sender.replies.close(bucket, ItemOutcome(None, step.fault.code, str(step.fault)))
