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
from sexton.streaming_jobs.reaper.recovery.catch_up import CatchUp
from sexton.streaming_jobs.reaper.recovery.offsets import Offsets
from sexton.streaming_jobs.reaper.recovery.receipts import Earlier, look_back, unfinished

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
    """Two partitions of receipts, and of dead letters: one has some since the instant that is asked for."""

    asked: set[int]

    def __init__(self, config: dict[str, Any]) -> None:
        assert config["isolation.level"] == "read_committed"
        self.ended = 0
        self.left = [*((value, None) for value in RECEIPTS), (None, KafkaError._PARTITION_EOF)]

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Two partitions."""
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=[0, 1], error=None)})

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """The second one has nothing so new."""
        Consumer.asked = {at.offset for at in asked}
        return [TopicPartition(at.topic, at.partition, -1 if at.partition else 17) for at in asked]

    def get_watermark_offsets(self, at: TopicPartition, timeout: float) -> tuple[int, int]:
        """All that was ever written is there."""
        return 0, 99

    def assign(self, found: list[TopicPartition]) -> None:
        """Read the first one from there."""
        assert [(at.partition, at.offset) for at in found] in ([(0, 17)], [(0, 0), (1, 0)])
        if len(found) > 1:  # all of it
            self.left.append((None, KafkaError._PARTITION_EOF))

    def consume(self, count: int, timeout: float) -> list[Any]:
        """Nothing more at the same time."""
        return []

    def unassign(self) -> None:
        """Nothing more is wanted."""

    def poll(self, timeout: float) -> Any:
        """One at a time."""
        value, code = self.left.pop(0)
        error = None if code is None else KafkaError(code)
        self.ended += code is not None
        where: dict[str, Any] = {
            "partition": lambda: self.ended - 1 if self.ended > 1 else 0,
            "offset": lambda: 0,
        }
        where["timestamp"] = lambda: (1, 0)
        return SimpleNamespace(**where, value=lambda: value, error=lambda: error)

    def close(self) -> None:
        """Nothing to leave."""


def started(
    planned: tuple[dict[int, int], float] | None = None,
    begun: dict[int, int] | None = None,
    done: dict[int, int] | None = None,
    catch_up: CatchUp | None = None,
) -> Earlier:
    """What may have been worked on, after a start with such a checkpoint."""
    text = None if begun is None else begun_text(PLACE, begun, 1_000.0)
    checkpoint: Any = SimpleNamespace(
        planned=lambda: planned, waiting_begun=lambda: text, catch_up=(catch_up or CatchUp()).to_text
    )
    queue: Any = SimpleNamespace(place=PLACE, done=done or {}, copies=list, doubt=lambda found: None)
    cluster: Any = SimpleNamespace()
    return look_back(SETTINGS, cluster, BINDING, unfinished(checkpoint, queue), {0: 2}, queue)


def settled(ranges: dict[int, tuple[int, int]], *offsets: int) -> tuple[Offsets]:
    """These offsets of the first partition."""
    found = Offsets(ranges)
    for offset in offsets:
        found.add(0, offset)
    return (found,)


@pytest.mark.parametrize(
    ("asks", "expected"),
    [
        (
            lambda: started(({0: 5}, 1_000.0)),
            Earlier(SentBefore({0: 5}, CHANGED, 1_000.0, settled({0: (2, 5)}, 3, 4)), SentBefore()),
        ),
        (lambda: started(), Earlier(SentBefore(), SentBefore())),
        (
            lambda: started(catch_up=CatchUp({0: 9}, {0: 3})),
            Earlier(
                SentBefore({0: 9}, None, None, settled({0: (2, 9)}, 3, 4, 6, 7)),
                SentBefore({0: 3}, None, None, settled({0: (0, 3)})),
            ),
        ),
        (lambda: started(catch_up=CatchUp({0: 2}, {})), Earlier(SentBefore(), SentBefore())),
        (
            lambda: started(begun={0: 5, 1: 7}, done={0: 5, 1: 6}),
            Earlier(SentBefore(), SentBefore({0: 5, 1: 7}, CHANGED, 1_000.0, settled({1: (6, 7)}))),
        ),
        (lambda: started(begun={0: 5, 1: 7}, done={0: 5, 1: 7}), Earlier(SentBefore(), SentBefore())),
        (lambda: started(done={0: 5}), Earlier(SentBefore(), SentBefore())),
    ],
    ids=[
        "begun and not committed",
        "all committed",
        "a new checkpoint where a reaper worked",
        "a new checkpoint that has caught up",
        "begun of the delay queue",
        "all of the delay queue done",
        "nothing waited",
    ],
)
def test_x_11_what_may_have_been_sent_before_this_start(
    asks: Callable[[], Earlier], expected: Earlier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-11, J-5, P-11: what was begun and not committed, and what its receipts say of it."""
    monkeypatch.setattr(reader, "Consumer", Consumer)
    Consumer.asked = set()

    assert asks() == expected
    # A minute earlier than it began: the clocks of file system and brokers differ.
    looked = expected.intents.said_changed or expected.deferred.said_changed
    assert Consumer.asked == ({940_000} if looked else set())
