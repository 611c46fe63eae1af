"""A dry run: the same decode and judge over the same backlog, and nothing is written anywhere (I5).

No barrier, as that is an event in the issuer's log; no lock, no checkpoint, no delete, no receipt. It reads
from where the checkpoint stands to the end, and judges as of the log's end: what a reaper would decide that
started now.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import cast

from pyspark.sql import SparkSession

from sexton.issuer.client import IssuerClient
from sexton.schemas import events, records
from sexton.schemas.cluster import Cluster
from sexton.schemas.codec import Codec
from sexton.schemas.errors import UndecodableRecord
from sexton.schemas.registry import open_codec
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.reaper.checkpoint import Checkpoint, check_binding
from sexton.streaming_jobs.reaper.plan import TaskPlan
from sexton.streaming_jobs.reaper.preflight import check_topics
from sexton.streaming_jobs.reaper.task import ROW_SPARK_SCHEMA, make_task
from sexton.streaming_jobs.spark import kafka_source_options

__all__ = ["Decision", "dry_run", "named", "word_of"]

_EARLIEST = -2  # Spark's number for the first offset that is there
_UNBOUNDED = 2**63 - 1

Decision = events.Outcome | events.DeadLetter | events.DeferredIntent


def dry_run(
    settings: Settings, spark: SparkSession, skipped: Callable[[int], None] = lambda number: None
) -> Iterator[Decision]:
    """Yield what the reaper would write for each record of the backlog.

    Records without a value yield nothing; `skipped` is told at the end how many they were. Raises what the
    reaper's start raises.
    """
    cluster = Cluster(settings)
    binding = check_topics(settings, cluster)
    committed: dict[int, int] = {}
    if settings.checkpoint:
        checkpoint = Checkpoint(spark, settings.checkpoint, binding.topic)
        check_binding(checkpoint.binding(), binding)
        committed = checkpoint.committed()
    partitions = cluster.topics([binding.topic])[binding.topic].found.partitions
    starting = {str(p): committed.get(p, _EARLIEST) for p in range(partitions)}
    with IssuerClient.of(settings) as issuer:
        log_offset = issuer.validate([]).log_offset
    plan = TaskPlan(settings, binding.topic_id, log_offset, (_UNBOUNDED,) * partitions, dry_run=True)
    backlog = (
        spark.read.format("kafka")
        .options(**kafka_source_options(settings, binding.topic))
        .option("startingOffsets", json.dumps({binding.topic: starting}))
        .option("endingOffsets", "latest")
        .load()
    )
    left_out = spark.sparkContext.accumulator(0)
    task = make_task(plan, lambda counts: left_out.add(counts.intents["skipped"]))
    rows = backlog.mapInArrow(task, ROW_SPARK_SCHEMA)
    codec = open_codec(settings)
    for row in rows.select("value").toLocalIterator():
        yield cast(
            Decision,
            codec.decode(bytes(row.value), events.Outcome, events.DeadLetter, events.DeferredIntent),
        )
    skipped(left_out.value)


def named(decision: Decision, codec: Codec) -> str | None:
    """Return the id of the intent, of one that waits as its own bytes say it; None when none can be read."""
    if not isinstance(decision, events.DeferredIntent):
        return decision.intent_id
    try:
        return codec.decode(decision.raw_value, events.DeletionIntent).intent_id
    except UndecodableRecord:
        return None


def word_of(decision: Decision) -> str:
    """Return what would become of a record, in one word."""
    match decision:
        case events.Outcome():
            return decision.outcome.value
        case events.DeadLetter():
            return events.OutcomeWord.DEAD_LETTERED.value
        case _:
            return records.DEFERRED
