"""Three brokers, two of which die: the log's quorum is lost, and comes back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from tests.support.brokers import Brokers

from sexton.deploy import topics
from sexton.deploy.local import LocalStack, issuer, ports
from sexton.issuer.client import IssuerClient, Subject
from sexton.issuer.deadline import Deadline
from sexton.issuer.log.positions import Positions
from sexton.schemas import records
from sexton.schemas import settings as settings_module
from sexton.schemas.settings import Settings

pytestmark = [pytest.mark.real, pytest.mark.faults]
TIMEOUT_S = 4.0


@dataclass(frozen=True, slots=True)
class Place:
    """Three brokers and an issuer process on them."""

    brokers: Brokers
    settings: Settings

    def leader(self) -> int:
        """The broker that leads the generations log."""
        name = self.settings.topic(records.GENERATIONS)
        found = AdminClient(self.settings.kafka(log_level=0)).list_topics(name, timeout=10).topics[name]
        return int(found.partitions[0].leader)

    def log_end(self) -> int:
        """The end of the generations log, as soon as the brokers tell it."""
        return Positions(self.settings).read(Deadline.after(30)).log_end


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The only servers that run are the brokers, Redis and the issuer."""
    without = {"kafka", "s3", "bucket", "issuer", "topics"}
    stack = LocalStack.start(tmp_path_factory.mktemp("quorum"), without=without)
    try:
        brokers = Brokers(stack)
        address = f"127.0.0.1:{ports.choose(1)[0]}"
        own = {
            "SEXTON_KAFKA_BOOTSTRAP_SERVERS": brokers.addresses,
            "SEXTON_ISSUER_BIND": address,
            "SEXTON_ISSUER_URL": f"http://{address}",
            "SEXTON_ISSUER_TIMEOUT_S": str(TIMEOUT_S),
        }
        environment = {**stack.environment, **own}
        settings = settings_module.load(environment)
        topics.create_installation(settings, partitions=3)
        started = stack.run("issuer-quorum", issuer.command(), environment)
        stack.wait_ready("issuer-quorum", started, lambda: issuer.answers(settings.issuer_url))
        yield Place(brokers, settings)
    finally:
        stack.stop()


def ask(url: str, path: str, body: dict[str, Any]) -> tuple[int, str, float]:
    """Ask once; return the status, the problem's type and the seconds that it took."""
    begun = time.monotonic()
    with httpx.Client(timeout=30, trust_env=False) as client:
        reply = client.post(url + path, json=body)
    return reply.status_code, reply.json().get("type", ""), time.monotonic() - begun


@pytest.mark.parametrize("survivor", ["another", "the leader"])
def test_i_18_two_brokers_of_three_are_down(place: Place, survivor: str) -> None:
    """I-18: without a majority each call is a timely 503 and nothing is issued; with it the numbers
    continue.
    """
    tenant, url = f"t-{survivor}", place.settings.issuer_url
    with IssuerClient(url) as client:
        before = [client.attach("n", tenant).generation for _ in range(3)]
    end, leader = place.log_end(), place.leader()
    left = leader if survivor == "the leader" else leader % 3 + 1
    down = [node for node in (1, 2, 3) if node != left]
    place.brokers.kill(*down)
    subjects = [{"tenant": tenant, "generation": 3, "partition": p} for p in range(3)]
    calls = [
        ("/v1/attach", {"node": "n", "tenant": tenant, "request_id": f"r-{survivor}", "caller": "c"}),
        ("/v1/re-attach", {"node": "n", "request_id": f"q-{survivor}", "caller": "c"}),
        ("/v1/validate", {"subjects": subjects}),
        ("/v1/barrier", {}),
        ("/upcall/v1/validate", {"tenants": [{"id": tenant, "gen": 3}]}),
    ]
    with ThreadPoolExecutor(len(calls)) as pool:
        answers = list(pool.map(lambda call: ask(url, *call), calls))
    place.brokers.start(down[0])

    assert [(status, kind) for status, kind, _ in answers] == [(503, "kafka-unavailable")] * len(calls)
    assert max(seconds for *_, seconds in answers) < TIMEOUT_S
    if survivor == "another":  # a leader may have taken what nobody acknowledged, and nobody was reported
        assert place.log_end() == end
    with IssuerClient(url, 60, caller="c") as client:
        numbers = {client.attach("n", tenant, request_id=f"r-{survivor}").generation for _ in range(2)}
        again = [client.re_attach("n", request_id=f"q-{survivor}") for _ in range(2)]
        windows = client.validate([Subject(tenant, g, 0) for g in (3, 4, 5)], deadline=30).windows
    assert again[0] == again[1]
    assert (before, sorted(numbers | {again[0][tenant]})) == ([1, 2, 3], [4, 5])
    assert [window is not None and window.until is None for window in windows.values()] == [
        False,
        False,
        True,
    ]
    place.brokers.start(down[1])
