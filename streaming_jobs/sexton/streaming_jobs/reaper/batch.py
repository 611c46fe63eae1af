"""One micro-batch, of first records or of waiting ones. The order of its steps is what makes it safe:

1. The offset range is fixed (Spark writes it to the checkpoint; the delay queue starts where it is done).
2. The issuer makes a barrier: end offsets at or above that range, then an event in the log.
3. Tasks decode, and judge as of that barrier.
4. Tasks delete; every key has its answer.
5. Outcomes, dead letters and deferred copies are written and acknowledged by Kafka.
6. The offsets are committed.

A crash anywhere replays from step 2 with the same range. The barrier is then a later one, and the verdicts
are the same: windows that cover an offset below an earlier barrier never shrink below it. Without step 2 a
successor could be issued unseen between the judge's read and the delete. With 5 after 6 receipts would be
lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from sexton.issuer.client import BarrierAnswer, IssuerClient
from sexton.schemas import records
from sexton.schemas.errors import EnvironmentFault, RequestRefused
from sexton.schemas.events import PartitionOffsets
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.deferred.delay_queue import DelayQueue
from sexton.streaming_jobs.reaper.deferred.pending import Duplicates
from sexton.streaming_jobs.reaper.faults import fault_of
from sexton.streaming_jobs.reaper.held import HeldBuckets
from sexton.streaming_jobs.reaper.plan import TaskPlan
from sexton.streaming_jobs.reaper.progress import BARRIERS, Progress
from sexton.streaming_jobs.reaper.recovery.attempts import Replayed, SentBefore
from sexton.streaming_jobs.reaper.recovery.binding import Binding
from sexton.streaming_jobs.reaper.recovery.lease import LockLost
from sexton.streaming_jobs.reaper.recovery.lock import CheckpointLock
from sexton.streaming_jobs.reaper.recovery.receipts import Earlier
from sexton.streaming_jobs.reaper.stop import StopFlag
from sexton.streaming_jobs.reaper.task import ROW_SPARK_SCHEMA, CountsParam, make_task
from sexton.streaming_jobs.spark import kafka_options

__all__ = ["MicroBatches"]

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 15.0
_ONCE_HOLD_S = 60.0  # `--once` gives up after this, so that a scheduler sees that nothing advanced
_EVERYTHING = 2**63 - 1
_NO_DUPLICATES = Duplicates()
_LARGEST_ROW = 64 * 1024 * 1024  # bytes before compression


@dataclass(slots=True)
class MicroBatches:
    """Processes micro-batches; the query and the delay queue share one, each from a thread of its own.

    `look_again` says what of those that are begun is settled already; it raises KafkaUnavailable.
    """

    settings: Settings
    spark: SparkSession
    stop: StopFlag
    once: bool
    binding: Binding
    lock: CheckpointLock
    delay_queue: DelayQueue
    progress: Progress
    look_again: Callable[[], Earlier]
    held: HeldBuckets = field(default_factory=HeldBuckets)
    replayed: Replayed | None = None
    _settled: dict[int, int] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def hold_until_done(
        self,
        batch: DataFrame,
        batch_id: int,
        topic: str,
        earlier: SentBefore,
        duplicates: Duplicates = _NO_DUPLICATES,
    ) -> None:
        """Process a micro-batch; a fault of the environment holds it: offsets stay, nothing is lost."""
        if topic == records.INTENTS:
            # The query has committed all before this micro-batch, and only that: the delay queue's barriers
            # must not count as settled what a crash would bring back.
            with self._guard:
                self._settled = dict(self.progress.total.reached)
                earlier = earlier.past(self._settled)
        wait_s, held_since, begun_at = _FIRST_WAIT_S, time.monotonic(), time.time()
        known, tried = earlier, False
        while True:
            self.stop.check()
            try:
                if tried:
                    # Tasks that ended well have written what they came to: it is not done again.
                    earlier = known.again(begun_at, self.look_again().of(topic).settled)
                self._process(batch, batch_id, topic, earlier, duplicates)
                return
            except Exception as error:
                fault = fault_of(error)
                if not isinstance(fault, EnvironmentFault) or isinstance(fault, LockLost):
                    raise
                if self.once and time.monotonic() - held_since > _ONCE_HOLD_S:
                    raise fault from error
                self.progress.held(topic, fault, wait_s)
            self.stop.wait(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
            if topic == records.INTENTS:
                self.replayed = Replayed(dict(self._settled), time.time()).beside(self.replayed)
            tried = True

    def _process(
        self, batch: DataFrame, batch_id: int, topic: str, earlier: SentBefore, duplicates: Duplicates
    ) -> None:
        # Who has lost the lock judges nothing more: another reaper may be settling the same range.
        started = time.monotonic()
        self.lock.check()
        # After Spark has fixed the range and before any of it is judged: a verdict as of an older barrier
        # could miss a successor that was issued before the intent was written.
        barrier = self._barrier()
        counts = self.spark.sparkContext.accumulator(Counts(), CountsParam())
        first = topic == records.INTENTS
        tasks = self.spark.sparkContext.defaultParallelism
        plan = TaskPlan(
            self.settings,
            barrier.topic_id,
            barrier.log_offset,
            tuple(barrier.ends),
            topic=topic,
            deferred_topic_id="" if first else self.delay_queue.place.topic_id,
            delays=tuple(self.delay_queue.delays),
            tasks=tasks,
            earlier=earlier,
            # The delay queue is where held buckets are tried again.
            held=self.held.current(time.monotonic()) if first else {},
            replayed=self.replayed,
            duplicates=duplicates,
            holder=self.lock.holder,
        )
        # One task for each core, which reads its partitions one after the other, without a shuffle: at the
        # start and the end of each task the store idles, and a slow bucket holds up each for a slice.
        rows = batch.coalesce(tasks).mapInArrow(make_task(plan, counts.add), ROW_SPARK_SCHEMA)
        # The one action: it runs the tasks, and returns when Kafka has acknowledged every row. A crash before
        # that leaves the offsets where they are: the next start judges the same range the same way, and
        # verifies what this one may have deleted. A second action would read Kafka again, and delete twice.
        (
            rows.write.format("kafka")
            .options(**kafka_options(self.settings))
            .option("kafka.acks", "all")
            .option("kafka.enable.idempotence", "true")
            .option("kafka.compression.type", "lz4")
            # The client's own limit of 1 MB is below what the topics take: one large dead letter would end
            # every try of its micro-batch.
            .option("kafka.max.request.size", str(_LARGEST_ROW))
            .option("kafka.buffer.memory", str(2 * _LARGEST_ROW))
            .save()
        )
        # Before the offsets are committed: while this one was paused another one may have come further.
        self.lock.check()
        with self._guard:
            met, now = counts.value, time.monotonic()
            for change in self.held.note(met.failing, met.healthy, now, met.said):
                self.progress.bucket(change)
            held_for_s = self.held.held_for_s(met.failing, now)
            self.progress.settled(batch_id, topic, met, barrier.ends, now - started, held_for_s)

    def _barrier(self) -> BarrierAnswer:
        """Make a barrier that carries the oldest positions without a final outcome."""
        BARRIERS.inc()
        # In this order: what was settled by then and still waits was written to the delay queue before.
        with self._guard:
            settled = dict(self._settled)
        oldest = self.delay_queue.oldest()
        self.progress.waiting(self.delay_queue.since_s())
        partitions = max([*settled, *oldest], default=-1) + 1
        offsets = tuple(min(settled.get(p, 0), oldest.get(p, _EVERYTHING)) for p in range(partitions))
        with IssuerClient.of(self.settings) as issuer:
            try:
                answer = issuer.barrier(PartitionOffsets(self.binding.topic_id, offsets))
            except RequestRefused:
                # An issuer of another topic refuses positions of this one: then that is what has to be
                # reported.
                self._check_topic(issuer.validate([]).topic_id)
                raise
        self._check_topic(answer.topic_id)
        return answer

    def _check_topic(self, judged: str) -> None:
        if judged != self.binding.topic_id:
            raise EnvironmentFault(
                f"the issuer judges another intents topic: {judged}",
                hint="docs/operating.md, 'Two views of the intents topic'",
            )
