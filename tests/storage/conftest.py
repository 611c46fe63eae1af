"""A recording S3 server of its own for every test, each store in turn, and a clean AWS environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from tests.support.each_store import Store, opened
from tests.support.s3_recorder import S3Recorder
from tests.support.s3_stores import STORES, Running, binary_of

from sexton.storage import BatchDeleter, KeyState, StoreSettings

BUCKET = "bucket"


def one(deleter: BatchDeleter) -> KeyState:
    """Delete one key and return its state."""
    return deleter.delete_all(BUCKET, ["a"]).result(20).state(0)


@pytest.fixture(autouse=True)
def _no_aws_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    nowhere = str(tmp_path_factory.getbasetemp() / "no-aws-config")
    for name in [name for name in os.environ if name.startswith("AWS_") and name != "AWS_CA_BUNDLE"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", nowhere)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", nowhere)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def s3(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Recorder]:
    """A recorder whose credentials are in the environment, with one empty bucket.

    Over TLS, unless a test is parametrised with "http".
    """
    with S3Recorder(plain=getattr(request, "param", "https") == "http") as recorder:
        for name, value in recorder.environ.items():
            monkeypatch.setenv(name, value)
        recorder.create_bucket(BUCKET)
        yield recorder


@pytest.fixture
def settings(s3: S3Recorder) -> StoreSettings:
    """Settings that lead to the recorder, with short timeouts."""
    return StoreSettings(s3.url, requests_in_flight=4, connect_timeout_s=2, read_timeout_s=10)


@pytest.fixture
def make_deleter() -> Iterator[Callable[[StoreSettings], BatchDeleter]]:
    """Make deleters that are closed when the test ends."""
    made: list[BatchDeleter] = []

    def make(settings: StoreSettings) -> BatchDeleter:
        made.append(BatchDeleter(settings))
        return made[-1]

    yield make
    for deleter in made:
        deleter.close()


@pytest.fixture
def deleter(make_deleter: Callable[[StoreSettings], BatchDeleter], settings: StoreSettings) -> BatchDeleter:
    """A deleter against the recorder."""
    return make_deleter(settings)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[pytest.mark.stores] * (build is not None))
        for name, (_, build) in STORES.items()
    ],
)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Each store in turn, started once for a file; skipped where it has not been built.

    The recorder and moto run in this process. SeaweedFS and versitygw are tested where `make test-stores` has
    built them.
    """
    start, build = STORES[request.param]
    if build is not None and binary_of(build) is None:
        pytest.skip(f"{request.param} is not built: make stores")
    with start(tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(scope="module")
def store(running: Running) -> Iterator[Store]:
    """A client of it, and new buckets."""
    with opened(running) as store:
        yield store


@pytest.fixture(scope="module")
def shared(store: Store) -> str:
    """A probed bucket for tests that clean up by themselves."""
    bucket = store.new_bucket()
    store.deleter.probe(bucket)
    return bucket
