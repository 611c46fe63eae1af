"""A local stack of three brokers and two issuers: one of each dies, or is started again, under load.

One stack and one reaper for all tests, which leave every server running; they stand in the order in which a
failure of one would harm the next.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.sql import SparkSession
from tests.support.chain import Chain
from tests.support.commands import Command
from tests.support.intents import GONE, folded
from tests.support.waits import until

from sexton.deploy import topics
from sexton.deploy.local import BUCKET, LocalStack
from sexton.deploy.main import run
from sexton.producers import Sexton
from sexton.schemas import records
from sexton.schemas.errors import KafkaUnavailable, SextonError, UsageError
from sexton.schemas.kafka.reader import Reader
from sexton.storage import ObjectStore, StoreSettings

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(1500)]
_ENDURED_S = 600.0
_CLIENTS_OWN_S = 60.0  # how long Kafka's Java client stays with a broker that is gone, if nobody tells it
_CALL_S = "120"  # a leader that died is followed by another one after ten seconds; this machine may be slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """Three brokers, two issuers; this process' environment has the credentials of its store."""
    environ = {**os.environ, "SEXTON_ISSUER_TIMEOUT_S": _CALL_S, "SEXTON_REAPER_CORES": "1"}
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as environment:
        try:
            stack = LocalStack.start(folder, environ=environ, brokers=3, issuers=2, partitions=3)
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                environment.setenv(name, stack.env[name])
            yield stack
        finally:
            LocalStack(folder).stop()


@pytest.fixture(scope="module")
def chain(cluster: LocalStack) -> Chain:
    """Reads what stands in the topics of the stack."""
    return Chain(cluster.settings, cast(SparkSession, None), BUCKET)


@pytest.fixture(scope="module")
def store(cluster: LocalStack) -> ObjectStore:
    """The stack's store."""
    return ObjectStore(StoreSettings.of(cluster.settings))


class Supervised(Command):
    """A reaper that is started again when it ends because of its environment, as a supervisor does."""

    def __init__(self, cluster: LocalStack) -> None:
        self._cluster = cluster
        super().__init__(cluster)

    def until(self, what: Callable[[], object], seconds: float = 90, every_s: float = 0.05) -> None:
        """Return once something holds; what it ends with before is 75, no other code."""
        try:
            super().until(what, seconds, every_s)
        except AssertionError:
            if self.process.poll() != 75:
                raise
            self.wait()
            super().__init__(self._cluster)
            self.until(what, seconds, every_s)


@pytest.fixture(scope="module")
def reaper(cluster: LocalStack) -> Iterator[Command]:
    """A reaper that runs during all tests."""
    started = Supervised(cluster)
    try:
        started.until(lambda: started.events("ready"), _ENDURED_S)
        yield started
    finally:
        started.end()


class Load:
    """Services that attach and ask for deletions until they are stopped, and one that has been replaced."""

    _numbers = itertools.count(1)

    def __init__(self, cluster: LocalStack, store: ObjectStore) -> None:
        self.name = f"load-{next(self._numbers)}"
        self._store = store
        self._settings = cluster.settings
        self.asked: list[str] = []
        self.refused: list[str] = []
        self.generations: list[int] = []
        self.failed: list[SextonError] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._ask, self._attach)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def goes_on(self, reaper: Command, by: int = 3) -> None:
        """Return when calls that began after this moment were answered, and their intents executed."""
        asked, attached = len(self.asked) + by, len(self.generations) + by
        reaper.until(
            lambda: (
                self.failed
                or (len(self.generations) >= attached and len(self.asked) >= asked <= self._oldest())
            ),
            _ENDURED_S,
            0.5,
        )
        assert self.failed == []

    def kept(self) -> list[str]:
        """The objects that are still there."""
        return sorted(self._store.list_keys(BUCKET, f"{self.name}/"))

    def _oldest(self) -> int:
        """The lowest number of what its owner asked for, or will ask for next, and is still there."""
        names = (key.removeprefix(f"{self.name}/") for key in self.kept())
        there = (int(name.partition("-")[0]) for name in names if not name.startswith("kept-"))
        return min(there, default=len(self.asked))

    def _ask(self) -> None:
        with (
            Sexton.connect(node=f"{self.name}-old", settings=self._settings) as old,
            Sexton.connect(node=f"{self.name}-new", settings=self._settings) as new,
        ):
            replaced, owner = old.attach(self.name), new.attach(self.name)
            for number in itertools.count():
                keys = [owner.key(f"{self.name}/{number}"), f"{self.name}/kept-{number}"]
                for key in keys:
                    self._store.put(BUCKET, key, b"x")
                try:
                    right = owner.delete(BUCKET, keys[:1])
                    wrong = replaced.delete(BUCKET, keys[1:])
                    right.wait(_ENDURED_S)
                    wrong.wait(_ENDURED_S)
                except SextonError as error:
                    self.failed.append(error)
                    return
                self.asked += right.intent_ids
                self.refused += wrong.intent_ids
                if self._stop.wait(0.3):
                    return

    def _attach(self) -> None:
        with Sexton.connect(node=self.name, settings=self._settings) as service:
            while not self._stop.wait(0.2):
                try:
                    self.generations.append(service.attach(f"{self.name}-attached").generation)
                except SextonError as error:
                    self.failed.append(error)
                    return


