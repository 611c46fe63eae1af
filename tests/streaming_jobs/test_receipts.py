"""What may have been worked on before this start, and what its receipts and copies still say of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.kafka import reader
from sexton.schemas.settings import load
from sexton.streaming_jobs.reaper.deferred.delay_queue import Place, begun_text
from sexton.streaming_jobs.reaper.recovery.attempts import Replayed, SentBefore
from sexton.streaming_jobs.reaper.recovery.binding import Binding
from sexton.streaming_jobs.reaper.recovery.receipts import sent_before, waited_before

SETTINGS = load({})
BINDING = Binding("cluster", SETTINGS.topic(records.INTENTS), "id")
PLACE = Place("deferred", "d", 2)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("partition", "offset", "written_s", "covered"),
    [
        (0, 10, 900, True),
        (0, 9, 900, False),
        (1, 10**9, 1_050, True),
        (0, 10, 1_061, False),
        (7, 0, 900, True),
    ],
    ids=["at the start", "settled before", "clocks differ", "written since", "a new partition"],
)
def test_which_copies_may_be_out_of_date(partition: int, offset: int, written_s: int, covered: bool) -> None:
    """Those of records that were read once more, and written before that."""
    replayed = Replayed({0: 10, 1: 0}, 1_000.0)

    assert replayed.covers(events.Position("t", partition, offset), written_s * 1_000_000) is covered


def test_two_replays_are_one_with_the_lower_start() -> None:
    """The later instant and the lower offsets count."""
    one, other = Replayed({0: 10, 1: 5}, 1_000.0), Replayed({0: 3, 2: 7}, 900.0)

    assert one.beside(other) == other.beside(one) == Replayed({0: 3, 1: 0, 2: 0}, 1_000.0)
    assert one.beside(None) == one


def outcome(offset: int, topic_id: str = "id", **counts: int) -> bytes:
    """A receipt of an intent at this offset, with these outcomes."""
    verdict = events.Verdict(events.VerdictResult.PASS, "pass", "", None)
    place = events.Position(topic_id, 0, offset)
    kind = events.OutcomeKind(next(iter(counts)))
    return Codec().encode(
        events.Outcome("i", "t", "b", kind, sum(counts.values()), counts, [], verdict, place, [], NOW)
    )


RECEIPTS = [
    outcome(3, changed=1),
    outcome(4, deleted=1),
    outcome(5, "another", changed=1),
    b"not a receipt",
    outcome(6, refused=1, deleted=1, changed=1),
    outcome(7, refused=1, changed=0),
]
CHANGED = frozenset([(0, 3), (0, 6)])


class Consumer:
    """Two partitions of receipts: one has some since the instant that is asked for."""

    asked: set[int]

    def __init__(self, config: dict[str, Any]) -> None:
        assert config["isolation.level"] == "read_committed"
        self.left = [*((value, None) for value in RECEIPTS), (None, KafkaError._PARTITION_EOF)]

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Two partitions."""
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=[0, 1], error=None)})

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """The second one has nothing so new."""
        Consumer.asked = {at.offset for at in asked}
        return [TopicPartition(at.topic, at.partition, -1 if at.partition else 17) for at in asked]

    def assign(self, found: list[TopicPartition]) -> None:
        """Read the first one from there."""
        assert [(at.partition, at.offset) for at in found] == [(0, 17)]

    def consume(self, count: int, timeout: float) -> list[Any]:
        """Nothing more at the same time."""
        return []

    def unassign(self) -> None:
        """Nothing more is wanted."""

    def poll(self, timeout: float) -> Any:
        """One at a time."""
        value, code = self.left.pop(0)
        error = None if code is None else KafkaError(code)
        where = {"partition": lambda: 0, "offset": lambda: 0}
        return SimpleNamespace(**where, value=lambda: value, error=lambda: error)

    def close(self) -> None:
        """Nothing to leave."""


def started(planned: tuple[dict[int, int], float] | None, committed: bool, receipts: int) -> SentBefore:
    """What may have been worked on, after a start with this checkpoint and so many receipts."""
    checkpoint: Any = SimpleNamespace(planned=lambda: planned, committed=lambda: committed)
    ends = {SETTINGS.topic(records.OUTCOMES): {0: receipts}, BINDING.topic: {0: 9}}
    cluster: Any = SimpleNamespace(latest=ends.__getitem__)
    return sent_before(SETTINGS, checkpoint, BINDING, cluster)


def returned(begun: dict[int, int] | None, done: dict[int, int]) -> SentBefore:
    """What of the delay queue may have been worked on, where this was begun and that was done."""
    text = None if begun is None else begun_text(PLACE, begun, 1_000.0)
    checkpoint: Any = SimpleNamespace(waiting_begun=lambda: text)
    delay_queue: Any = SimpleNamespace(place=PLACE, done=done)
    return waited_before(SETTINGS, checkpoint, BINDING, delay_queue)


@pytest.mark.parametrize(
    ("asks", "expected"),
    [
        (lambda: started(({0: 5}, 1_000.0), True, 1), SentBefore({0: 5}, CHANGED, 1_000.0)),
        (lambda: started(None, True, 1), SentBefore()),
        (lambda: started(None, False, 1), SentBefore({0: 9}, None)),
        (lambda: started(None, False, 0), SentBefore()),
        (lambda: returned({0: 5, 1: 7}, {0: 5, 1: 6}), SentBefore({0: 5, 1: 7}, CHANGED, 1_000.0)),
        (lambda: returned({0: 5, 1: 7}, {0: 5, 1: 7}), SentBefore()),
        (lambda: returned(None, {0: 5}), SentBefore()),
    ],
    ids=[
        "begun and not committed",
        "all committed",
        "a new checkpoint where a reaper worked",
        "a new installation",
        "begun of the delay queue",
        "all of the delay queue done",
        "nothing waited",
    ],
)
def test_x_11_what_may_have_been_sent_before_this_start(
    asks: Callable[[], SentBefore], expected: SentBefore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-11, J-5: what was begun and not committed, with those of its receipts that say `changed`."""
    monkeypatch.setattr(reader, "Consumer", Consumer)
    Consumer.asked = set()

    assert asks() == expected
    # A minute earlier than it began: the clocks of file system and brokers differ.
    assert Consumer.asked == ({940_000} if expected.said_changed else set())
