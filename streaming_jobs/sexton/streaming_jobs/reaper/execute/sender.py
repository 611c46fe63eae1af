"""Sending: each bucket's requests, the jobs beside them, and taking in what comes back.

One thread queues, sends and takes in; `due` says what is next, `replies` what an answer means.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from sexton.schemas.errors import EnvironmentFault
from sexton.storage import MAX_KEYS, READY, Abilities, BatchResult, Deleter
from sexton.streaming_jobs.reaper.execute.bucket import Bucket, Denial, Probe
from sexton.streaming_jobs.reaper.execute.due import Batch
from sexton.streaming_jobs.reaper.execute.execution import Execution
from sexton.streaming_jobs.reaper.execute.inbox import JOBS, Inbox
from sexton.streaming_jobs.reaper.execute.items import EraseAll, Item, names_of
from sexton.streaming_jobs.reaper.execute.jobs import denies_all, erase_key, fault_of_call
from sexton.streaming_jobs.reaper.execute.key_states import State
from sexton.streaming_jobs.reaper.execute.outcomes import SLOW_BUCKET, ItemOutcome, Step, is_throttled
from sexton.streaming_jobs.reaper.execute.paced import OnePacer, PacedDeleter
from sexton.streaming_jobs.reaper.execute.replies import Replies
from sexton.streaming_jobs.reaper.execute.verification import verify
from sexton.streaming_jobs.reaper.vetoes import Now

__all__ = ["Sender"]

T = TypeVar("T")


@dataclass(slots=True)
class Sender:
    """Sends what the buckets of one task have due.

    `later` are the intents of which more is to come once all is acknowledged that was queued, `last` those
    that come after them; their turns are the stage's. `fault` is what is wrong with everything, once
    something is.
    """

    deleter: Deleter
    pacer: OnePacer
    replies: Replies
    probes_under: Mapping[str, str] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    dry: bool = False
    later: list[Execution] = field(default_factory=list)
    last: list[Execution] = field(default_factory=list)
    request_ids: list[str] = field(default_factory=list)
    requests: int = 0
    keys_sent: int = 0
    retried: int = 0
    throttled: int = 0
    buckets: dict[tuple[str, bool], Bucket] = field(default_factory=dict)
    inbox: Inbox = field(default_factory=Inbox)
    fault: str | None = None
    started: float = 0.0

    def probe(self, bucket: Bucket) -> None:
        """Ask what the store can do: what the bucket says of itself, and once a key needs it all the rest."""
        bucket.probe_due = None
        if bucket.abilities is None:
            self.job(bucket, lambda: self.deleter.look_up(bucket.name), self._probed)
        else:
            under = self.probes_under.get(bucket.name, "")
            self.job(bucket, lambda: self.deleter.probe(bucket.name, under), self._probed)

    def pump(self, bucket: Bucket) -> None:
        """Take in what has come back, and send what fills a request."""
        self.inbox.take_in()
        if len(bucket.due.plain) >= MAX_KEYS:
            self._advance(bucket, flush=False)

    def _advance(self, bucket: Bucket, *, flush: bool) -> None:
        if self.fault is not None:
            return
        now = self.clock()
        while self._may_send(bucket, now):
            size = bucket.due.next_size(now, bucket.pace.most, flush=flush)
            if not size:
                break
            wait_s = self.pacer.take(bucket.name, size)
            if wait_s > 0:
                bucket.pace.not_before = now + wait_s
                break
            self._send(bucket, bucket.next_batch(now))
        if flush:
            self._start_jobs(bucket)

    def _may_send(self, bucket: Bucket, now: float) -> bool:
        most = self.replies.limits.in_flight
        allowed = min(bucket.pace.limit, self.pacer.in_flight_limit(bucket.name))
        if allowed >= most:
            # Nobody slows the bucket down: some stand ready for the senders while this thread decodes.
            allowed += READY
        return now >= bucket.pace.not_before and self.inbox.out < most + READY and bucket.out < allowed

    def _send(self, bucket: Bucket, batch: Batch) -> None:
        number = len(self.request_ids)
        self.request_ids.append("")
        for execution in batch.users:
            if execution.requests[-1:] != [number]:
                execution.requests.append(number)
        self.keys_sent += len(batch.items)
        self.retried += len(batch.items) if batch.again else 0
        bucket.out += 1
        future = self.deleter.delete_all(bucket.name, batch.items, bypass_governance=bucket.bypass)
        self.inbox.expect(future, lambda result: self._replied(bucket, batch, number, result))

    def job(self, bucket: Bucket, work: Callable[[], T], then: Callable[[Bucket, T], None]) -> None:
        """Run a job of a bucket beside the requests; what it raises is the bucket's, or everybody's."""
        bucket.jobs += 1

        def landed(future: Future[T]) -> None:
            bucket.jobs -= 1
            error = future.exception()
            if error is None:
                then(bucket, future.result())
            else:
                self._failed(bucket, error)

        self.inbox.run(work, landed)

    def now(self, bucket: str) -> Now:
        """Return the time by the reaper's clock and by the bucket's; in a dry run nobody asks the bucket."""
        reaper = self.wall()
        return Now(reaper, reaper if self.dry else self.deleter.date_of(bucket))

    def paced(self, bucket: str) -> PacedDeleter:
        """Return a deleter for a job on a bucket."""
        return PacedDeleter(self.deleter, self.pacer, self.probes_under.get(bucket, ""))

    def out_of_time(self) -> bool:
        """Return whether the slice of time is over that one task gives to what is slow."""
        return self.clock() - self.started > self.replies.limits.slice_s

    def note(self, fault: str | None) -> None:
        """Remember what is wrong with everything; the first one counts."""
        self.fault = self.fault or fault

    def _start_jobs(self, bucket: Bucket) -> None:
        if bucket.denial is Denial.ASKING and not bucket.jobs:
            under = self.probes_under.get(bucket.name, "")
            self.job(bucket, lambda: denies_all(self.paced(bucket.name), bucket.name, under), self._answered)
        if bucket.probe is Probe.UNPROBED and bucket.needs_probe():
            bucket.probe = Probe.PROBING
            self.probe(bucket)
        to_verify = bucket.keys.all_in(State.TO_VERIFY)
        if to_verify and self.inbox.jobs < JOBS and bucket.probe is not Probe.PROBING:
            self._verify(bucket, bucket.next_to_verify())
        while bucket.due.alone and self.inbox.jobs < JOBS:
            self._erase(bucket, bucket.next_alone())

    def _verify(self, bucket: Bucket, asked: dict[Item, ItemOutcome]) -> None:
        keys, versions = names_of(asked)
        self.job(
            bucket,
            lambda: verify(self.deleter, bucket.name, keys, versions=versions),
            lambda bucket, found: self.replies.verified(bucket, asked, found),
        )

    def _erase(self, bucket: Bucket, item: EraseAll) -> None:
        self.job(
            bucket,
            lambda: erase_key(self.paced(bucket.name), bucket.name, item.key, bypass=bucket.bypass),
            lambda bucket, outcome: self._erased(bucket, item, outcome),
        )

    def _probed(self, bucket: Bucket, abilities: Abilities) -> None:
        if bucket.abilities is not None:
            bucket.probe = Probe.PROBED
        bucket.abilities = abilities
        if bucket.probe is Probe.PROBED:
            self.replies.probed(bucket)
        waiting, bucket.unstarted = bucket.unstarted, []
        for execution in waiting:
            execution.attempt(partial(execution.start, self), None)
        self._advance(bucket, flush=False)

    @staticmethod
    def _answered(bucket: Bucket, denies: bool) -> None:
        bucket.denial = Denial.DENIES_ALL if denies else Denial.ALLOWS

    def _failed(self, bucket: Bucket, error: BaseException) -> None:
        step, outcome = fault_of_call(error)
        if step is Step.ENVIRONMENT:
            self.note(outcome.detail)
        elif step is Step.UNUSABLE:
            bucket.give_up(outcome)
        elif step is Step.RETRY and (bucket.abilities is None or bucket.probe is Probe.PROBING):
            # The probe was throttled or cut: once more, while the failure threshold is not reached.
            self.replies.slow_down(bucket, outcome)
            if not bucket.is_open:
                bucket.probe_due = bucket.pace.not_before
        else:
            bucket.open_circuit(outcome)

    def _replied(self, bucket: Bucket, batch: Batch, number: int, result: BatchResult) -> None:
        bucket.out -= 1
        self.requests += result.requests
        self.throttled += result.fault is not None and is_throttled(result.fault)
        self.request_ids[number] = result.request_id
        self.pacer.took(bucket.name, result)
        self.note(self.replies.batch(bucket, batch, result))
        self._advance(bucket, flush=False)

    def _erased(self, bucket: Bucket, item: EraseAll, found: tuple[Step, ItemOutcome]) -> None:
        self.note(self.replies.erased(bucket, item, *found))

    def settle(self) -> None:
        """Work until every bucket is at rest and every denied key decided about; raises EnvironmentFault."""
        while True:
            self.drain()
            # Each bucket, not only the first: this decides as well as asks.
            to_verify = [self.replies.denied(bucket) for bucket in self.buckets.values()]
            if not any(to_verify):
                return

    def drain(self) -> None:
        """Work until every bucket is idle."""
        while True:
            self.inbox.take_in()
            self._check_fault()
            for bucket in self.buckets.values():
                self._probe_again(bucket)
                self._cut_slow(bucket)
                self._advance(bucket, flush=True)
            if all(bucket.idle for bucket in self.buckets.values()):
                return
            self.inbox.wait(self._next_due())  # until a bucket's time to send has come

    def _check_fault(self) -> None:
        """Raise what is wrong with everything, once nothing is under way."""
        if self.fault is None:
            return
        # A request that outlived its task could delete beside the next try, which verifies what is there.
        while self.inbox.awaits:
            self.inbox.wait(None)
        raise EnvironmentFault(self.fault)

    def _probe_again(self, bucket: Bucket) -> None:
        if bucket.probe_due is not None and self.clock() >= bucket.probe_due:
            self.probe(bucket)

    def _cut_slow(self, bucket: Bucket) -> None:
        """Open a throttled bucket's circuit after its slice of time where other buckets' receipts wait for
        this task.
        """
        if len(self.buckets) < 2 or not bucket.keys:
            return
        if self.out_of_time() and bucket.due.has_requests:
            bucket.open_circuit(
                ItemOutcome(None, SLOW_BUCKET, "its slice of time is over: the rest continues later")
            )

    def _next_due(self) -> float | None:
        """Return seconds until some bucket may send again; None where only a reply can change anything."""
        now, waits = self.clock(), []
        for bucket in self.buckets.values():
            if bucket.probe_due is not None:
                waits.append(bucket.probe_due - now)
            if bucket.due.has_requests:
                due = bucket.next_due_at(now)
                if due > now or not self.inbox.awaits:
                    waits.append(due - now)
        return max(min(waits), 0.001) if waits else None
