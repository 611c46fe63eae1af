"""Sending: requests of each bucket's lane, the jobs beside them, and taking in what comes back.

One thread queues, sends and takes in; see `lanes` for what waits where, `replies` for what an answer means.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sexton.schemas import events
from sexton.schemas.errors import EnvironmentFault
from sexton.storage import MAX_KEYS, READY, Abilities, BatchResult, Delete
from sexton.streaming_jobs.reaper.execution import Execution, items_of, names_of
from sexton.streaming_jobs.reaper.fates import SLOW_BUCKET, Fate, Step, is_throttled
from sexton.streaming_jobs.reaper.inbox import JOBS, Inbox
from sexton.streaming_jobs.reaper.items import EraseAll
from sexton.streaming_jobs.reaper.jobs import denies_all, erase_key, fault_of_call
from sexton.streaming_jobs.reaper.lanes import Batch, Lane
from sexton.streaming_jobs.reaper.looking import look
from sexton.streaming_jobs.reaper.paced import Deleter, OnePacer, PacedDeleter
from sexton.streaming_jobs.reaper.prefix_steps import PrefixProgress, PrefixState, PrefixStep
from sexton.streaming_jobs.reaper.replies import Replies

__all__ = ["Sender"]

T = TypeVar("T")


@dataclass(slots=True)
class Sender:
    """Works the lanes of one task off.

    `phased` are the intents whose next phase waits, `prefixes` those of a prefix; the executor's are their
    turns. `fault` is what is wrong with everything, once something is.
    """

    deleter: Deleter
    pacer: OnePacer
    replies: Replies
    probes_under: Mapping[str, str] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    dry: bool = False
    phased: list[Execution] = field(default_factory=list)
    prefixes: list[Execution] = field(default_factory=list)
    request_ids: list[str] = field(default_factory=list)
    requests: int = 0
    keys_sent: int = 0
    retried: int = 0
    throttled: int = 0
    lanes: dict[tuple[str, bool], Lane] = field(default_factory=dict)
    inbox: Inbox = field(default_factory=Inbox)
    fault: str | None = None
    started: float = 0.0

    def probe(self, lane: Lane) -> None:
        """Ask what the store can do: what the bucket says of itself, and once a key needs it all the rest."""
        lane.probe_due = None
        if lane.abilities is None:
            self.job(lane, lambda: self.deleter.look_up(lane.bucket), self._probed)
        else:
            under = self.probes_under.get(lane.bucket, "")
            self.job(lane, lambda: self.deleter.probe(lane.bucket, under), self._probed)

    def begin(self, execution: Execution, lane: Lane) -> None:
        """Queue the first phase of an intent; prefixes and later phases wait for all that can go before."""
        if isinstance(execution.action, events.DeletePrefix):
            if self.dry:
                execution.step = PrefixStep(PrefixState.DONE, PrefixProgress(gone=1))  # nothing is listed
            else:
                self.prefixes.append(execution)
            return
        self.queue(execution, lane, execution.left[0])
        if len(execution.left) > 1:
            self.phased.append(execution)

    def queue(self, execution: Execution, lane: Lane, keys: Sequence[str]) -> None:
        """Queue keys of an intent, those that nobody has queued before."""
        # A dry run does not know what the store can check.
        items = keys if self.dry else items_of(execution, keys, lane)
        execution.phases.append(items)
        plain = items is keys
        touched = execution.touched(items)
        if touched:
            known = lane.sent_before
            known.update((item, attempt.beside(known.get(item))) for item, attempt in touched.items())
        new: Sequence[Any] = lane.unseen(keys) if plain else lane.unseen_items(items)
        if not new:
            return
        if touched and lane.marks:
            new = lane.look_first(new)
        if plain:
            lane.waiting.items += new  # type: ignore[arg-type]  # they are this intent's keys
            lane.users.add(execution, len(new))
        else:
            lane.queue(execution, new)

    def pump(self, lane: Lane) -> None:
        """Take in what has come back, and send what fills a request."""
        self.inbox.take_in()
        if len(lane.waiting) >= MAX_KEYS:
            self._advance(lane, flush=False)

    def _advance(self, lane: Lane, *, flush: bool) -> None:
        if self.fault is not None:
            return
        now = self.clock()
        while self._may_send(lane, now):
            size = lane.next_size(now, flush=flush)
            if not size:
                break
            wait_s = self.pacer.take(lane.bucket, size)
            if wait_s > 0:
                lane.pace.not_before = now + wait_s
                break
            self._send(lane, lane.next_batch(now))
        if flush:
            self._start_jobs(lane)

    def _may_send(self, lane: Lane, now: float) -> bool:
        most = self.replies.limits.in_flight
        allowed = min(lane.pace.limit, self.pacer.in_flight_limit(lane.bucket))
        if allowed >= most:
            # Nobody slows the bucket down: some stand ready for the senders while this thread decodes.
            allowed += READY
        return now >= lane.pace.not_before and self.inbox.out < most + READY and lane.out < allowed

    def _send(self, lane: Lane, batch: Batch) -> None:
        number = len(self.request_ids)
        self.request_ids.append("")
        for execution in batch.users:
            if execution.requests[-1:] != [number]:
                execution.requests.append(number)
        self.keys_sent += len(batch.items)
        self.retried += len(batch.items) if batch.again else 0
        lane.out += 1
        batch.probed = lane.probed
        future = self.deleter.delete_all(lane.bucket, batch.items, bypass_governance=lane.bypass)
        self.inbox.expect(future, lambda result: self._replied(lane, batch, number, result))

    def job(self, lane: Lane, work: Callable[[], T], then: Callable[[Lane, T], None]) -> None:
        """Run a job of a lane beside the requests; what it raises is the lane's, or everybody's."""
        lane.jobs += 1

        def landed(future: Future[T]) -> None:
            lane.jobs -= 1
            error = future.exception()
            if error is None:
                then(lane, future.result())
            else:
                self._failed(lane, error)

        self.inbox.run(work, landed)

    def paced(self, bucket: str) -> PacedDeleter:
        """Return a deleter for a job on a bucket."""
        return PacedDeleter(self.deleter, self.pacer, self.probes_under.get(bucket, ""))

    def note(self, fault: str | None) -> None:
        """Remember what is wrong with everything; the first to be told counts."""
        self.fault = self.fault or fault

    def _start_jobs(self, lane: Lane) -> None:
        if lane.asking and lane.denies_all is None and not lane.jobs:
            under = self.probes_under.get(lane.bucket, "")
            self.job(lane, lambda: denies_all(self.paced(lane.bucket), lane.bucket, under), self._answered)
        if not lane.probing and (lane.untried or lane.looks_odd()):
            lane.probing = True
            self.probe(lane)
        if lane.to_look and self.inbox.jobs < JOBS and (lane.probed or not lane.probing):
            self._look(lane, lane.next_look())
        while lane.erasing and self.inbox.jobs < JOBS:
            self._erase(lane, lane.erasing.pop())

    def _look(self, lane: Lane, asked: dict[str | Delete, Fate]) -> None:
        keys, versions = names_of(asked)
        self.job(
            lane,
            lambda: look(self.deleter, lane.bucket, keys, versions=versions),
            lambda lane, found: self.replies.looked(lane, asked, found),
        )

    def _erase(self, lane: Lane, item: EraseAll) -> None:
        self.job(
            lane,
            lambda: erase_key(self.paced(lane.bucket), lane.bucket, item.key, bypass=lane.bypass),
            lambda lane, fate: self._erased(lane, item, fate),
        )

    def _probed(self, lane: Lane, abilities: Abilities) -> None:
        lane.probed = lane.abilities is not None
        lane.abilities = abilities
        self.replies.probed(lane)
        waiting, lane.unprobed = lane.unprobed, []
        for execution in waiting:
            self.begin(execution, lane)
        self._advance(lane, flush=False)

    @staticmethod
    def _answered(lane: Lane, denies: bool) -> None:
        lane.denies_all, lane.asking = denies, False

    def _failed(self, lane: Lane, error: BaseException) -> None:
        step, fate = fault_of_call(error)
        if step is Step.ENVIRONMENT:
            self.note(fate.detail)
        elif step is Step.AGAIN and (lane.abilities is None or lane.untried):
            # The probe was throttled or cut: once more, while patience lasts.
            self.replies.slow_down(lane, fate)
            if lane.closed is None:
                lane.probe_due = lane.pace.not_before
        else:
            self.replies.close(lane, fate)

    def _replied(self, lane: Lane, batch: Batch, number: int, result: BatchResult) -> None:
        lane.out -= 1
        self.requests += result.requests
        self.throttled += result.fault is not None and is_throttled(result.fault)
        self.request_ids[number] = result.request_id
        self.pacer.took(lane.bucket, result)
        self.note(self.replies.batch(lane, batch, result))
        self._advance(lane, flush=False)

    def _erased(self, lane: Lane, item: EraseAll, found: tuple[Step, Fate]) -> None:
        self.note(self.replies.erased(lane, item, *found))

    def settle(self) -> None:
        """Work until every lane is at rest and every denied key decided about; raises EnvironmentFault."""
        while True:
            self.drain()
            # Each lane, not only the first: this decides as well as asks.
            to_look = [self.replies.denied(lane) for lane in self.lanes.values()]
            if not any(to_look):
                return

    def drain(self) -> None:
        """Work until every lane is idle."""
        while True:
            self.inbox.take_in()
            self._check_fault()
            for lane in self.lanes.values():
                self._probe_again(lane)
                self._cut_slow(lane)
                self._advance(lane, flush=True)
            if all(lane.idle for lane in self.lanes.values()):
                return
            self.inbox.wait(self._next_due())  # until a lane's time to send has come

    def _check_fault(self) -> None:
        """Raise what is wrong with everything, once nothing is under way."""
        if self.fault is None:
            return
        while self.inbox.awaits:
            self.inbox.wait(None)
        raise EnvironmentFault(self.fault)

    def _probe_again(self, lane: Lane) -> None:
        if lane.probe_due is not None and self.clock() >= lane.probe_due:
            self.probe(lane)

    def _cut_slow(self, lane: Lane) -> None:
        """Close a throttled lane after its slice of time where other buckets' receipts wait for this task."""
        if len(self.lanes) < 2 or not lane.tries:
            return
        if self.clock() - self.started > self.replies.limits.slice_s and lane.has_unsent:
            self.replies.close(
                lane, Fate(None, SLOW_BUCKET, "its slice of time is over: the rest goes on later")
            )

    def _next_due(self) -> float | None:
        """Return seconds until some lane may send again; None where only a reply can change anything."""
        now, waits = self.clock(), []
        for lane in self.lanes.values():
            if lane.probe_due is not None:
                waits.append(lane.probe_due - now)
            if lane.has_unsent:
                due = lane.due(now)
                if due > now or not self.inbox.awaits:
                    waits.append(due - now)
        return max(min(waits), 0.001) if waits else None
