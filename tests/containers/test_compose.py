"""`deploy/compose.yaml`: it comes up, the story holds on it, and Prometheus sees what a dashboard shows."""

from __future__ import annotations

import os
import re
from typing import Any

import httpx
import pytest
from tests.support import images
from tests.support.composed import composed, stand_ins
from tests.support.dashboard import expressions, filled
from tests.support.waits import until

from sexton.schemas import settings

# What has a series only once it has happened: a bucket that was held, an event that was void, a refused call.
QUIET = {query for query in expressions() if re.search(r"held_buckets|voids|refused", query)}
pytestmark = [pytest.mark.containers, pytest.mark.timeout(2400)]


def answered(url: str, query: str) -> list[Any]:
    """What Prometheus finds for a query."""
    reply = httpx.get(f"{url}/api/v1/query", params={"query": query}, timeout=60)
    assert reply.status_code == 200, (query, reply.text)
    found: list[Any] = reply.json()["data"]["result"]
    return found


def silent(url: str) -> set[str]:
    """The dashboard's queries for which Prometheus has nothing."""
    return {query for query in expressions() if not answered(url, filled(query))}


def test_d_5_the_story_holds_on_compose(built: None) -> None:
    """D-5: three brokers, two issuers, a Spark cluster: every check holds, and the dashboard has data."""
    variables = stand_ins(settings.load().cache_dir.expanduser())
    with composed(f"sexton-test-{os.getpid()}", variables) as project:
        done = project.tools("demo", "--bucket", "sexton-demo", capture=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Every check held" in done.stdout

        url = project.prometheus_url
        shown = ("sum(sexton_issuer_ready) == 2", 'sum(sexton_intents_total{state="stale"}) > 0')
        until(lambda: all(answered(url, query) for query in shown), 240, 1.0)
        until(lambda: silent(url) <= QUIET, 240, 1.0, told=lambda: silent(url))


def test_images_have_variables_of_their_own() -> None:
    """Each image of the file can be another one, and no default names a host."""
    text = (images.ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
    found = re.findall(r"^\s+image: (.+)$", text, re.MULTILINE)

    assert found
    assert [
        image for image in found if not re.fullmatch(r"\$\{[A-Z0-9_]+_IMAGE:-[\w./-]+:[\w.-]+\}", image)
    ] == []
    assert "docker.io" not in text
