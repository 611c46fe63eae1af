"""Stage 3, execute: the keys of all intents that passed, merged by bucket into requests of 1,000.

Keys of all tenants of a bucket share requests; an item that several intents name goes over the wire once.
Each bucket has a lane of its own: one that is throttled, missing or slow never holds up another. A key that
met trouble is sent again, looked at or given up by itself, and its neighbours go on. Phases are kept: the
next phase of an intent starts when everything before it is acknowledged gone (a commit object before its
data). A fault of the whole environment ends the task: nothing of the micro-batch is settled then, and it is
worked off again from its start.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from sexton.schemas import events
from sexton.schemas.errors import EnvironmentFault
from sexton.storage import MAX_KEYS, READY, Abilities, BatchResult, Delete
from sexton.streaming_jobs.reaper.execution import Execution, Result, items_of, names_of, result_of
from sexton.streaming_jobs.reaper.expiry import expire
from sexton.streaming_jobs.reaper.fates import SLOW_BUCKET, Fate, Step
from sexton.streaming_jobs.reaper.jobs import denies_all, erase_key, fault_of_call
from sexton.streaming_jobs.reaper.lanes import Batch, EraseAll, Lane
from sexton.streaming_jobs.reaper.looking import look
from sexton.streaming_jobs.reaper.paced import Deleter, OnePacer, PacedDeleter, Pacer
from sexton.streaming_jobs.reaper.prefixes import PrefixProgress, PrefixState, PrefixStep, work_prefix
from sexton.streaming_jobs.reaper.replies import Limits, Replies

__all__ = ["Deleter", "Executor", "Limits", "Pacer"]

_JOBS = 4  # looks, probes, erasing and prefixes under way at a time in one task


@dataclass(slots=True)
class Executor:
    """Executes the intents of one task; `add` each, `finish` once, then ask for each `result`."""

    deleter: Deleter
    pacer: Pacer
    limits: Limits = field(default_factory=Limits)
    held: Mapping[str, str] = field(default_factory=dict)
    probes_under: Mapping[str, str] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random
    dry: bool = False
    request_ids: list[str] = field(default_factory=list)
    requests: int = 0
    keys_sent: int = 0
    retried: int = 0
    _lanes: dict[tuple[str, bool], Lane] = field(default_factory=dict)
    _overdue: list[Execution] = field(default_factory=list)
    _phased: list[Execution] = field(default_factory=list)
    _prefixes: list[Execution] = field(default_factory=list)
    _done: SimpleQueue[Callable[[], None]] = field(default_factory=SimpleQueue)
    _out: int = 0
    _jobs: int = 0
    _pool: ThreadPoolExecutor | None = None
    _fault: str | None = None
    _started: float = 0.0
    _replies: Replies = field(init=False)
    _pacer: OnePacer = field(init=False)

    def __post_init__(self) -> None:
        self._pacer = OnePacer(self.pacer)
        self._replies = Replies(self.limits, self.clock, self.jitter)

    def add(self, execution: Execution) -> None:
        """Queue the first phase of an intent; sends whatever fills a request."""
        self._started = self._started or self.clock()
        lane = execution.lane = self._lane(execution.action)
        if execution.overdue:
            self._overdue.append(execution)
        if lane.closed is not None:
            execution.held = lane.closed
        elif lane.abilities is None:
            lane.unprobed.append(execution)
        else:
            self._begin(execution, lane)
        # Also for a lane that waits for its probe: the answer may be among what has come back.
        self._pump(lane)

    def finish(self) -> None:
        """Send the rest, then phase after phase; returns when every key has a fate.

        Raises EnvironmentFault when something is wrong with everything.
        """
        try:
            self._settle_lanes()
            while self._phased:
                # Not before here: a later phase that overtakes an earlier one would leave a commit object
                # that names data which is gone.
                self._phased = [e for e in self._phased if self._next_phase(e)]
                self._settle_lanes()
            self._work_prefixes()
            expire(self._overdue, self.deleter)
        finally:
            if self._pool is not None:
                self._pool.shutdown(wait=False)

    def result(self, execution: Execution) -> Result:
        """Return what became of an intent, after `finish`."""
        return result_of(execution, self.request_ids)

    def troubled(self) -> dict[str, str]:
        """Return the buckets that were closed, with the reason."""
        return {lane.bucket: lane.closed.reason for lane in self._lanes.values() if lane.closed is not None}

    def healthy(self) -> set[str]:
        """Return the buckets that did some work and are open."""
        return {lane.bucket for lane in self._lanes.values() if lane.closed is None and lane.done}

    # -- queueing

    def _lane(self, action: events.DeleteObjects | events.DeletePrefix) -> Lane:
        name = (action.bucket, action.bypass_governance and self.limits.allow_bypass)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(*name)
            if (why := self.held.get(action.bucket)) is not None:
                lane.closed = Fate(None, why, "the bucket is held: its intents wait")
            else:
                self._probe(lane)
        return lane

    def _probe(self, lane: Lane) -> None:
        """Ask what the store can do: what the bucket says of itself, and once a key needs it all the rest."""
        lane.probe_due = None
        if lane.abilities is None:
            self._job(lane, lambda: self.deleter.look_up(lane.bucket), self._probed)
        else:
            under = self.probes_under.get(lane.bucket, "")
            self._job(lane, lambda: self.deleter.probe(lane.bucket, under), self._probed)

    def _begin(self, execution: Execution, lane: Lane) -> None:
        if isinstance(execution.action, events.DeletePrefix):
            if self.dry:
                execution.step = PrefixStep(PrefixState.DONE, PrefixProgress())
            else:
                self._prefixes.append(execution)
            return
        self._queue(execution, lane, execution.action.phases[0])
        if len(execution.action.phases) > 1:
            self._phased.append(execution)

    def _next_phase(self, execution: Execution) -> bool:
        """Queue an intent's next phase if everything before it is gone; tell whether more are to come."""
        assert isinstance(execution.action, events.DeleteObjects)
        assert execution.lane is not None
        execution.blocked = execution.blocking()
        if execution.blocked is not None:
            return False
        if execution.lane.closed is not None:
            execution.held = execution.lane.closed
            return False
        number = len(execution.phases)
        self._queue(execution, execution.lane, execution.action.phases[number])
        return len(execution.action.phases) > number + 1

    def _queue(self, execution: Execution, lane: Lane, keys: Sequence[str]) -> None:
        items = items_of(execution, keys, lane)
        execution.phases.append(items)
        plain = items is keys
        if execution.sent_before:
            lane.sent_before.update(items)
            lane.was_changed.update((item, execution.was_changed) for item in items)
        new: Sequence[Any] = lane.unseen(keys) if plain else lane.unseen_items(items)
        if not new:
            return
        if execution.sent_before and lane.marks:
            new = lane.look_first(new)
        if plain:
            lane.waiting.items += new  # type: ignore[arg-type]  # they are this intent's keys
            lane.users.add(execution, len(new))
        else:
            lane.queue(execution, new)

    # -- sending

    def _pump(self, lane: Lane) -> None:
        """Take in what has come back, and send what fills a request."""
        while not self._done.empty():
            self._done.get_nowait()()
        if len(lane.waiting) >= MAX_KEYS:
            self._advance(lane, flush=False)

    def _advance(self, lane: Lane, *, flush: bool) -> None:
        if lane.closed is not None or lane.abilities is None or self._fault is not None:
            return
        now = self.clock()
        while self._may_send(lane, now):
            size = lane.next_size(now, flush=flush)
            if not size:
                break
            wait_s = self._pacer.take(lane.bucket, size)
            if wait_s > 0:
                lane.pace.not_before = now + wait_s
                break
            self._send(lane, lane.next_batch(now))
        if flush:
            self._start_jobs(lane)

    def _may_send(self, lane: Lane, now: float) -> bool:
        most = self.limits.in_flight
        allowed = min(lane.pace.limit, self._pacer.in_flight_limit(lane.bucket))
        if allowed >= most:
            # Nobody slows the bucket down: some stand ready for the senders while this thread decodes.
            allowed += READY
        return now >= lane.pace.not_before and self._out < most + READY and lane.out < allowed

    def _send(self, lane: Lane, batch: Batch) -> None:
        number = len(self.request_ids)
        self.request_ids.append("")
        for execution in batch.users:
            if execution.requests[-1:] != [number]:
                execution.requests.append(number)
        self.keys_sent += len(batch.items)
        self.retried += len(batch.items) if batch.again else 0
        lane.out += 1
        self._out += 1
        batch.probed = lane.probed
        future = self.deleter.delete_all(lane.bucket, batch.items, bypass_governance=lane.bypass)
        future.add_done_callback(
            lambda done: self._done.put(lambda: self._replied(lane, batch, number, done.result()))
        )

    def _start_jobs(self, lane: Lane) -> None:
        if lane.asking and lane.denies_all is None and not lane.jobs:
            under = self.probes_under.get(lane.bucket, "")
            self._job(lane, lambda: denies_all(self._paced(lane.bucket), lane.bucket, under), self._answered)
        if not lane.probing and (lane.untried or lane.looks_odd()):
            lane.probing = True
            self._probe(lane)
        if lane.to_look and self._jobs < _JOBS and (lane.probed or not lane.probing):
            self._look(lane, lane.next_look())
        while lane.erasing and self._jobs < _JOBS:
            self._erase(lane, lane.erasing.pop())

    def _look(self, lane: Lane, asked: dict[str | Delete, Fate]) -> None:
        keys, versions = names_of(asked)
        self._job(
            lane,
            lambda: look(self.deleter, lane.bucket, keys, versions=versions),
            lambda lane, seen: self._replies.looked(lane, asked, seen),
        )

    def _erase(self, lane: Lane, item: EraseAll) -> None:
        self._job(
            lane,
            lambda: erase_key(self._paced(lane.bucket), lane.bucket, item.key, bypass=lane.bypass),
            lambda lane, fate: self._erased(lane, item, fate),
        )

    def _job(self, lane: Lane, work: Callable[[], Any], then: Callable[[Lane, Any], None]) -> None:
        """Run a job beside the requests; what it raises is the lane's, or everybody's."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_JOBS, thread_name_prefix="sexton-execute")
        lane.jobs += 1
        self._jobs += 1

        def landed(future: Future[Any]) -> None:
            lane.jobs -= 1
            self._jobs -= 1
            error = future.exception()
            if error is None:
                then(lane, future.result())
            else:
                self._failed(lane, error)

        future = self._pool.submit(work)
        future.add_done_callback(lambda done: self._done.put(lambda: landed(done)))

    # -- taking in

    def _probed(self, lane: Lane, abilities: Abilities) -> None:
        lane.probed = lane.abilities is not None
        lane.abilities = abilities
        self._replies.probed(lane)
        waiting, lane.unprobed = lane.unprobed, []
        for execution in waiting:
            self._begin(execution, lane)
        self._advance(lane, flush=False)

    @staticmethod
    def _answered(lane: Lane, denies: bool) -> None:
        lane.denies_all, lane.asking = denies, False

    def _failed(self, lane: Lane, error: BaseException) -> None:
        step, fate = fault_of_call(error)
        if step is Step.ENVIRONMENT:
            self._fault = self._fault or fate.detail
        elif step is Step.AGAIN and (lane.abilities is None or lane.untried):
            # The probe was throttled or cut: once more, while patience lasts.
            self._replies.slow_down(lane, fate)
            if lane.closed is None:
                lane.probe_due = lane.pace.not_before
        else:
            self._replies.close(lane, fate)

    def _replied(self, lane: Lane, batch: Batch, number: int, result: BatchResult) -> None:
        lane.out -= 1
        self._out -= 1
        self.requests += result.requests
        self.request_ids[number] = result.request_id
        self._pacer.took(lane.bucket, result)
        self._fault = self._replies.batch(lane, batch, result) or self._fault
        self._advance(lane, flush=False)

    def _erased(self, lane: Lane, item: EraseAll, found: tuple[Step, Fate]) -> None:
        self._fault = self._replies.erased(lane, item, *found) or self._fault

    # -- coming to rest

    def _settle_lanes(self) -> None:
        while True:
            self._drain()
            # Each lane, not only the first: this decides as well as asks.
            to_look = [self._replies.denied(lane) for lane in self._lanes.values()]
            if not any(to_look):
                return

    def _drain(self) -> None:
        """Work until every lane is idle."""
        while True:
            while not self._done.empty():
                self._done.get_nowait()()
            self._check_fault()
            for lane in self._lanes.values():
                self._probe_again(lane)
                self._cut_slow(lane)
                self._advance(lane, flush=True)
            if all(lane.idle for lane in self._lanes.values()):
                return
            with suppress(Empty):  # then a lane's time to send has come
                self._done.get(timeout=self._next_due())()

    def _check_fault(self) -> None:
        """Raise what is wrong with everything, once nothing is under way."""
        if self._fault is None:
            return
        while self._out or self._jobs:
            self._done.get()()
        raise EnvironmentFault(self._fault)

    def _probe_again(self, lane: Lane) -> None:
        if lane.probe_due is not None and lane.closed is None and self.clock() >= lane.probe_due:
            self._probe(lane)

    def _cut_slow(self, lane: Lane) -> None:
        """Close a throttled lane after its slice of time where other buckets' receipts wait for this task."""
        if len(self._lanes) < 2 or not lane.tries or lane.closed is not None:
            return
        if self.clock() - self._started > self.limits.slice_s and lane.has_unsent:
            self._replies.close(
                lane, Fate(None, SLOW_BUCKET, "its slice of time is over: the rest goes on later")
            )

    def _next_due(self) -> float | None:
        """Return seconds until some lane may send again; None where only a reply can change anything."""
        now, waits = self.clock(), []
        for lane in self._lanes.values():
            if lane.probe_due is not None and lane.closed is None:
                waits.append(lane.probe_due - now)
            if lane.closed is None and lane.has_unsent and lane.abilities is not None:
                due = lane.due(now)
                if due > now or not (self._out or self._jobs):
                    waits.append(due - now)
        return max(min(waits), 0.001) if waits else None

    def _work_prefixes(self) -> None:
        for execution in self._prefixes:
            lane = execution.lane
            assert lane is not None
            assert isinstance(execution.action, events.DeletePrefix)
            if lane.closed is not None:
                execution.held = lane.closed
                continue
            action, progress = execution.action, execution.progress
            self._job(
                lane,
                lambda action=action, progress=progress: work_prefix(  # type: ignore[misc]
                    self._paced(action.bucket),
                    action,
                    progress,
                    max_objects=self.limits.prefix_objects,
                    deadline=self._out_of_time,
                    allow_bypass=self.limits.allow_bypass,
                ),
                lambda lane, step, execution=execution: self._prefix_done(execution, lane, step),  # type: ignore[misc]
            )
        self._drain()

    def _paced(self, bucket: str) -> PacedDeleter:
        return PacedDeleter(self.deleter, self._pacer, self.probes_under.get(bucket, ""))

    def _out_of_time(self) -> bool:
        return self.clock() - self._started > self.limits.slice_s

    def _prefix_done(self, execution: Execution, lane: Lane, step: PrefixStep) -> None:
        execution.step = step
        if step.state == "environment":
            self._fault = self._fault or str(step.fault)
        lane.done += step.state == "done"
        if step.fault is not None and step.state == "bucket":
            self._replies.close(lane, Fate(None, step.fault.code, str(step.fault)))
