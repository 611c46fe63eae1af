"""A dry run: the same decode and judge over the same backlog, and nothing is written anywhere (I5).

No barrier, as that is an event in the issuer's log; no lock, no checkpoint, no delete, no receipt. It reads
from where the checkpoint stands to the end, and judges as of the log's end: what a reaper would decide that
started now.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import cast

from pyspark.sql import SparkSession

from sexton.issuer.client import IssuerClient
from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.errors import UndecodableRecord
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.registry import open_codec
from sexton.schemas.settings import Settings
from sexton.schemas.text import counted
from sexton.streaming_jobs.reaper.plan import TaskPlan
from sexton.streaming_jobs.reaper.preflight import check_topics, deferred_place, open_delay_queue
from sexton.streaming_jobs.reaper.recovery.attempts import SentBefore
from sexton.streaming_jobs.reaper.recovery.binding import Binding, check_binding
from sexton.streaming_jobs.reaper.recovery.checkpoint import Checkpoint
from sexton.streaming_jobs.reaper.recovery.receipts import Unfinished, catch_up_of, look_back, unfinished
from sexton.streaming_jobs.reaper.task import ROW_SPARK_SCHEMA, make_task
from sexton.streaming_jobs.spark import kafka_source_options

__all__ = ["About", "Decision", "about", "dry_run", "keys_by_kind", "kind_of", "line_of", "summed"]

_UNBOUNDED = 2**63 - 1

Decision = events.Outcome | events.DeadLetter | events.DeferredIntent


def dry_run(
    settings: Settings, spark: SparkSession, skipped: Callable[[int], None] = lambda number: None
) -> Iterator[Decision]:
    """Yield what the reaper would write for each record of the backlog.

    Records without a value yield nothing; `skipped` is reported at the end how many they were. Raises what
    the reaper's start raises.
    """
    cluster = Cluster(settings)
    binding = check_topics(settings, cluster)
    partitions = cluster.topics([binding.topic])[binding.topic].found.partitions
    starting, earlier = _start(settings, spark, cluster, binding, partitions)
    with IssuerClient.of(settings) as issuer:
        log_offset = issuer.validate([]).log_offset
    ends = (_UNBOUNDED,) * partitions
    plan = TaskPlan(settings, binding.topic_id, log_offset, ends, dry_run=True, earlier=earlier)
    backlog = (
        spark.read.format("kafka")
        .options(**kafka_source_options(settings, binding.topic))
        .option(
            "startingOffsets", json.dumps({binding.topic: {str(p): first for p, first in starting.items()}})
        )
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


def _start(
    settings: Settings, spark: SparkSession, cluster: Cluster, binding: Binding, partitions: int
) -> tuple[dict[int, int], SentBefore]:
    """Return where a reaper would start, by partition, and what of it may have been processed before."""
    place, start = deferred_place(settings, cluster), cluster.earliest(binding.topic, partitions)
    checkpoint = Checkpoint(spark, settings.checkpoint, binding.topic) if settings.checkpoint else None
    if checkpoint is not None and checkpoint.binding() is None:
        checkpoint = None  # it would be new
    if checkpoint is not None:
        check_binding(checkpoint.binding(), binding)
        checkpoint.check_whole()
        start |= checkpoint.committed()
    text = checkpoint.waiting() if checkpoint else None
    with closing(open_delay_queue(settings, text, place, cluster)) as delay_queue:
        if checkpoint is None:
            left = Unfinished(catch_up_of(settings, cluster, binding, place))
        else:
            left = unfinished(checkpoint, delay_queue)
        return start, look_back(settings, cluster, binding, left, start, delay_queue).intents


@dataclass(frozen=True, slots=True)
class About:
    """Whose intent a decision is about; None is what cannot be read. `keys` are those that it names."""

    intent_id: str | None
    tenant: str | None
    bucket: str | None
    keys: int


def about(decision: Decision, codec: Codec) -> About:
    """Return what a decision is about, of an intent that waits as its own bytes say it."""
    match decision:
        case events.Outcome():
            return About(decision.intent_id, decision.tenant, decision.bucket or None, decision.keys)
        case events.DeadLetter():
            return About(decision.intent_id, decision.tenant, decision.bucket, len(decision.keys))
    try:
        intent = codec.decode(decision.raw_value, events.DeletionIntent)
    except UndecodableRecord:
        return About(None, None, None, 0)
    return About(intent.intent_id, intent.tenant, intent.action.place, intent.action.key_count)


def keys_by_kind(decision: Decision, keys: int) -> Mapping[str, int]:
    """Return how many of the keys would get which outcome."""
    return decision.counts if isinstance(decision, events.Outcome) else {kind_of(decision): keys}


def line_of(decision: Decision, of: About) -> str:
    """Return a decision as a line for people: where, which intent, its outcome and why, whose, and how
    much.
    """
    if isinstance(decision, events.Outcome):
        place, reason = decision.position, decision.verdict.reason
    else:
        place = decision.position if isinstance(decision, events.DeadLetter) else decision.first
        reason = decision.reason
    named = (of.intent_id, kind_of(decision), reason, of.tenant, of.bucket, counted(of.keys, "key"))
    return "  ".join([f"{place.partition}/{place.offset}", *(name or "-" for name in named)])


def summed(words: Counter[str], noun: str) -> str:
    """Return how many there are, and how many of each outcome."""
    return " ".join(
        [counted(words.total(), noun), *(f"{kind}={n}" for kind, n in sorted(words.items()) if n)]
    )


def kind_of(decision: Decision) -> str:
    """Return what would become of a record, in one outcome."""
    match decision:
        case events.Outcome():
            return decision.outcome.value
        case events.DeadLetter():
            return events.OutcomeKind.DEAD_LETTERED.value
        case _:
            return records.DEFERRED
