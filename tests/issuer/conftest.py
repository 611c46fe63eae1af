"""One installation shared by the tests that only need tenants of their own, and fresh ones for the others."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.issuing import Case, Serve, Write, attach
from tests.support.servers import Server
from tests.support.snapshots import Place
from tests.support.stacks import WORKER

from sexton.deploy.local import Installation, LocalStack
from sexton.issuer.client import IssuerClient
from sexton.issuer.deadline import Deadline
from sexton.issuer.service import Service
from sexton.issuer.snapshots.keeper import take_snapshot
from sexton.issuer.snapshots.store import Snapshot
from sexton.issuer.testing import FakeIssuer
from sexton.schemas import records
from sexton.schemas.settings import Settings

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared(stack: LocalStack) -> Iterator[Installation]:
    """An installation with a running issuer process; its log and its Redis stay healthy."""
    made = Installation.start(stack, f"issuer-shared-{WORKER}", partitions=3)
    yield made
    made.stop()


@pytest.fixture
def issuer(shared: Installation) -> Iterator[IssuerClient]:
    """A client of the shared issuer."""
    with IssuerClient(shared.settings.issuer_url) as client:
        yield client


@pytest.fixture
def fresh(stack: LocalStack) -> Iterator[Installation]:
    """An installation of the test's own, without an issuer process."""
    made = Installation.start(stack, f"issuer-{WORKER}-{next(_numbers):04d}", partitions=3, with_issuer=False)
    yield made
    made.stop()


@pytest.fixture
def bare(stack: LocalStack) -> Iterator[Installation]:
    """Topics of the test's own with a log that was not started."""
    made = Installation.start(
        stack, f"issuer-{WORKER}-{next(_numbers):04d}", partitions=3, with_issuer=False, genesis=False
    )
    yield made
    made.stop()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start issuer services in this process and return them when they are ready."""
    with ExitStack() as started:

        def start(settings: Settings) -> Service:
            service = Service(settings)
            started.callback(service.stop)
            assert service.wait_ready(20)
            return service

        yield start


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Server]:
    """A Redis of the test's own: what is set, paused or ended on the shared one befalls every test."""
    made = Server(tmp_path)
    yield made
    made.kill()
    made.client.close()


@pytest.fixture
def write() -> Write:
    """Write records to a partition of the intents topic."""

    def produce(settings: Settings, partition: int, count: int) -> None:
        producer = Producer(settings.kafka(acks="all"))
        for _ in range(count):
            producer.produce(settings.topic(records.INTENTS), b"x", partition=partition)
        assert producer.flush(10) == 0

    return produce


@pytest.fixture
def filled(fresh: Installation, serve: Serve) -> tuple[Place, list[Snapshot]]:
    """An installation with two snapshots, each after some events, and events after the newer one."""
    service, taken = serve(fresh.settings), []
    for number in range(2):
        for tenant in ("a", "b", "ü ☃"):
            attach(service, f"n{number}", tenant)
        taken.append(take_snapshot(fresh.settings, 30))
    attach(service, "n9", "c")
    return Place(fresh.settings), taken


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.real)])
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    """The fake, then the real service."""
    if request.param == "fake":
        fake = FakeIssuer(partitions=3)
        yield Case(fake, fake.written)
        return
    shared: Installation = request.getfixturevalue("shared")
    write: Write = request.getfixturevalue("write")
    with IssuerClient(shared.settings.issuer_url) as client:
        yield Case(client, lambda partition, count: write(shared.settings, partition, count))


@pytest.fixture
def unique() -> str:
    """A word that no other test uses."""
    return f"u{next(_numbers)}-{time.monotonic_ns()}"


@pytest.fixture
def soon() -> Deadline:
    """A deadline that no healthy call misses."""
    return Deadline.after(20)
