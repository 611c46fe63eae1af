"""One installation for the files of this folder, each test with a bucket of its own on its store.

collecting   runs the collector in this process on a bucket of its own
recorded     the same on a recording S3 server
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.collecting import Collecting
from tests.support.s3_recorder import S3Recorder
from tests.support.stacks import WORKER

from sexton.deploy.local import Installation, LocalStack, s3

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def shared(stack: LocalStack) -> Iterator[Installation]:
    """Topics and an issuer for all tests here."""
    made = Installation.start(stack, f"collect-{WORKER}-{next(_numbers):03d}")
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def collecting(shared: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collecting]:
    """A bucket of its own on the stack's store, and reports in a folder of its own."""
    bucket = f"{shared.name}-{next(_numbers):04d}"
    s3.create_bucket(shared.stack.store_url, bucket)
    env = {**shared.env, "SEXTON_REPORTS": str(tmp_path / "reports")}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    made = Collecting(bucket, env)
    yield made
    made.store.close()


@pytest.fixture
def recorded(
    shared: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Collecting, S3Recorder]]:
    """The collector on a recording server, with a bucket of its own."""
    bucket = f"{shared.name}-{next(_numbers):04d}"
    with S3Recorder() as recorder:
        recorder.create_bucket(bucket)
        env = {
            **shared.env,
            **recorder.environ,
            "SEXTON_S3_ENDPOINT_URL": recorder.url,
            "SEXTON_REPORTS": str(tmp_path / "reports"),
        }
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        made = Collecting(bucket, env)
        yield made, recorder
        made.store.close()
