"""What a reading of a topic yields, and where it stands afterwards, whatever comes from Kafka."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sexton.schemas.errors import KafkaUnavailable
from sexton.schemas.kafka import reader
from sexton.schemas.kafka.reader import NOW, CutOff, Reader, place
from sexton.schemas.settings import load

END, GONE, OTHER = KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.INVALID_MSG
PASSING = KafkaError._TRANSPORT


def reading(monkeypatch: pytest.MonkeyPatch, *comes: tuple[int, int, int | None]) -> Reader:
    """Return a reader at the start of two partitions to which this comes: partition, offset, error."""
    left = list(comes)

    def poll(_: float) -> Any:
        partition, offset, code = left.pop(0)
        error = None if code is None else KafkaError(code, "told", retriable=code == PASSING)
        return SimpleNamespace(partition=lambda: partition, offset=lambda: offset, error=lambda: error)

    nothing = {"assign": lambda _: None, "unassign": lambda: None, "consume": lambda *_: []}
    monkeypatch.setattr(reader, "Consumer", lambda _: SimpleNamespace(poll=poll, **nothing))
    made = Reader(load({}), "topic", "group", "reading")
    made.positions = {0: 0, 1: 0}
    return made


def test_a_reading_ends_where_it_was_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written meanwhile behind the end is neither yielded nor passed by."""
    made = reading(monkeypatch, (0, 0, None), (0, 1, None), (0, 2, END), (1, 0, None))

    assert [place(message) for message in made.read({0: 1, 1: 1})] == [(0, 0), (1, 0)]
    assert made.positions == {0: 1, 1: 1}


def test_the_end_that_is_met_first_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last offsets may hold no record; the next reading begins behind them, and not further."""
    made = reading(monkeypatch, (0, 0, None), (1, 5, END), (0, 3, END))

    assert [place(message) for message in made.read({0: NOW, 1: 9})] == [(0, 0)]
    assert made.positions == {0: 3, 1: 5}


@pytest.mark.parametrize(("code", "error"), [(GONE, CutOff), (OTHER, KafkaUnavailable)])
def test_an_error_of_kafkas_ends_a_reading(
    code: int, error: type[KafkaUnavailable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is raised; what was taken before it counts as read."""
    made = reading(monkeypatch, (0, 0, None), (0, 1, code))

    with pytest.raises(error, match="reading: told"):
        list(made.read({0: 9}))
    assert made.positions == {0: 1, 1: 0}


def test_an_error_that_the_client_tries_again_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends no reading and is no record; where nothing else comes there was no answer in time."""
    made = reading(monkeypatch, (0, -1, PASSING), (0, 0, None), (0, -1, PASSING), (0, 1, END))

    assert [place(message) for message in made.read({0: NOW})] == [(0, 0)]
    made = reading(monkeypatch, *[(0, -1, PASSING)] * 5)
    with pytest.raises(KafkaUnavailable, match="no answer in time"):
        list(made.read({0: 9}, answer_s=0.0))


def test_a_leader_that_has_died_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-3: the client asks the one it knows until it is made to look; within the time that was given."""
    looked: list[float] = []

    def bounds(_: Any, timeout: float) -> tuple[int, int]:
        if not looked:
            time.sleep(timeout)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "told"))
        return 3, 7

    def list_topics(_: str, timeout: float) -> None:
        looked.append(timeout)

    asked = SimpleNamespace(get_watermark_offsets=bounds, list_topics=list_topics)
    monkeypatch.setattr(reader, "Consumer", lambda _: asked)

    assert Reader(load({}), "topic", "group", "reading").bounds(0, 1.0) == (3, 7)
    assert len(looked) == 1
    assert looked[0] < 0.5
