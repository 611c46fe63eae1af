"""One local stack for the whole run, and installations of their own on it for tests that need one.

stack          Kafka, Valkey and S3, started once, when the first test of any process of the run asks for them
installation   own topics, bucket, Redis database and issuer, and the environment that leads to them
settings       the settings of `installation`
cli            runs the `sexton` command as a subprocess
spark          the one Spark session of the run
chain, store   the whole chain on `installation`, and its object store
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from pyspark.sql import SparkSession
from tests.support.certificates import authority
from tests.support.chain import Chain
from tests.support.stacks import WORKER, Stack, stop_servers

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
# Stores speak TLS here; every process that a test starts, Spark's workers too, trusts their authority.
os.environ["AWS_CA_BUNDLE"] = str(authority().bundle)

# An example takes as long as a busy machine needs for it.
hypothesis.settings.register_profile("sexton", hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("sexton")

_numbers = itertools.count(1)
_SERVERS = pytest.StashKey[Path]()

# Seconds of work by which files are ordered: of each test that uses a fixture, and of files that compute.
_COSTS = {
    "start": 12.0,
    "spark": 2.5,
    "installation": 0.7,
    "fresh": 0.5,
    "folder": 2.0,
    "cli": 1.2,
    "s3": 0.1,
}
_COMPUTING = {
    "tests/model/test_model.py": 90.0,
    "tests/issuer/test_history.py": 35.0,
    "tests/docs/test_quickstart.py": 30.0,
    "tests/producers/test_contract.py": 20.0,
    "tests/chaos/test_chaos.py": 20.0,
    "tests/issuer/test_forgotten.py": 10.0,
}

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files with the most work go first: no process of the run ends with a long file of its own."""
    cost: defaultdict[str, float] = defaultdict(float)
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        cost[_file(item)] += 0.02 + sum(seconds for name, seconds in _COSTS.items() if name in fixtures)
    cost.update(_COMPUTING)
    items.sort(key=lambda item: (-cost[_file(item)], _file(item)))


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where CI is set nothing may be missing: a skipped test has failed."""
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and CI is set: {report.longreprtext}"
    return report


def pytest_configure(config: pytest.Config) -> None:
    """Choose the folder of the servers that all processes of this run share."""
    told = getattr(config, "workerinput", {}).get("servers")
    config.stash[_SERVERS] = Path(told or tempfile.mkdtemp(prefix="sexton-servers-"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of the run where the servers are."""
    node.workerinput["servers"] = str(node.config.stash[_SERVERS])


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the servers when all processes of the run are done."""
    if not hasattr(config, "workerinput"):
        folder = config.stash[_SERVERS]
        stop_servers(folder)
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def stack(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """The servers of the local stack without topics and issuer: `installation` brings those."""
    with Stack.on(pytestconfig.stash[_SERVERS], tmp_path_factory.mktemp("stack") / "own") as started:
        yield started


@pytest.fixture
def installation(stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    """An installation of its own with a running issuer; this process' environment leads to it."""
    made = Installation.start(stack, f"test-{WORKER}-{next(_numbers):04d}")
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
    os.environ["JAVA_HOME"] = str(java.find(stack.settings.cache_dir.expanduser()).home)
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
