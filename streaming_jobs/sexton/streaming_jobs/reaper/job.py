"""The reaper's query. The order of steps for each micro-batch is the contract that makes it safe:

1. Spark fixes the offset range and writes it to the checkpoint.
2. The issuer makes a barrier: end offsets at or above that range, then an event in the log.
3. Tasks decode, and judge as of that barrier.
4. Tasks delete; every key is acknowledged gone.
5. Outcomes, dead letters and deferred copies are written and acknowledged by Kafka.
6. Spark commits the offsets.

A crash anywhere replays from step 2 with the same range. The barrier is then a later one, and the verdicts
are the same: windows that cover an offset below an earlier barrier never shrink below it. Without step 2 a
successor could be issued unseen between the judge's read and the delete. With 5 after 6 receipts would be
lost.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from pyspark import AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sexton.issuer.client import BarrierAnswer, IssuerClient
from sexton.schemas import records
from sexton.schemas.cluster import Cluster
from sexton.schemas.errors import EnvironmentFault, InvalidSettings
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.reaper.checkpoint import Binding, Checkpoint
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.faults import fault_of, query_failed
from sexton.streaming_jobs.reaper.lock import CheckpointLock
from sexton.streaming_jobs.reaper.preflight import bind_checkpoint, check_topics
from sexton.streaming_jobs.reaper.progress import BARRIERS, Progress
from sexton.streaming_jobs.reaper.stop import StopFlag, StopRequested
from sexton.streaming_jobs.reaper.task import ROW_SPARK_SCHEMA, TaskPlan, make_task
from sexton.streaming_jobs.spark import kafka_options

__all__ = ["Reaper", "jvm_pid", "source_options"]

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 15.0
_ONCE_HOLD_S = 60.0  # `--once` gives up after this, so that a scheduler sees that nothing advanced
_POLL_S = 1


class _CountsParam(AccumulatorParam[Counts]):
    def zero(self, value: Counts) -> Counts:
        return Counts()

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:  # noqa: N802  # Spark's name
        return value1 + value2


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
    _binding: Binding | None = None
    _lock: CheckpointLock | None = None

    def run(self) -> None:
        """Work until stopped.

        Raises the fault that ended the query: EnvironmentFault when nothing advanced and a new try may help,
        CheckpointLocked, CheckpointRefused and TopicsUnsafe before anything is read.
        """
        checkpoint = self._checkpoint_path()
        cluster = Cluster(self.settings)
        self._binding = check_topics(self.settings, cluster)
        self._lock = CheckpointLock(self.settings)
        self._lock.acquire()
        try:
            found = Checkpoint(self.spark, checkpoint, self._binding.topic)
            self.progress.start(bind_checkpoint(found, self._binding, cluster))
            query = self._start(checkpoint)
            self.progress.note("ready", checkpoint=checkpoint, metrics_port=self.metrics_port)
            self._await(query)
        finally:
            self._lock.release()

    def _await(self, query: StreamingQuery) -> None:
        try:
            while not query.awaitTermination(_POLL_S):
                if self.stop.is_set and not query.status["isTriggerActive"]:
                    query.stop()
        except Exception as error:
            # Spark hides what foreachBatch raised inside its own exception; ours is the one to report.
            failure = self._failure or error
            if isinstance(failure, StopRequested):
                return
            raise fault_of(failure) or query_failed(failure, stopping=self.stop.is_set) from error

    def _checkpoint_path(self) -> str:
        if not self.settings.checkpoint:
            raise InvalidSettings(
                "no checkpoint is set", hint="set SEXTON_CHECKPOINT to a path that Spark can write"
            )
        return self.settings.checkpoint

    def _start(self, checkpoint: str) -> StreamingQuery:
        source = (
            self.spark.readStream.format("kafka")
            .options(**source_options(self.settings))
            # Explicit, and for the first start only: afterwards the checkpoint says where to go on.
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self.settings.reaper_intents_per_trigger)
            .load()
        )
        writer = (
            source.writeStream.queryName("sexton-reaper")
            .option("checkpointLocation", checkpoint)
            .foreachBatch(self._micro_batch)
        )
        if self.once:
            return writer.trigger(availableNow=True).start()
        milliseconds = int(self.settings.reaper_trigger_s * 1000)
        return writer.trigger(processingTime=f"{milliseconds} milliseconds").start()

    def _micro_batch(self, batch: DataFrame, batch_id: int) -> None:
        try:
            self._hold_until_done(batch, batch_id)
        except BaseException as error:
            self._failure = error
            raise

    def _hold_until_done(self, batch: DataFrame, batch_id: int) -> None:
        """Work the micro-batch off; a fault of the environment holds it: offsets stay, nothing is lost."""
        wait_s, held_since = _FIRST_WAIT_S, time.monotonic()
        while True:
            self.stop.check()
            try:
                self._work_off(batch, batch_id)
                return
            except Exception as error:
                fault = fault_of(error)
                if not isinstance(fault, EnvironmentFault):
                    raise
                if self.once and time.monotonic() - held_since > _ONCE_HOLD_S:
                    raise fault from error
                self.progress.held(str(fault), wait_s)
            self.stop.wait(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    def _work_off(self, batch: DataFrame, batch_id: int) -> None:
        assert self._binding is not None
        assert self._lock is not None
        started = time.monotonic()
        self._lock.check()
        barrier = self._barrier()
        if barrier.topic_id != self._binding.topic_id:
            raise EnvironmentFault(f"the issuer judges another intents topic: {barrier.topic_id}")
        counts = self.spark.sparkContext.accumulator(Counts(), _CountsParam())
        plan = TaskPlan(self.settings, barrier.topic_id, barrier.log_offset, tuple(barrier.ends))
        rows = batch.mapInArrow(make_task(plan, counts.add), ROW_SPARK_SCHEMA)
        # The one action: it runs the tasks, and returns when Kafka has acknowledged every row.
        (
            rows.write.format("kafka")
            .options(**kafka_options(self.settings))
            .option("kafka.acks", "all")
            .option("kafka.enable.idempotence", "true")
            .option("kafka.compression.type", "lz4")
            .save()
        )
        self.progress.settled(batch_id, counts.value, barrier.ends, time.monotonic() - started)

    def _barrier(self) -> BarrierAnswer:
        BARRIERS.inc()
        with IssuerClient.of(self.settings) as issuer:
            return issuer.barrier()


def source_options(settings: Settings) -> dict[str, str]:
    """Return how the intents topic is read, by the job and by a dry run."""
    return {
        **kafka_options(settings),
        "subscribe": settings.topic(records.INTENTS),
        # A range that is no longer there is reported, never skipped.
        "failOnDataLoss": "true",
        "kafka.isolation.level": "read_committed",
    }


def jvm_pid(spark: SparkSession) -> int | None:
    """Return the pid of the session's JVM when this process started it, None under spark-submit."""
    gateway: Any = spark.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    return None if process is None else int(process.pid)
