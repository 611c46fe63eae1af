"""The one reader of topics: partitions from given offsets, without a consumer group.

Nothing is ever committed to Kafka: who reads knows by himself how far he is. Where retention has passed the
place at which reading should start it is an error, never a skip.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from sexton.schemas.errors import KafkaUnavailable, NoSuchTopic
from sexton.schemas.kafka.leaders import ask_who_leads, countdown
from sexton.schemas.settings import Settings

__all__ = ["CUT_OFF", "NOW", "CutOff", "Reader", "place"]

_T = TypeVar("_T")
CUT_OFF = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
"""What Kafka says of a place that the topic does not have, any more or yet."""
NOW = 2**63 - 1
"""As the end of a partition: the one that is met first."""
_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_SLICE_S = 0.2  # longest single wait inside the C library, so that Ctrl-C is heard
_BATCH = 1000


class CutOff(KafkaUnavailable):
    """The topic does not have the place where reading should start."""


class Reader:
    """Reads one topic; every method raises KafkaUnavailable, whose message starts with `what`.

    `positions` is where each partition is read next, set by the caller before the first record. `properties`
    are librdkafka's, on top of the reader's own. Not safe for two threads.
    """

    def __init__(self, settings: Settings, topic: str, group: str, what: str, **properties: Any) -> None:
        self.positions: dict[int, int] = {}
        self._topic = topic
        self._what = what
        self._consumer = Consumer(
            settings.kafka(
                **{
                    "group.id": group,  # required by the client; there is no such group
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "error",  # what is cut off must stop its reader, not be skipped
                    "isolation.level": "read_committed",
                    "allow.auto.create.topics": False,
                    # The end is reported by an empty fetch, which the broker keeps for half a second else.
                    "fetch.wait.max.ms": 10,
                    **({} if "logger" in properties else {"log_level": 0}),  # errors are raised
                    **properties,
                }
            )
        )

    def close(self) -> None:
        """Free the consumer."""
        self._consumer.close()

    def partitions(self, timeout_s: float) -> list[int]:
        """Return the topic's partitions; raises NoSuchTopic."""

        def ask(left_s: float) -> list[int]:
            found = self._consumer.list_topics(self._topic, timeout=left_s).topics[self._topic]
            if found.error is not None:
                raise KafkaException(found.error)
            return sorted(found.partitions)

        return self._ask(ask, timeout_s)

    def bounds(self, partition: int, timeout_s: float) -> tuple[int, int]:
        """Return the first offset of a partition and its end; raises NoSuchTopic."""
        at = TopicPartition(self._topic, partition)
        return self._ask(lambda left_s: self._consumer.get_watermark_offsets(at, timeout=left_s), timeout_s)

    def since(self, instants_s: Mapping[int, float], timeout_s: float) -> dict[int, int]:
        """Return the offset of the first record that is not older, by partition; none where all are."""
        asked = [TopicPartition(self._topic, p, max(0, int(at * 1000))) for p, at in instants_s.items()]

        def ask(left_s: float) -> dict[int, int]:
            found = self._consumer.offsets_for_times(asked, timeout=left_s)
            for at in found:
                if at.error is not None:  # else a partition that was not answered would have nothing so new
                    raise KafkaException(at.error)
            return {at.partition: at.offset for at in found if at.offset >= 0}

        return self._ask(ask, timeout_s)

    def assign(self, partitions: Iterable[int]) -> None:
        """Let these partitions come in, from their positions on; read them with `poll`."""
        self._consumer.assign([TopicPartition(self._topic, p, self.positions[p]) for p in partitions])

    def poll(self, timeout_s: float) -> list[Message]:
        """Return what has come, errors of Kafka's among it; waits only for the first message."""
        # `consume` alone would wait until its batch is full.
        try:
            first = self._consumer.poll(timeout_s)
            return [] if first is None else [first, *self._consumer.consume(_BATCH, 0)]
        except KafkaException as error:
            raise self._unavailable(error) from error

    def read(
        self,
        ends: Mapping[int, int],
        *,
        answer_s: float = math.inf,
        wait: Callable[[], float] = lambda: _SLICE_S,
    ) -> Iterator[Message]:
        """Yield the records of these partitions from their positions up to these offsets, or their ends.

        A record counts as read once the next one is asked for. `answer_s` bounds the time in which nothing
        comes, the caller's own not counted; `wait` gives that of a single wait, and may raise. Raises CutOff.
        """
        left = {partition for partition, end in ends.items() if self.positions[partition] < end}
        if not left:
            return
        self.assign(left)
        try:
            heard = time.monotonic()
            while left:
                batch = _that_counts(self.poll(wait()))
                if not batch and time.monotonic() - heard > answer_s:
                    count = len(left)
                    raise KafkaUnavailable(f"{self._what}: no answer in time, partitions left: {count}")
                for message in batch:
                    partition, offset = place(message)
                    ended = self._is_end(message)
                    if not ended:
                        if offset < ends[partition]:
                            yield message
                        offset += 1
                    # The end also counts where its last offsets hold no record: aborted ones, markers.
                    self.positions[partition] = max(self.positions[partition], min(offset, ends[partition]))
                    if ended or offset >= ends[partition]:
                        left.discard(partition)
                if batch:
                    heard = time.monotonic()
        finally:
            with suppress(KafkaException, RuntimeError):  # closed already
                self._consumer.unassign()

    def follow(self) -> Iterator[Message]:
        """Yield the records of all partitions from their positions on, for ever; raises CutOff."""
        self.assign(self.positions)
        while True:
            batch = _that_counts(self.poll(_SLICE_S))
            yield from (message for message in batch if not self._is_end(message))

    def _is_end(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            return True
        raise (CutOff if error.code() in CUT_OFF else KafkaUnavailable)(f"{self._what}: {error.str()}")

    def _ask(self, ask: Callable[[float], _T | None], timeout_s: float) -> _T:
        """Return what the brokers answer, asked again while leaders move; raises NoSuchTopic."""

        def question(left_s: float) -> _T:
            try:
                answer = ask(left_s)
            except KafkaException as error:
                if error.args[0].code() in _ABSENT:
                    raise NoSuchTopic(f"no such topic: {self._topic}") from error
                raise self._unavailable(error) from error
            if answer is None:
                raise KafkaUnavailable(f"{self._what}: no answer in time")
            return answer

        return ask_who_leads(question, self._look, countdown(timeout_s))

    def _look(self, timeout_s: float) -> None:
        try:
            self._consumer.list_topics(self._topic, timeout=timeout_s)
        except KafkaException as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: KafkaException) -> KafkaUnavailable:
        return KafkaUnavailable(f"{self._what}: {error.args[0].str()}")


def _that_counts(batch: Sequence[Message]) -> list[Message]:
    """Return the messages without errors that pass by themselves: the client tries again."""
    return [each for each in batch if (error := each.error()) is None or not error.retriable()]


def place(message: Message) -> tuple[int, int]:
    """Return partition and offset of a message."""
    return cast(int, message.partition()), cast(int, message.offset())
