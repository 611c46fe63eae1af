"""Reading partitions of a topic up to the ends that they have now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, KafkaError, Message

from sexton.schemas.errors import KafkaUnavailable

__all__ = ["read_to_end"]

_BATCH = 1000
_SLICE_S = 0.02


def read_to_end(
    consumer: Consumer,
    left: set[int],
    what: str,
    ended: Callable[[int, int], None] = lambda partition, offset: None,
    *,
    answer_s: float = 10.0,
) -> Iterator[Message]:
    """Yield the records of a consumer's partitions until it has met the end of each that is `left`.

    `ended` is called with a partition and its end offset. The consumer is assigned, with
    `enable.partition.eof`. Raises KafkaUnavailable, naming `what`, for an error of Kafka's, and where nothing
    comes for `answer_s` seconds.
    """
    deadline = time.monotonic() + answer_s
    while left:
        if time.monotonic() > deadline:
            raise KafkaUnavailable(f"{what} cannot be read: no answer in time")
        for message in consumer.consume(_BATCH, timeout=_SLICE_S):
            deadline = time.monotonic() + answer_s
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition() or 0)
                ended(message.partition() or 0, message.offset() or 0)
            else:
                raise KafkaUnavailable(f"{what} cannot be read: {error.str()}")
