"""`/readyz` says what calls are refused with, while they are, and is 200 again once it is mended."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.support.issuing import serving
from tests.support.servers import Server

from sexton.deploy.local import Installation
from sexton.schemas import records

pytestmark = pytest.mark.real


def killed(server: Server) -> Callable[[], object]:
    """Redis is gone, and started again."""
    server.kill()
    return server.start


def hung(server: Server) -> Callable[[], object]:
    """Redis takes connections and answers nothing."""
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    process = server.process
    return lambda: process.send_signal(signal.SIGCONT)


def read_only(server: Server) -> Callable[[], object]:
    """Redis answers, and takes no writes."""
    server.client.replicaof("127.0.0.1", "1")
    return lambda: server.client.replicaof("NO", "ONE")


def await_ready(url: str, status: int) -> httpx.Response:
    """Ask until the status is this one."""
    until = time.monotonic() + 20
    while True:
        reply = httpx.get(f"{url}/readyz", trust_env=False, timeout=10)
        if reply.status_code == status:
            return reply
        assert time.monotonic() < until, reply.text
        time.sleep(0.1)


def attach(url: str) -> httpx.Response:
    """Ask for a number."""
    return httpx.post(f"{url}/v1/attach", json={"node": "n", "tenant": "t"}, trust_env=False, timeout=20)


@pytest.mark.parametrize("fault", [killed, hung, read_only])
@pytest.mark.slow
def test_while_redis_is_away(
    fresh: Installation, own_redis: Server, fault: Callable[[Server], Callable[[], object]]
) -> None:
    """Without a Redis that takes writes no number is given out, and nobody is reported that it would be."""
    with serving(fresh, SEXTON_REDIS_URL=f"redis://127.0.0.1:{own_redis.port}/0") as issuer:
        assert await_ready(issuer.url, 200)
        mend = fault(own_redis)
        refused = await_ready(issuer.url, 503)
        gauges = httpx.get(f"{issuer.url}/metrics", trust_env=False).text
        call = attach(issuer.url)
        mend()
        await_ready(issuer.url, 200)

        assert (refused.json()["type"], call.json()["type"]) == ("redis-unavailable",) * 2
        assert "sexton_issuer_ready 0.0" in gauges
        assert attach(issuer.url).status_code == 200


@pytest.mark.slow
def test_while_the_intents_topic_is_another(fresh: Installation) -> None:
    """A topic that was deleted and created again under a running issuer is reported, for good."""
    topic = fresh.settings.topic(records.INTENTS)
    admin = AdminClient(fresh.settings.kafka())
    with serving(fresh) as issuer:
        admin.delete_topics([topic])[topic].result(20)
        until = time.monotonic() + 20
        while topic in admin.list_topics(timeout=10).topics:
            assert time.monotonic() < until
            time.sleep(0.1)
        admin.create_topics([NewTopic(topic, 3)])[topic].result(20)
        assert attach(issuer.url).json()["type"] == "wrong-topic"
        refused = await_ready(issuer.url, 503).json()
        time.sleep(3)
        again = httpx.get(f"{issuer.url}/readyz", trust_env=False)

    assert refused["type"] == "wrong-topic"
    assert (again.status_code, again.json()["type"]) == (503, "wrong-topic")
