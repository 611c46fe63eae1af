"""What the driver gives each task of a micro-batch, and what must hold before any of it is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sexton.schemas import records
from sexton.schemas.errors import EnvironmentFault
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.reaper import clients
from sexton.streaming_jobs.reaper.deferred.pending import Duplicates
from sexton.streaming_jobs.reaper.recovery.attempts import Replayed, SentBefore
from sexton.streaming_jobs.reaper.recovery.lease import Holder

__all__ = ["TaskPlan", "check_below", "check_topic"]


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """What the driver gives each task of a micro-batch: settings, and the barrier as of which it judges.

    `topic` is what is read, `intents` or `deferred`, without the prefix. `earlier` says of its records which
    may have been processed before, `replayed` of which first records a copy may be out of date. `held` names
    buckets that were closed lately, and why. `holder` holds the lock while this is processed, None where
    nothing is sent. `duplicates` are records of which another copy continues, and those others.
    """

    settings: Settings
    topic_id: str
    log_offset: int
    ends: tuple[int, ...]
    dry_run: bool = False
    topic: str = records.INTENTS
    deferred_topic_id: str = ""
    delays: tuple[float, ...] = (0.0,)
    tasks: int = 1
    earlier: SentBefore = field(default_factory=SentBefore)
    held: Mapping[str, str] = field(default_factory=dict)
    replayed: Replayed | None = None
    holder: Holder | None = None
    duplicates: Duplicates = field(default_factory=Duplicates)


def check_topic(plan: TaskPlan) -> None:
    """Check the topic's id once a batch has come, before any of it is judged.

    Had it been re-created after the barrier, these records would stand at offsets of the new topic, and
    windows of the old one would let a stale owner's delete pass.
    """
    topic = plan.settings.topic(records.INTENTS)
    found = clients.cluster(plan.settings).topic_id(topic)
    if found != plan.topic_id:
        raise EnvironmentFault(f"the intents topic was re-created: {topic} has id {found}")


def check_below(plan: TaskPlan, partition: int, offset: int) -> None:
    """Hold the micro-batch unless a place lies below its barrier: what came later may not be judged by it."""
    if partition >= len(plan.ends) or offset >= plan.ends[partition]:
        raise EnvironmentFault(
            f"the micro-batch does not lie below its barrier: partition={partition} offset={offset}"
        )
