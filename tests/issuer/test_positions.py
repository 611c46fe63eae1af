"""End offsets asked for when hardly any time is left."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sexton.deploy.local import Installation

# A process of its own: the client library would end it, not raise.
_ASK = """
from contextlib import suppress

from confluent_kafka import TopicPartition

from sexton.issuer.deadline import Deadline
from sexton.issuer.positions import Positions
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
        timeout=120,
        check=False,
    )

    assert (done.returncode, done.stdout[:5]) == (0, "alive"), done.stderr[-500:]
