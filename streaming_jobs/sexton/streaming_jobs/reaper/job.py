"""The reaper's query: first records from the intents topic, in micro-batches that the checkpoint remembers.

Beside it runs the delay queue, which brings back what was deferred. What each micro-batch does, and in which
order, stands in `micro_batch`.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sexton.schemas import records
from sexton.schemas.errors import EnvironmentFault, InvalidSettings
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.masking import masked
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.reaper.availability import ExecutorWatch
from sexton.streaming_jobs.reaper.batch import MicroBatches
from sexton.streaming_jobs.reaper.deferred.consumer import DeferredConsumer
from sexton.streaming_jobs.reaper.deferred.delay_queue import DelayQueue, Place, waiting_text
from sexton.streaming_jobs.reaper.executors import check_executors
from sexton.streaming_jobs.reaper.faults import QueryFailed, fault_of, query_failed
from sexton.streaming_jobs.reaper.judge import parse_allow
from sexton.streaming_jobs.reaper.preflight import (
    bind_checkpoint,
    check_nothing_lost,
    check_place,
    check_topics,
    deferred_place,
    open_delay_queue,
)
from sexton.streaming_jobs.reaper.progress import Progress
from sexton.streaming_jobs.reaper.recovery.attempts import Replayed, SentBefore
from sexton.streaming_jobs.reaper.recovery.catch_up import CatchUp
from sexton.streaming_jobs.reaper.recovery.checkpoint import Checkpoint
from sexton.streaming_jobs.reaper.recovery.lease import LockLost
from sexton.streaming_jobs.reaper.recovery.lock import CheckpointLock
from sexton.streaming_jobs.reaper.recovery.receipts import Earlier, look_back, unfinished
from sexton.streaming_jobs.reaper.stop import StopFlag, StopRequested
from sexton.streaming_jobs.spark import kafka_source_options

__all__ = ["Reaper", "checkpoint_of"]

_POLL_S = 1


@dataclass(slots=True)
class Reaper:
    """The streaming job; `run` returns when it was stopped, or with `once` when all that is there is done."""

    settings: Settings
    spark: SparkSession
    stop: StopFlag
    once: bool = False
    metrics_port: int | None = None
    progress: Progress = field(default_factory=Progress)
    _failure: BaseException | None = None
    _watch: ExecutorWatch = field(init=False)

    def __post_init__(self) -> None:
        self._watch = ExecutorWatch(self.spark, self.progress.note)

    def run(self) -> None:
        """Work until stopped.

        Raises the fault that ended the query: EnvironmentFault when nothing advanced and a new try may help
        (LockLost among them), CheckpointLocked, CheckpointRefused, TopicsUnsafe and ExecutorsUnfit before
        anything is read.
        """
        path = checkpoint_of(self.settings)
        if warning := check_place(path, parse_allow(self.settings.allow)):
            self.progress.note("checkpoint_in_reach", checkpoint=masked(path), warning=warning)
        cluster = Cluster(self.settings)
        binding = check_topics(self.settings, cluster, self.progress.note)
        try:
            check_executors(self.settings, self._watch, lambda: self.stop.is_set)
        except StopRequested:
            return
        checkpoint = Checkpoint(self.spark, path, binding.topic)
        lock = CheckpointLock(self.settings, checkpoint.identity())
        lock.acquire()
        try:
            # Under the lock, before Spark writes: offsets of a checkpoint that is bound to nothing prove
            # nothing after a topic was re-created.
            place = deferred_place(self.settings, cluster)
            start, is_new = bind_checkpoint(self.settings, checkpoint, binding, cluster, place)
            if is_new:
                self.progress.note(
                    "new_checkpoint", path=masked(path), reads_from="the beginning of each partition"
                )
            self.progress.start(start)
            delay_queue = self._open_delay_queue(checkpoint, place, cluster)
            try:
                # Before the query: once its first micro-batch is committed nobody can tell any more what of
                # it an attempt before this start may have sent.
                left = unfinished(checkpoint, delay_queue)
                earlier = look_back(self.settings, cluster, binding, left, start, delay_queue)

                def look_again() -> Earlier:
                    left = replace(unfinished(checkpoint, delay_queue), catch_up=CatchUp())
                    reached = dict(self.progress.total.reached)
                    return look_back(self.settings, cluster, binding, left, reached, delay_queue)

                batches = MicroBatches(
                    self.settings,
                    self.spark,
                    self.stop,
                    self.once,
                    binding,
                    lock,
                    delay_queue,
                    self.progress,
                    look_again,
                )
                if earlier.intents.below:
                    batches.replayed = Replayed(start, time.time())
                deferred_consumer = DeferredConsumer(batches, delay_queue, checkpoint, earlier.deferred)
                self._run_queries(path, batches, deferred_consumer, earlier.intents)
            except QueryFailed:
                with suppress(OSError, Py4JError):  # a JVM that is gone has no checkpoint to look into
                    check_nothing_lost(checkpoint, binding, delay_queue, cluster)
                raise
            finally:
                delay_queue.close()
        except Exception as error:
            if not isinstance(error, EnvironmentFault) and lock.is_lost():
                # Two at work get in each other's way in Spark's checkpoint: that is not what has to be
                # reported.
                raise LockLost from error
            raise
        finally:
            lock.release()

    def _open_delay_queue(self, checkpoint: Checkpoint, place: Place, cluster: Cluster) -> DelayQueue:
        text = checkpoint.waiting()
        delay_queue = open_delay_queue(self.settings, text, place, cluster)
        if text is None:
            # Before anything waits: later nobody could know a topic that was re-created, or cut by retention.
            checkpoint.commit_waiting(waiting_text(place, delay_queue.done))
        return delay_queue

    def _run_queries(
        self, path: str, batches: MicroBatches, deferred_consumer: DeferredConsumer, earlier: SentBefore
    ) -> None:
        query = self._start(path, batches, earlier)
        deferred_consumer.on_failure = query.stop
        self.progress.note("ready", checkpoint=masked(path), metrics_port=self.metrics_port)
        if not self.once:
            deferred_consumer.start()
        try:
            self._await(query)
        finally:
            deferred_consumer.end()
        if deferred_consumer.failure is not None:
            raise fault_of(deferred_consumer.failure) or query_failed(
                deferred_consumer.failure, stopping=self.stop.is_set
            ) from deferred_consumer.failure
        if self.once and not self.stop.is_set:
            self._drain(deferred_consumer)

    def _drain(self, deferred_consumer: DeferredConsumer) -> None:
        try:
            deferred_consumer.drain()
        except StopRequested:
            return
        except Exception as error:
            raise fault_of(error) or query_failed(error, stopping=self.stop.is_set) from error

    def _await(self, query: StreamingQuery) -> None:
        try:
            while not query.awaitTermination(_POLL_S):
                is_active = query.status["isTriggerActive"]
                self._watch.look(is_active)
                if self.stop.is_set and not is_active:
                    query.stop()
        except Exception as error:
            # Spark hides what foreachBatch raised inside its own exception; ours is the one to report.
            failure = self._failure or error
            if isinstance(failure, StopRequested):
                return
            raise fault_of(failure) or query_failed(failure, stopping=self.stop.is_set) from error

    def _start(self, path: str, batches: MicroBatches, earlier: SentBefore) -> StreamingQuery:
        source = (
            self.spark.readStream.format("kafka")
            .options(**kafka_source_options(self.settings, self.settings.topic(records.INTENTS)))
            # Explicit, and for the first start only: afterwards the checkpoint says where to continue.
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self.settings.reaper_intents_per_trigger)
            .load()
        )

        def process(batch: DataFrame, batch_id: int) -> None:
            try:
                batches.hold_until_done(batch, batch_id, records.INTENTS, earlier)
            except BaseException as error:
                self._failure = error
                raise

        writer = (
            source.writeStream.queryName("sexton-reaper")
            .option("checkpointLocation", path)
            .foreachBatch(process)
        )
        if self.once:
            return writer.trigger(availableNow=True).start()
        milliseconds = int(self.settings.reaper_trigger_s * 1000)
        return writer.trigger(processingTime=f"{milliseconds} milliseconds").start()


def checkpoint_of(settings: Settings) -> str:
    """Return the checkpoint's path; raises InvalidSettings without one."""
    if not settings.checkpoint:
        raise InvalidSettings(
            "no checkpoint is set", hint="set SEXTON_CHECKPOINT to a path that Spark can write"
        )
    return settings.checkpoint
