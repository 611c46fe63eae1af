"""A folder for a local stack; a strict store, the proxy before it, and a client of the proxy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.proxied import BUCKET, Running, running
from tests.support.s3_recorder import S3Recorder, recorder_of_this_process

from sexton.deploy.local import LocalStack
from sexton.storage import BatchDeleter, StoreSettings


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for a stack, which is ended whatever the test did."""
    directory = tmp_path / "stack"
    yield directory
    if directory.exists():
        LocalStack(directory).stop()


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Recorder]:
    """A store that checks signatures and checksums; its credentials are in the environment.

    On plain HTTP, as the local store is that the proxy stands before.
    """
    with recorder_of_this_process(monkeypatch, plain=True) as recorder:
        recorder.create_bucket(BUCKET)
        yield recorder


@pytest.fixture
def proxy(strict: S3Recorder, tmp_path: Path) -> Iterator[Running]:
    """A proxy before the strict store that plays nothing yet."""
    with running(strict.url, tmp_path / "faults") as started:
        yield started


@pytest.fixture
def deleter(proxy: Running) -> Iterator[BatchDeleter]:
    """A client of the proxy."""
    with BatchDeleter(StoreSettings(proxy.url, requests_in_flight=4, read_timeout_s=20)) as opened:
        yield opened
