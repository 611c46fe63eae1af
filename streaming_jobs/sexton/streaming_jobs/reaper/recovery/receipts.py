"""What may have been processed before this start: records that were begun and not committed.

Their deletes may have been sent, and some of their receipts written. The receipts are looked through for
one outcome: where an object was `changed` then, it still is; where no receipt says so and another object
stands under the key now, the one that was meant may have gone by our own hand.
"""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, TopicPartition

from sexton.schemas import events, records
from sexton.schemas.cluster import Cluster
from sexton.schemas.codec import Codec
from sexton.schemas.errors import KafkaUnavailable, UndecodableRecord
from sexton.schemas.kafka_reading import read_to_end
from sexton.schemas.registry import open_codec
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.reaper.deferred.delay_queue import DelayQueue, parse_begun
from sexton.streaming_jobs.reaper.recovery.attempts import SentBefore
from sexton.streaming_jobs.reaper.recovery.binding import Binding
from sexton.streaming_jobs.reaper.recovery.checkpoint import Checkpoint

__all__ = ["sent_before", "waited_before"]

_MARGIN_S = 60.0  # between the clocks of the checkpoint's file system and of the brokers
_ANSWER_S = 10.0


def sent_before(settings: Settings, checkpoint: Checkpoint, binding: Binding, cluster: Cluster) -> SentBefore:
    """Return what may have been processed before; raises KafkaUnavailable, CheckpointRefused."""
    planned = checkpoint.planned()
    if planned is not None:
        ends, begun_at = planned
        return SentBefore(ends, _changed_since(settings, begun_at - _MARGIN_S, binding.topic_id), begun_at)
    if not checkpoint.committed():
        outcomes = settings.topic(records.OUTCOMES)
        if any(cluster.latest(outcomes).values()):
            # A new checkpoint where a reaper has worked before: all that is there may be done already.
            return SentBefore(cluster.latest(binding.topic), None)
    return SentBefore()


def waited_before(
    settings: Settings, checkpoint: Checkpoint, binding: Binding, delay_queue: DelayQueue
) -> SentBefore:
    """Return what of the delay queue may have been processed and was not committed; raises as the above."""
    ends, since_s = parse_begun(checkpoint.waiting_begun(), delay_queue.place)
    if all(end <= delay_queue.done.get(partition, 0) for partition, end in ends.items()):
        return SentBefore()
    return SentBefore(ends, _changed_since(settings, since_s - _MARGIN_S, binding.topic_id), since_s)


def _changed_since(settings: Settings, since_s: float, topic_id: str) -> frozenset[tuple[int, int]]:
    """Return the positions of intents of which a receipt since then says that a key was `changed`."""
    topic, codec = settings.topic(records.OUTCOMES), open_codec(settings)
    consumer = Consumer(
        settings.kafka(
            **{
                "group.id": f"{settings.topic_prefix}receipts",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,  # an empty fetch tells the end
                "log_level": 0,
            }
        )
    )
    try:
        partitions = consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic].partitions
        asked = [TopicPartition(topic, p, max(0, int(since_s * 1000))) for p in partitions]
        found = [at for at in consumer.offsets_for_times(asked, timeout=_ANSWER_S) if at.offset >= 0]
        if not found:
            return frozenset()
        consumer.assign(found)
        return frozenset(_read(consumer, codec, {at.partition for at in found}, topic_id))
    except KafkaException as error:
        raise KafkaUnavailable(f"the receipts cannot be read: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _read(consumer: Consumer, codec: Codec, left: set[int], topic_id: str) -> set[tuple[int, int]]:
    changed: set[tuple[int, int]] = set()
    for message in read_to_end(consumer, left, "the receipts", answer_s=_ANSWER_S):
        try:
            outcome = codec.decode(message.value() or b"", events.Outcome)
        except UndecodableRecord:
            continue  # not ours: it says nothing of any key
        at = outcome.position
        if at.topic_id == topic_id and outcome.counts.get(events.OutcomeKind.CHANGED.value):
            changed.add((at.partition, at.offset))
    return changed