def broker(number: int) -> str:
    """Name a broker's server."""
    return "kafka" if number == 1 else f"kafka-{number}"


def settle(load: Load, reaper: Command, chain: Chain) -> None:
    """Wait for the end of all that was asked for: what the owner asked for is gone, nothing else is."""
    kept = sorted(f"{load.name}/kept-{number}" for number in range(len(load.refused)))
    asked, refused = set(load.asked), set(load.refused)

    def outcomes(of: set[str]) -> tuple[set[str], set[str]]:
        """Which of these have an outcome, and what outcomes there are."""
        found = [each for each in chain.outcomes() if each.intent_id in of]
        return {each.intent_id for each in found}, {each.outcome.value for each in found}

    reaper.until(lambda: outcomes(asked | refused)[0] == asked | refused, _ENDURED_S, 1)
    assert outcomes(asked)[1] <= {"deleted", "absent"}
    assert outcomes(refused)[1] == {"stale"}
    assert load.kept() == kept
    assert load.failed == []
    assert load.generations == list(range(1, len(load.generations) + 1))
    assert chain.dead_letters() == []


def test_every_topic_has_three_copies(cluster: LocalStack) -> None:
    """All topics, Kafka's own too, have three copies, and what is checked finds nothing; both are named."""
    listed = AdminClient(cluster.settings.kafka(log_level=0)).list_topics(timeout=30).topics

    assert {len(p.replicas) for topic in listed.values() for p in topic.partitions.values()} == {3}
    assert topics.check_topics(cluster.settings) == []
    assert len(cluster.env["SEXTON_KAFKA_BOOTSTRAP_SERVERS"].split(",")) == 3
    one, other = cluster.env["SEXTON_ISSUER_URL"].split(",")
    assert one == f"http://{cluster.env['SEXTON_ISSUER_BIND']}" != other


def test_d_4_one_of_two_issuers_dies_and_both_are_restarted(
    cluster: LocalStack, store: ObjectStore, chain: Chain, reaper: Command
) -> None:
    """D-4: an issuer is killed, comes back, then each is restarted in turn: no call fails, no number is
    given twice, and the reaper judges on.
    """
    with Load(cluster, store) as load:
        load.goes_on(reaper)
        cluster.kill("issuer")
        load.goes_on(reaper)
        for name in ("issuer", "issuer-2", "issuer"):
            cluster.restart(name)
            load.goes_on(reaper)
    settle(load, reaper, chain)


def test_d_3_a_reader_finds_who_leads_after_a_leader_has_died(cluster: LocalStack) -> None:
    """D-3: one that has asked a leader before asks its successor, of its own, once there is one."""
    topic = cluster.settings.topic(records.DEFERRED)
    reader = Reader(cluster.settings, topic, "test", "reading")
    listed = AdminClient(cluster.settings.kafka(log_level=0)).list_topics(topic, timeout=30)
    name = broker(listed.topics[topic].partitions[0].leader)

    def answered() -> bool:
        """Whether the partition has bounds now."""
        try:
            return reader.bounds(0, 10)[0] >= 0
        except KafkaUnavailable:
            return False

    try:
        assert answered()
        cluster.kill(name)
        until(answered, 120, 0.5)
        assert reader.since({0: 0.0}, 10).keys() <= {0}
    finally:
        reader.close()
        cluster.restart(name)


