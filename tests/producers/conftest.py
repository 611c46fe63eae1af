"""Connections to a mock cluster, with issuer in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.support.mock_kafka import mock_kafka
from tests.support.producing import Fake, Real

from sexton.consumers.topics import read
from sexton.producers import Limits, Sexton
from sexton.producers.testing import FakeIssuer, FakeSexton
from sexton.schemas.codec import Codec
from sexton.schemas.events import DeletionIntent
from sexton.schemas.settings import load

Connect = Callable[..., Sexton]


@pytest.fixture
def kafka() -> Iterator[str]:
    """Address of a mock broker."""
    with mock_kafka("sexton.intents") as address:
        yield address


@pytest.fixture
def connect(kafka: str) -> Iterator[Connect]:
    """Connect a node to the mock broker; closed at the end."""
    with ExitStack() as stack:

        def make(node: str = "n", limits: Limits | None = None, **overrides: Any) -> Sexton:
            overrides.setdefault("kafka_bootstrap_servers", kafka)
            sexton = Sexton.connect(node=node, limits=limits, issuer=FakeIssuer(), **overrides)
            stack.callback(sexton.close, 1)
            return sexton

        yield make


@pytest.fixture
def arrived(kafka: str) -> Callable[[], list[DeletionIntent]]:
    """Read the intents that stand in the topic now, in the order of their partitions."""

    def read_all() -> list[DeletionIntent]:
        codec = Codec()
        found = read(load({"SEXTON_KAFKA_BOOTSTRAP_SERVERS": kafka}), "intents", timeout=10)
        return [codec.decode(record.value, DeletionIntent) for record in found]

    return read_all


@pytest.fixture
def fake() -> Iterator[FakeSexton]:
    """A connection without servers."""
    with FakeSexton("node-7") as sexton:
        yield sexton


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.real)])
def world(request: pytest.FixtureRequest) -> Iterator[Fake | Real]:
    """Both kinds of connection."""
    made = Fake() if request.param == "fake" else Real(request.getfixturevalue("installation"))
    yield made
    made.close()
