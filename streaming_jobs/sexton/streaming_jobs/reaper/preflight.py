"""What must hold before the reaper reads its first record; each refusal says what to do."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sexton.schemas import records
from sexton.schemas.errors import InvalidSettings, SextonError
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.registry import open_codec
from sexton.schemas.settings import Settings
from sexton.schemas.topics import TOPICS, compare
from sexton.streaming_jobs.reaper.deferred.delay_levels import levels
from sexton.streaming_jobs.reaper.deferred.delay_queue import (
    DelayQueue,
    Place,
    parse_uncertain,
    parse_waiting,
)
from sexton.streaming_jobs.reaper.judge import Allowed
from sexton.streaming_jobs.reaper.recovery.binding import Binding, check_binding, check_retention
from sexton.streaming_jobs.reaper.recovery.checkpoint import Checkpoint
from sexton.streaming_jobs.reaper.recovery.receipts import catch_up_of

__all__ = [
    "TopicsUnsafe",
    "bind_checkpoint",
    "check_nothing_lost",
    "check_place",
    "check_topics",
    "deferred_place",
    "open_delay_queue",
]

# Rows that a topic does not take end every try of their micro-batch. With a limit below the size of a
# producer's batch it is worse: the Java client splits what was refused into the same batch, for ever.
_WRITING = frozenset({"max.message.bytes", "settings"})


class TopicsUnsafe(SextonError):
    """A topic is missing, or set up so that its offsets prove nothing."""


def _log(event: str, **values: str) -> None:
    logging.getLogger(__name__).warning("%s: %s", event, values)


def check_place(path: str, allow: Allowed) -> str | None:
    """Return a warning where intents may name what lies in the checkpoint; raise InvalidSettings where the
    allow-list names its place.
    """
    scheme, _, rest = path.partition("://")
    if scheme not in ("s3", "s3a", "s3n"):
        return None
    bucket, _, key = rest.partition("/")
    folder = f"{key.strip('/')}/".lstrip("/")
    if not allow:
        return f"SEXTON_ALLOW is empty: an intent may name what lies under {bucket}/{folder}"
    for allowed, prefix in allow:
        if allowed == bucket and (folder.startswith(prefix) or prefix.startswith(folder)):
            raise InvalidSettings(
                f"the checkpoint lies where intents may delete: {bucket}/{prefix}",
                hint="set SEXTON_CHECKPOINT to a place outside SEXTON_ALLOW, best in a bucket of its own",
            )
    return None


def check_topics(settings: Settings, cluster: Cluster, report: Callable[..., None] = _log) -> Binding:
    """Check the topics that verdicts and receipts rest on; return what a checkpoint has to be bound to.

    `report` is called for each setting that the brokers do not tell. Raises TopicsUnsafe for what is known to
    be wrong, KafkaUnavailable.
    """
    needed = (records.INTENTS, records.DEFERRED, records.OUTCOMES, records.DEAD_LETTERS)
    names = {need.name: settings.topic(need.name) for need in TOPICS if need.name in needed}
    facts, brokers = cluster.topics(list(names.values())), cluster.brokers()
    faults = []
    for need in TOPICS:
        if need.name not in names:
            continue
        topic = facts.get(names[need.name])
        problems = list(compare(names[need.name], need, topic.found if topic else None, brokers))
        for p in problems:
            if p.found == "unknown" and (need.truth or p.setting in _WRITING):
                report("unknown_setting", topic=p.topic, setting=p.setting, needed=p.needed)
        faults += [p for p in problems if p.fatal and (need.truth or topic is None or p.setting in _WRITING)]
    if faults:
        message = "; ".join(f"{p.topic}: {p.setting} is {p.found}, needed: {p.needed}" for p in faults)
        raise TopicsUnsafe(message, hint="`sexton topics check` lists every difference")
    intents = names[records.INTENTS]
    return Binding(cluster.cluster_id(), intents, facts[intents].topic_id)


def deferred_place(settings: Settings, cluster: Cluster) -> Place:
    """Return the deferred topic as it is now; `check_topics` has seen it."""
    name = settings.topic(records.DEFERRED)
    facts = cluster.topics([name])[name]
    return Place(name, facts.topic_id, facts.found.partitions)


def open_delay_queue(settings: Settings, text: str | None, place: Place, cluster: Cluster) -> DelayQueue:
    """Open the delay queue where a checkpoint's text says that it stands, else at the beginning.

    Raises CheckpointRefused, KafkaUnavailable.
    """
    delays = levels(settings.reaper_defer_delays_s, place.partitions)
    done = parse_waiting(text, place)
    codec, uncertain = open_codec(settings), parse_uncertain(text)
    delay_queue = DelayQueue(settings, place, delays, done, codec, uncertain)
    delay_queue.open(cluster.earliest(place.topic, place.partitions))
    return delay_queue


def bind_checkpoint(
    settings: Settings, checkpoint: Checkpoint, now: Binding, cluster: Cluster, place: Place
) -> tuple[dict[int, int], bool]:
    """Bind a new checkpoint, or refuse one that belongs to other topics or has lost intents to retention.

    Returns the offset by partition at which work starts, and whether the checkpoint is new. Raises
    CheckpointRefused, KafkaUnavailable.
    """
    found = checkpoint.binding()
    check_binding(found, now)
    checkpoint.check_whole()
    partitions = cluster.topics([now.topic])[now.topic].found.partitions
    earliest = cluster.earliest(now.topic, partitions)
    if found is None:
        checkpoint.begin_catch_up(catch_up_of(settings, cluster, now, place).to_text())
        checkpoint.bind(now)
        return earliest, True
    committed = checkpoint.committed()
    check_retention(committed, earliest)
    return {**earliest, **committed}, False


def check_nothing_lost(
    checkpoint: Checkpoint, now: Binding, delay_queue: DelayQueue, cluster: Cluster
) -> None:
    """Name what retention has taken from under a query that ended, as its next start would.

    Spark reports a range that is gone in words of its own, without its end. Raises CheckpointRefused,
    KafkaUnavailable, and Py4J's errors when the JVM is gone.
    """
    facts = cluster.topics([now.topic]).get(now.topic)
    if facts is None or facts.topic_id != now.topic_id:
        return  # of another topic's offsets nothing follows
    check_retention(checkpoint.committed(), cluster.earliest(now.topic, facts.found.partitions))
    delay_queue.check(cluster.earliest(delay_queue.place.topic, delay_queue.place.partitions))
