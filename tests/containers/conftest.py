"""Images, built once for the run, and a stack of containers that its tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.support import engine, images
from tests.support.container_stack import ContainerStack, started

# Images cannot be fetched here, the one that tidies up behind testcontainers neither.
os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"
os.environ["TESTCONTAINERS_CONNECTION_MODE"] = "docker_host"


@pytest.fixture(scope="session")
def built() -> None:
    """All images, on the engine that docker finds."""
    from sexton.schemas import settings

    if not engine.answers():
        pytest.skip("no Docker engine answers: make test-containers starts one, as root on Debian")
    images.build(settings.load().cache_dir.expanduser())


@pytest.fixture(scope="session")
def containers(built: None) -> Iterator[ContainerStack]:
    """Broker, Valkey, S3 server and issuer in containers."""
    with started(user="12345:0") as stack:
        yield stack
