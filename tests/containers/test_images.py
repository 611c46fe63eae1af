"""Each image as a cluster that trusts nobody runs it: a foreign user, nothing to write to but /tmp."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
from tests.support import images
from tests.support.container_stack import ContainerStack, healthy, stopped, told
from tests.support.waits import until

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

STRANGER = "54321:54321"


def _get(container: Any, port: int, path: str) -> bytes:
    url = f"http://127.0.0.1:{container.get_exposed_port(port)}{path}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return bytes(answer.read())


def test_d_7_an_issuer_serves_and_stops(containers: ContainerStack) -> None:
    """D-7: an issuer becomes healthy, answers from outside, and ends with 0 when it is told to stop."""
    with containers.running(images.ISSUER, user=STRANGER, exposed=(8350,)) as issuer:
        healthy(issuer)
        ready = _get(issuer, 8350, "/readyz")
        code = stopped(issuer)

    assert ready
    assert code == 0


def test_d_7_a_reaper_runs_and_stops(containers: ContainerStack) -> None:
    """D-7: a reaper, its checkpoint on a volume, becomes healthy, is scraped from outside, ends with 0."""
    with (
        containers.volume() as volume,
        containers.running(
            images.REAPER,
            user=STRANGER,
            exposed=(9350,),
            volume=volume,
            SEXTON_CHECKPOINT="/var/lib/sexton/checkpoint",
            SEXTON_REAPER_CORES="1",
        ) as reaper,
    ):
        healthy(reaper)
        metrics = _get(reaper, 9350, "/metrics")
        until(lambda: '"event": "ready"' in told(reaper), 240, told=lambda: told(reaper))
        code = stopped(reaper)
        last = told(reaper)

    assert b"sexton_decode_backlog_records" in metrics
    assert code == 0, last
    assert '"event": "stopped"' in last


@pytest.mark.parametrize("user", ["12345:0", STRANGER])
def test_d_7_tools_run(containers: ContainerStack, user: str) -> None:
    """D-7: the tools find Java, jars, broker, topics, issuer, Redis and store, whoever runs them."""
    done = containers.run(images.TOOLS, "doctor", "--format", "json", user=user)

    assert done.code == 0, done.out + done.err
    assert {"java", "jars", "kafka", "topics", "issuer", "redis"} <= {
        each["probe"] for each in json.loads(done.out)
    }


@pytest.mark.parametrize("image", [images.ISSUER, images.REAPER, images.TOOLS])
def test_d_7_nobody_is_root_unless_asked_for(containers: ContainerStack, image: str) -> None:
    """D-7: by default an image runs as a user that is not root, and says what it is made of."""
    config = containers.config(image)

    assert config["User"] == "10001:0"
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert len(config["Labels"]["org.opencontainers.image.revision"]) == 40
