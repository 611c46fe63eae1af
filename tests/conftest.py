"""One local stack for the whole run, and installations of their own on it for tests that need one.

stack          Kafka, Valkey and S3, started once, when the first test asks for them
installation   own topics, bucket, Redis database and issuer, and the environment that leads to them
settings       the settings of `installation`
cli            runs the `sexton` command as a subprocess
spark          the one Spark session of the run
chain, store   the whole chain on `installation`, and its object store
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

import hypothesis
import pytest
from pyspark.sql import SparkSession
from tests.support.chain import Chain

from sexton.deploy import java
from sexton.deploy.local import Installation, LocalStack
from sexton.schemas.settings import Settings
from sexton.storage import ObjectStore, StoreSettings
from sexton.streaming_jobs.spark import open_session

# Nothing of the developer's own set-up may reach a test; only the folder of the downloaded jars is shared.
for _name in [
    name for name in os.environ if name.startswith(("SEXTON_", "AWS_")) and name != "SEXTON_CACHE_DIR"
]:
    del os.environ[_name]
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull

# An example takes as long as a busy machine needs for it.
hypothesis.settings.register_profile("sexton", hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("sexton")

_numbers = itertools.count(1)

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """The servers of the local stack without topics and issuer: `installation` brings those."""
    started = LocalStack.start(tmp_path_factory.mktemp("stack"), without={"issuer", "topics"})
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def installation(stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    """An installation of its own with a running issuer; this process' environment leads to it."""
    made = Installation.start(stack, f"test-{next(_numbers):04d}")
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def settings(installation: Installation) -> Settings:
    """The settings of the installation."""
    return installation.settings


@pytest.fixture
def cli() -> Cli:
    """Run `sexton ARGUMENTS...`; `env` goes on top of this process' environment, `timeout` is in seconds."""

    def run(
        *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sexton.deploy.main", *arguments],
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def spark(stack: LocalStack) -> Iterator[SparkSession]:
    """The session; its workers keep the environment of this moment, so the store's credentials are set."""
    os.environ.update({name: value for name, value in stack.env.items() if name.startswith("AWS_")})
    os.environ.setdefault("JAVA_HOME", str(java.find(stack.settings.cache_dir.expanduser()).home))
    session = open_session(stack.settings, "tests")
    try:
        yield session
    finally:
        session.stop()


@pytest.fixture
def chain(installation: Installation, spark: SparkSession) -> Chain:
    """The whole chain on an installation of its own."""
    return Chain(installation.settings, spark, installation.bucket)


@pytest.fixture
def store(installation: Installation) -> ObjectStore:
    """The object store of the installation."""
    return ObjectStore(StoreSettings.of(installation.settings))
