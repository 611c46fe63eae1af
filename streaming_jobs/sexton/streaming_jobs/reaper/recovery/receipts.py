"""What may have been processed before this start: records that were begun and not committed.

Their deletes may have been sent, and some of their receipts written. The receipts are looked through for
one outcome: where an object was `changed` then, it still is; where no receipt says so and another object
stands under the key now, the one that was meant may have gone by our own hand.
"""

from __future__ import annotations

from contextlib import closing

from sexton.schemas import events, records
from sexton.schemas.errors import UndecodableRecord
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.kafka.reader import NOW, Reader
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
    codec, changed = open_codec(settings), set()
    topic, group = settings.topic(records.OUTCOMES), f"{settings.topic_prefix}receipts"
    with closing(Reader(settings, topic, group, "the receipts cannot be read")) as reader:
        partitions = reader.partitions(_ANSWER_S)
        reader.positions = reader.since(dict.fromkeys(partitions, since_s), _ANSWER_S)
        for message in reader.read(dict.fromkeys(reader.positions, NOW), answer_s=_ANSWER_S):
            try:
                outcome = codec.decode(message.value() or b"", events.Outcome)
            except UndecodableRecord:
                continue  # not ours: it says nothing of any key
            at = outcome.position
            if at.topic_id == topic_id and outcome.counts.get(events.OutcomeKind.CHANGED.value):
                changed.add((at.partition, at.offset))
    return frozenset(changed)