def test_d_3_one_of_three_brokers_dies_then_another(
    cluster: LocalStack, store: ObjectStore, chain: Chain, reaper: Command
) -> None:
    """D-3: the broker that leads the log is killed, comes back, then another: nothing is lost, and only
    what a replaced service asked for is stale.
    """
    log = cluster.settings.topic(records.GENERATIONS)
    admin = AdminClient(cluster.settings.kafka(log_level=0))

    def partitions() -> list[tuple[int, int]]:
        """The leader of each partition and how many copies are in step, the log's first."""
        found = admin.list_topics(timeout=30).topics
        names = sorted(found, key=lambda name: name != log)
        return [(p.leader, len(p.isrs)) for name in names for p in found[name].partitions.values()]

    with Load(cluster, store) as load:
        load.goes_on(reaper)
        victims = []
        for _ in range(2):
            leader = partitions()[0][0]
            victims.append(leader)
            name = broker(leader)
            cluster.kill(name)
            load.goes_on(reaper)
            cluster.restart(name)
            until(lambda: {insync for _, insync in partitions()} == {3}, _ENDURED_S, 1)
            load.goes_on(reaper)
    settle(load, reaper, chain)
    assert len(set(victims)) == 2


def test_d_3_a_leader_dies_while_the_reaper_has_nothing_to_do(
    cluster: LocalStack, store: ObjectStore, chain: Chain, reaper: Command
) -> None:
    """D-3: a reaper that was asking the broker that dies how far intents go asks its successor in time."""
    name = cluster.settings.topic(records.INTENTS)
    listed = AdminClient(cluster.settings.kafka(log_level=0)).list_topics(name, timeout=30).topics[name]
    leaders = {number: found.leader for number, found in listed.partitions.items()}
    victim = broker(leaders[0])
    reached = next(number for number, leader in leaders.items() if leader != leaders[0])
    with chain.issuer() as issuer:
        generation = issuer.attach("node", "idle").generation
    store.put(BUCKET, "idle/a", b"x")
    intent = chain.intent("idle", generation, ["idle/a"])

    try:
        cluster.kill(victim)
        killed = time.monotonic()
        chain.emit(intent, partition=reached)
        reaper.until(lambda: folded(chain, intent) == [GONE], _ENDURED_S, 1)
        took_s = time.monotonic() - killed
    finally:
        cluster.restart(victim)

    assert took_s < _CLIENTS_OWN_S


def test_intents_in_a_partition_that_was_added(
    cluster: LocalStack, store: ObjectStore, chain: Chain, reaper: Command
) -> None:
    """A running reaper reads partitions that the intents topic gains, from their beginning."""
    name = cluster.settings.topic(records.INTENTS)
    admin = AdminClient(cluster.settings.kafka(log_level=0))
    with chain.issuer() as issuer:
        generation = issuer.attach("node", "added").generation
    admin.create_partitions([NewPartitions(name, 5)])[name].result(60)
    until(lambda: len(admin.list_topics(name, timeout=30).topics[name].partitions) == 5)
    store.put(BUCKET, "added/a", b"x")
    intent = chain.intent("added", generation, ["added/a"])

    chain.emit(intent, partition=4)

    reaper.until(lambda: folded(chain, intent) == [GONE], _ENDURED_S, 1)
    assert list(store.list_keys(BUCKET, "added/")) == []


def test_status_and_up_after_some_have_died(
    cluster: LocalStack, reaper: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """`status` has a row for each server; `up` starts those that died; `down` and `up` keep numbers, ports
    and data.
    """
    folder, before = str(cluster.directory), cluster.env
    reaper.process.send_signal(signal.SIGTERM)
    assert reaper.wait(120) == 0, reaper.printed
    for name in ("kafka-3", "issuer-2"):
        cluster.kill(name)

    assert run(["local", "status", "--dir", folder, "--format", "json"]) == 1
    rows = {row["part"]: row["state"] for row in json.loads(capsys.readouterr().out)["parts"]}
    assert {name for name, found in rows.items() if found == "dead"} == {"kafka-3", "issuer-2"}
    assert list(rows) == ["kafka", "kafka-2", "kafka-3", "redis", "s3", "issuer", "issuer-2"]
    with pytest.raises(UsageError, match="3, not 1"):
        LocalStack.start(Path(folder), brokers=1)
    again = LocalStack.start(Path(folder))
    assert again.env == before
    assert {row.state for row in again.status()} == {"ready"}

    again.stop()
    told: list[str] = []
    last = LocalStack.start(Path(folder), issuers=1, say=told.append)

    assert "topics: all there" in told
    assert last.env["SEXTON_KAFKA_BOOTSTRAP_SERVERS"] == before["SEXTON_KAFKA_BOOTSTRAP_SERVERS"]
    assert last.env["SEXTON_ISSUER_URL"] == before["SEXTON_ISSUER_URL"].split(",")[0]
