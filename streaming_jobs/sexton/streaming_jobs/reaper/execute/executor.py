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
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from sexton.schemas.guards import Guard
from sexton.storage import Deleter
from sexton.streaming_jobs.reaper.execute.boundaries import Advanced
from sexton.streaming_jobs.reaper.execute.bucket import Bucket
from sexton.streaming_jobs.reaper.execute.execution import Execution
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome
from sexton.streaming_jobs.reaper.execute.paced import OnePacer, Pacer
from sexton.streaming_jobs.reaper.execute.replies import Limits, Replies
from sexton.streaming_jobs.reaper.execute.result import Result
from sexton.streaming_jobs.reaper.execute.sender import Sender
from sexton.streaming_jobs.reaper.guards import ROOMS as GUARDS

__all__ = ["Executor", "Limits", "Pacer"]


@dataclass(slots=True)
class Executor:
    """Executes the intents of one task; `add` each, `finish` once, then ask for each `result`.

    Nothing of it is sent before `started`, seconds since 1970. `advances` counts the writes of boundaries
    that were tried; `set_back` are the namespaces whose boundary somebody else has set back, with what was
    found.
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
    advances: int = 0
    set_back: dict[str, str] = field(default_factory=dict)
    _overdue: list[Execution] = field(default_factory=list)

    def __post_init__(self) -> None:
        replies = Replies(self.limits, self.clock, self.jitter)
        pacer = OnePacer(self.pacer)
        self.sender = Sender(self.deleter, pacer, replies, self.probes_under, self.clock, dry=self.dry)

    def add(self, execution: Execution) -> None:
        """Queue the first phase of an intent; sends whatever fills a request."""
        self.sender.started = self.sender.started or self.clock()
        action = execution.action
        bucket = execution.bucket = self._bucket_of(action.bucket, bypass=action.bypass_governance)
        if execution.overdue:
            self._overdue.append(execution)
        if bucket.breaker.opened is not None:
            execution.held = bucket.breaker.opened
        elif bucket.abilities is None:
            bucket.unstarted.append(execution)
        else:
            execution.attempt(partial(execution.start, self.sender), None)
        # Also for a bucket that waits for its probe: the answer may be among what has come back.
        self.sender.pump(bucket)

    def finish(self) -> None:
        """Send the rest, then phase after phase; returns when every key has an outcome.

        Raises EnvironmentFault when something is wrong with everything.
        """
        try:
            self.sender.settle()
            while self.sender.later:
                # Not before here: a later phase that overtakes an earlier one would leave a commit object
                # that names data which is gone.
                self._ask(self.sender.later)
                self._make_true(self.sender.later)
                self.sender.later = [each for each in self.sender.later if self._proceed(each)]
                self.sender.settle()
            # Prefixes last: a key that is also named has gone by then, under its own condition and phase.
            self._ask(self.sender.last)
            for execution in self.sender.last:
                self._proceed(execution)
            self.sender.drain()
            # After the last try: what is still held now gets its final outcome, and no request follows it.
            for execution in self._overdue:
                execution.attempt(partial(execution.expire, self.deleter), None)
        finally:
            self.sender.inbox.close()

    def _ask(self, executions: Iterable[Execution]) -> None:
        """Have the store asked what the next phases hang on: vetoes are not stable, so just before these."""
        for execution in executions:
            execution.attempt(partial(execution.ask, self.sender), None)
        self.sender.drain()

    def _make_true(self, executions: Iterable[Execution]) -> None:
        """Have guards made true, those that write the same at once, before anything of theirs is sent."""
        same: dict[tuple[str, bool, tuple[str, ...]], list[tuple[Execution, Guard]]] = defaultdict(list)
        none: Sequence[Guard] = ()
        for execution in executions:
            for guard in execution.attempt(partial(execution.to_make, self.sender), none):
                bucket = execution.bucket
                same[bucket.name, bucket.bypass, tuple(guard.writes)].append((execution, guard))
        for asked in same.values():
            self._make_one_true(asked)
        self.sender.drain()

    def _make_one_true(self, asked: Sequence[tuple[Execution, Guard]]) -> None:
        sender, bucket = self.sender, asked[0][0].bucket
        guards = {guard for _, guard in asked}
        make_true = GUARDS[type(asked[0][1])].make_true
        assert make_true is not None

        def told(bucket: Bucket, found: Advanced) -> None:
            self.advances += found.writes
            self.set_back |= {f"{bucket.name}/{name}": why for name, why in found.set_back.items()}
            for execution, guard in asked:
                execution.made[guard] = found.told[guard]

        work = partial(make_true, sender.paced(bucket.name), bucket.name, guards, self.dry)
        sender.job(bucket, work, told)

    def result(self, execution: Execution) -> Result:
        """Return what became of an intent, after `finish`."""
        return execution.result(self.sender.request_ids)

    def _proceed(self, execution: Execution) -> bool:
        return execution.attempt(lambda: execution.proceed(self.sender), False)

    def failing(self) -> dict[str, str]:
        """Return the buckets whose circuit is open, with the reason; one that was given up holds nothing."""
        return {name: opened.reason for name, opened in self._held()}

    def said(self) -> dict[str, str]:
        """Return what the stores of buckets whose circuit opened in this task said of it."""
        return {name: opened.detail for name, opened in self._held() if name not in self.held}

    def _held(self) -> Iterator[tuple[str, ItemOutcome]]:
        for bucket in self.sender.buckets.values():
            opened = bucket.breaker.opened
            if opened is not None and opened.kind is None:
                yield bucket.name, opened

    def healthy(self) -> set[str]:
        """Return the buckets that did some work, and whose circuit is closed."""
        buckets = self.sender.buckets.values()
        return {each.name for each in buckets if each.done and each.breaker.opened is None}

    def _bucket_of(self, name: str, *, bypass: bool) -> Bucket:
        key = (name, bypass and self.limits.allow_bypass)
        bucket = self.sender.buckets.get(key)
        if bucket is None:
            bucket = self.sender.buckets[key] = Bucket(*key, self.started)
            if (why := self.held.get(name)) is not None:
                bucket.open_circuit(ItemOutcome(None, why, "the bucket is held: its intents wait"))
            else:
                self.sender.probe(bucket)
        return bucket
