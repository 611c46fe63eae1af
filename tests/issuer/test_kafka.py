"""A broker that dies under a running issuer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sexton.deploy.local import Installation, LocalStack
from sexton.issuer.client import IssuerClient, Subject
from sexton.schemas.errors import IssuerUnavailable

pytestmark = pytest.mark.real


@pytest.fixture
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An installation on servers of its own."""
    left_out = {"bucket", "issuer", "topics"}
    stack = LocalStack.start(tmp_path_factory.mktemp("alone"), without=left_out)
    try:
        yield Installation.start(stack, "alone")
    finally:
        stack.stop()


@pytest.mark.slow
def test_i_18_the_broker_is_killed_and_comes_back(alone: Installation) -> None:
    """I-18: without Kafka nothing is issued or judged; the same calls continue when it is back."""
    subject = Subject("t", 1, 0)
    with IssuerClient(alone.settings.issuer_url) as issuer, ThreadPoolExecutor(2) as pool:
        issuer.attach("n", "t")
        alone.stack.kill("kafka")
        with pytest.raises(IssuerUnavailable):
            issuer.attach("n", "other", deadline=1)
        with pytest.raises(IssuerUnavailable):
            issuer.validate([subject], deadline=1)
        waiting = pool.submit(issuer.attach, "n", "t", "r", 60)
        alone.stack.restart("kafka")

        assert waiting.result(60).generation == 2
        assert issuer.attach("n", "t", request_id="r").generation == 2
        window = issuer.validate([subject]).windows[subject]
        assert window is not None
        assert window.until is not None
