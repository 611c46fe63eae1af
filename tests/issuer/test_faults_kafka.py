"""Brokers and producers that fail in the middle of a call, and topics that change under a running issuer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.cimpl import NewPartitions
from tests.support.issuing import Serve, Write, attach, counter, newest

from sexton.deploy.local import Installation, LocalStack
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.attach import Attach
from sexton.issuer.operations.barrier import Barrier
from sexton.issuer.operations.validate import Validate
from sexton.issuer.service import Service
from sexton.issuer.subjects.generation import Answer, Subject
from sexton.schemas import records
from sexton.schemas.errors import KafkaUnavailable
from sexton.schemas.kafka.admin import Cluster

pytestmark = pytest.mark.real


@pytest.fixture
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An installation on servers of its own, without an issuer process."""
    stack = LocalStack.start(tmp_path_factory.mktemp("alone"), without={"bucket", "issuer", "topics"})
    try:
        yield Installation.start(stack, "alone", with_issuer=False)
    finally:
        stack.stop()


def open_window(service: Service, tenant: str, generation: int, partition: int) -> Answer:
    """What the issuer says of one generation in one partition."""
    asked = Validate([Subject(tenant, generation, partition)])
    return service.authority().answer(asked, Deadline.after(20)).answers[0]


@pytest.mark.faults
def test_i_18_killed_between_append_and_read_back(
    alone: Installation, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I-18: the broker dies after the append: the call is answered when it is back, with that very number."""
    service = serve(alone.settings)
    attach(service, "n", "t")
    append, back = service._writer.append, threading.Thread(target=lambda: alone.stack.restart("kafka"))

    def append_and_kill(*arguments: Any) -> int:
        offset = append(*arguments)
        alone.stack.kill("kafka")
        if not back.ident:
            back.start()
        return offset

    with monkeypatch.context() as patch:
        patch.setattr(service._writer, "append", append_and_kill)
        asked = Attach(node="n", tenant="t", request_id="r")
        granted = service.authority().answer(asked, Deadline.after(60))
        back.join(60)

    assert granted.generations == {"t": 2}
    assert attach(service, "n", "t", request_id="r") == 2
    assert [newest(service, "t", g) for g in (1, 2)] == [False, True]


def test_an_acknowledgement_that_was_lost(
    fresh: Installation, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appended, but nobody was reported: a retry under the same id gets that number, from any issuer."""
    services = [serve(fresh.settings), serve(fresh.settings)]
    append = services[0]._writer.append

    def lost(*arguments: Any) -> int:
        append(*arguments)
        raise KafkaUnavailable("no time left")

    with monkeypatch.context() as patch:
        patch.setattr(services[0]._writer, "append", lost)
        with pytest.raises(KafkaUnavailable):
            attach(services[0], "n", "t", "r", "c")

    assert [attach(service, "n", "t", "r", "c") for service in services] == [1, 1]
    assert counter(services[0], "events") == counter(services[1], "events") == 0


def test_a_producer_that_failed_for_good(fresh: Installation, serve: Serve) -> None:
    """A fatal error of the producer: it is made anew, and the same request continues."""
    service = serve(fresh.settings)
    writer = service._writer

    class Dead:
        def produce(self, *_: object, **__: object) -> None:
            raise KafkaException(KafkaError(KafkaError._FATAL, "fenced", fatal=True))

        def poll(self, timeout: float) -> int:
            time.sleep(timeout)
            return 0

    writer._producer = Dead()  # type: ignore[assignment]
    with pytest.raises(KafkaUnavailable, match="fenced"):
        attach(service, "n", "t", request_id="r")

    assert isinstance(writer._producer, Producer)
    assert attach(service, "n", "t", request_id="r") == 1


def test_j_13_the_intents_topic_gains_partitions(fresh: Installation, serve: Serve, write: Write) -> None:
    """J-13: partitions that were added are in the next barrier, with windows of their own."""
    service = serve(fresh.settings)
    attach(service, "n", "t")
    name = fresh.settings.topic(records.INTENTS)
    admin = Cluster(fresh.settings).admin
    admin.create_partitions([NewPartitions(name, 5)])[name].result(10)
    until = Deadline.after(10)
    while len(service.authority().answer(Barrier(), until).ends) != 5:
        time.sleep(0.05)
    write(fresh.settings, 4, 3)

    assert service.authority().answer(Barrier(), until).ends[4] == 3
    assert attach(service, "n", "t") == 2
    old, new = (open_window(service, "t", g, 4) for g in (1, 2))
    assert (old.start, old.until, new.start, new.newest) == (0, 3, 3, True)


def test_j_12_an_open_transaction_on_the_intents(fresh: Installation, serve: Serve, write: Write) -> None:
    """J-12: what stands in a transaction that is open while the successor is issued is not covered."""
    service = serve(fresh.settings)
    attach(service, "n", "t")
    write(fresh.settings, 0, 2)
    producer = Producer(fresh.settings.kafka(**{"transactional.id": "open"}))
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(fresh.settings.topic(records.INTENTS), b"x", partition=0)
    producer.flush(10)

    assert service.authority().answer(Barrier(), Deadline.after(10)).ends[0] == 2
    assert attach(service, "n", "t") == 2
    producer.commit_transaction(20)
    assert open_window(service, "t", 1, 0).until == 2
