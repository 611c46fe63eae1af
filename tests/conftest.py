"""One local stack for the whole run, and installations of their own on it for tests that need one.

stack          Kafka, Valkey and S3, started once, when the first test of any process of the run asks for them
installation   own topics, bucket, Redis database and issuer, and the environment that leads to them
settings       the settings of `installation`
cli            runs the `sexton` command as a process, forked from one that has imported it
spark          the one Spark session of the run
chain, store   the whole chain on `installation`, and its object store
pack           what `sexton deploy pack` makes, once
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from pyspark.sql import SparkSession
from tests.support.certificates import authority
from tests.support.chain import Chain
from tests.support.forks import Forks
from tests.support.selection import is_drawn, longest_first
from tests.support.stacks import WORKER, Stack, stop_servers

from sexton.deploy import java
from sexton.deploy.local import Installation, LocalStack
from sexton.deploy.pack import make
from sexton.schemas.settings import Settings
from sexton.storage import ObjectStore, StoreSettings
from sexton.streaming_jobs.pack import Pack
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

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options by which a share of the slow tests runs."""
    parser.addoption("--share", type=float, default=1.0, help="what part of the tests to run, 0 to 1")
    parser.addoption("--seed", default="1", help="draws the tests of --share")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draw the share that was asked for, and let the files with the most work go first."""
    share, seed = config.getoption("share"), config.getoption("seed")
    drawn: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        drawn[is_drawn(item.nodeid, share, seed)].append(item)
    config.hook.pytest_deselected(items=drawn[False])
    items[:] = longest_first(drawn[True])


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
    reported = getattr(config, "workerinput", {}).get("servers")
    config.stash[_SERVERS] = Path(reported or tempfile.mkdtemp(prefix="sexton-servers-"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of the run where the servers are: its own where tests kill, pause and starve them."""
    shared = node.config.stash[_SERVERS]
    own = node.config.option.markexpr == "faults"
    node.workerinput["servers"] = str(shared / node.workerinput["workerid"] if own else shared)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the servers when all processes of the run are done."""
    if not hasattr(config, "workerinput"):
        folder = config.stash[_SERVERS]
        for each in (folder, *folder.glob("gw*")):
            stop_servers(each)
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """What the `sexton` command is forked from, where a test asks for what it does and not for its start."""
    started = Forks(tmp_path_factory.mktemp("forks"))
    yield started
    started.close()


@pytest.fixture(scope="session")
def stack(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, forks: Forks
) -> Iterator[LocalStack]:
    """The servers of the local stack without topics and issuer: `installation` brings those."""
    own = tmp_path_factory.mktemp("stack") / "own"
    with Stack.on(pytestconfig.stash[_SERVERS], own, forks) as started:
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
def cli(forks: Forks) -> Cli:
    """Run `sexton ARGUMENTS...`; `env` continues top of this process' environment, `timeout` is in
    seconds.
    """

    def run(
        *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        return forks.run(arguments, {**os.environ, **(env or {})}, timeout)

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


@pytest.fixture(scope="session")
def pack(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """A pack for the Python that this environment was made with."""
    python = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
    return make(
        tmp_path_factory.mktemp("packed") / "my pack #ä", python, stack.settings.cache_dir.expanduser()
    )


@pytest.fixture
def store(installation: Installation) -> ObjectStore:
    """The object store of the installation."""
    return ObjectStore(StoreSettings.of(installation.settings))
