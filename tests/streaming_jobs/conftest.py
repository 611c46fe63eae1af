"""One Spark session for the run, and a chain for each test: an installation with a reaper on demand."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tests.support.chain import Chain

from sexton.deploy import java
from sexton.deploy.local import Installation, LocalStack
from sexton.storage import ObjectStore, StoreSettings
from sexton.streaming_jobs.spark import open_session


@pytest.fixture(scope="session")
def spark(stack: LocalStack) -> Iterator[SparkSession]:
    """The session; its workers keep the environment of this moment, so the store's credentials are set."""
    os.environ.update({name: value for name, value in stack.env.items() if name.startswith("AWS_")})
    os.environ.setdefault("JAVA_HOME", str(java.find(stack.settings.cache_dir).home))
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
