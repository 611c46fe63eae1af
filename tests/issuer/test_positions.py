"""End offsets and topic ids: with hardly any time left, and of a topic that changes meanwhile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from tests.support.chain import messages
from tests.support.issuing import Write
from tests.support.topics import recreate
from tests.support.waits import until

from sexton.deploy.local import Installation
from sexton.issuer.deadline import Deadline
from sexton.issuer.log.positions import Ends, Positions, WrongTopic
from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.errors import KafkaUnavailable
from sexton.schemas.kafka.admin import TopicIdentity
from sexton.schemas.settings import load

# A process of its own: the client library would end it, not raise.
_ASK = """
from contextlib import suppress

from confluent_kafka import TopicPartition

from sexton.issuer.deadline import Deadline
from sexton.issuer.log.positions import Positions
from sexton.schemas.errors import KafkaUnavailable
from sexton.schemas.settings import load

positions = Positions(load())
positions.read(Deadline.after(20))
places = [TopicPartition(positions.log, 0), TopicPartition(positions.intents, 0)]
for _ in range(30):
    for left in (0.0, 0.0004, 0.0009):
        with suppress(KafkaUnavailable):
            positions.cluster.stable_ends(places, left)
        for reading in (positions._latest, lambda _, deadline: positions.read(deadline)):
            with suppress(KafkaUnavailable):
                reading(3, Deadline.after(left))
print("alive", positions.read(Deadline.after(20)).log_end)
"""


@pytest.mark.real
def test_end_offsets_asked_for_in_the_last_moment(shared: Installation) -> None:
    """A call that reaches its deadline as it asks Kafka fails by itself and takes no other call along."""
    done = subprocess.run(
        [sys.executable, "-c", _ASK],
        env=shared.environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )

    assert (done.returncode, done.stdout[:5]) == (0, "alive"), done.stderr[-500:]


@pytest.mark.real
def test_j_13_topic_ids_are_read_after_the_end_offsets(
    fresh: Installation, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J-13: re-created in between: end offsets of a new topic never stand beside the id of the old one."""
    settings = fresh.settings
    (log,) = messages(settings, settings.topic(records.GENERATIONS))
    positions = Positions(settings)
    positions.expect(Codec().decode(log.value() or b"", events.Genesis))
    write(settings, 0, 5)
    old = positions.read(Deadline.after(20)).intents
    assert list(old.offsets) == [5, 0, 0]
    asked: list[str] = []
    places, ends = [TopicPartition(positions.intents, p) for p in range(3)], positions.cluster.stable_ends

    def known() -> bool:
        with suppress(KafkaUnavailable):
            return ends(places, 10.0) == [0, 0, 0]
        return False

    def then_recreated(name: str) -> Callable[..., Any]:
        real = getattr(positions.cluster, name)

        def ask(*arguments: Any) -> Any:
            answer = real(*arguments)
            asked.append(name)
            if len(asked) == 1:
                recreate(settings, records.INTENTS)
                until(known)  # else the client's old knowledge of the topic would be an error by itself
            return answer

        return ask

    for name in ("identities", "stable_ends"):
        monkeypatch.setattr(positions.cluster, name, then_recreated(name))
    # Both questions in one attempt, though creating a topic takes a while.
    monkeypatch.setattr("sexton.schemas.kafka.leaders._FIRST_S", 60.0)
    with pytest.raises(WrongTopic, match=old.topic_id):
        positions.read(Deadline.after(120))


def test_d_3_end_offsets_are_asked_for_again_after_a_leader_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-3: the client asks the one that it knows until it is made to look who leads now."""
    positions = Positions(load({}))
    looked: list[float] = []

    def ends(places: list[TopicPartition], timeout_s: float) -> list[int]:
        if not looked:
            raise KafkaUnavailable("no time left")
        return [7] * len(places)

    found = dict.fromkeys((positions.log, positions.intents), TopicIdentity("id", 2, 3))
    monkeypatch.setattr(positions.cluster, "stable_ends", ends)
    monkeypatch.setattr(positions.cluster, "identities", lambda *_: found)
    monkeypatch.setattr(positions.cluster, "refresh", looked.append)

    assert positions.read(Deadline.after(10)) == Ends(events.PartitionOffsets("id", [7, 7]), 7)
    assert len(looked) == 1
