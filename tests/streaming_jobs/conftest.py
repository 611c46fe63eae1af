"""Stores and reapers for the tests of this folder.

s3         a recorder that the whole chain can reach, with the local stack
recorder   a recorder alone, for what needs no chain
deleter    a client of `recorder`
moto       a client of a moto server, one for each module
on         a task's execution for boundary guards, against `recorder`
start      the reaper as a process
broker     a broker that asks for a login, with the topic `letters`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.support import s3_stores
from tests.support.abilities import knowing
from tests.support.boundaries import Bench, bench
from tests.support.commands import Command
from tests.support.s3_recorder import S3Recorder, recorder_of_this_process
from tests.support.secured_broker import SecuredBroker

from sexton.deploy.local import Installation, LocalStack
from sexton.storage import Ability, BatchDeleter, StoreSettings, Versioning


@pytest.fixture
def s3(stack: LocalStack) -> Iterator[S3Recorder]:
    """A recording S3 server that knows the stack's credentials, which Spark's workers have."""
    with S3Recorder(stack.env["AWS_ACCESS_KEY_ID"], stack.env["AWS_SECRET_ACCESS_KEY"]) as server:
        yield server


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Recorder]:
    """A recording S3 server whose credentials are in the environment; no stack is started for it."""
    with recorder_of_this_process(monkeypatch) as server:
        yield server


@pytest.fixture
def deleter(recorder: S3Recorder) -> Iterator[BatchDeleter]:
    """A deleter against `recorder` that knows three buckets: b is plain, v has versions, l has locks too."""
    with BatchDeleter(StoreSettings(recorder.url, requests_in_flight=4, read_timeout_s=10)) as made:
        made.learn(knowing("b"))
        made.learn(knowing("v", Versioning.ON))
        made.learn(knowing("l", Versioning.ON, Ability.YES))
        yield made


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BatchDeleter, Any]]:
    """A deleter against moto, and a client that is not ours."""
    with (
        s3_stores.moto(tmp_path_factory.mktemp("moto")) as running,
        pytest.MonkeyPatch.context() as environment,
    ):
        for name, value in running.environ.items():
            environment.setenv(name, value)
        client = boto3.session.Session().client(
            "s3", endpoint_url=running.settings.endpoint_url, region_name=running.settings.region
        )
        with BatchDeleter(running.settings) as deleter:
            yield deleter, client
        client.close()


@pytest.fixture
def start(installation: Installation) -> Iterator[Callable[..., Command]]:
    """Start reapers that do not outlive the test."""
    started: list[Command] = []

    def run(*arguments: str, **env: str) -> Command:
        started.append(Command(installation, *arguments, **env))
        return started[-1]

    yield run
    for command in started:
        command.end()


@pytest.fixture(scope="module")
def broker(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """The broker; `letters` has three records."""
    broker = SecuredBroker(stack, tmp_path_factory.mktemp("secured"))
    try:
        plain: dict[str, str | int | float | bool]
        plain = {"bootstrap.servers": broker.at["PLAIN"], "log_level": 0}
        admin = AdminClient(plain)
        admin.create_topics([NewTopic("letters", 1, 1)], operation_timeout=30)["letters"].result(30)
        producer = Producer(plain)
        for value in ("a", "b", "c"):
            producer.produce("letters", value)
        assert producer.flush(30) == 0
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def on(recorder: S3Recorder) -> Iterator[Bench]:
    """A task's execution against a recorder: manifests 1 to 10, boundary 3."""
    with bench(recorder) as made:
        yield made
