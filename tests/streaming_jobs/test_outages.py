"""What a reaper needs goes away and comes back while it runs: it waits, or it is started again."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from typing import cast

import pytest
from pyspark.sql import SparkSession
from tests.support.chain import Chain
from tests.support.commands import Command
from tests.support.intents import GONE, PROMISE, folded
from tests.support.registry import SchemaRegistry
from tests.support.relay import Relay, relayed

from sexton.deploy.local import Installation, LocalStack
from sexton.schemas import events
from sexton.schemas.registry import open_codec
from sexton.storage import ObjectStore, StoreSettings

pytestmark = [pytest.mark.real, pytest.mark.faults, pytest.mark.timeout(900)]


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    """A schema registry that can go away."""
    with SchemaRegistry() as server:
        yield server


@pytest.fixture
def alone(
    tmp_path_factory: pytest.TempPathFactory, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Installation]:
    """An installation on servers of its own, whose records are framed as a registry says."""
    environ = {**os.environ, "SEXTON_SCHEMA_REGISTRY_URL": registry.url}
    folder = tmp_path_factory.mktemp("alone")
    stack = LocalStack.start(folder, without={"bucket", "issuer", "topics"}, environ=environ)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, stack.env[name])
    try:
        yield Installation.start(stack, "alone")
    finally:
        stack.stop()


class Supervised:
    """A reaper that is started again when it ends because of its environment, as a supervisor does."""

    def __init__(self, installation: Installation, relay: Relay, chain: Chain) -> None:
        self._installation, self._relay, self._chain = installation, relay, chain
        self.ended: list[str] = []
        self.command = self._start()

    def until_held(self, why: str) -> None:
        """Return once it says that a micro-batch is held for this reason."""
        self.command.until(lambda: [each for each in self.command.events("held") if why in each["fault"]])

    def until(self, kind: str, *intents: events.DeletionIntent) -> None:
        """Return once each intent has this folded outcome; what it ends with in between is 75, no other
        code.
        """
        while not self._holds(lambda: set(folded(self._chain, *intents)) == {kind}):
            assert self.command.wait() == 75, self.command.printed
            self.ended.append(self.command.printed)
            self.command = self._start()

    def _holds(self, what: Callable[[], bool]) -> bool:
        try:
            self.command.until(what, 200)
        except AssertionError:
            if self.command.process.poll() is None:
                raise
            return False
        return True

    def _start(self) -> Command:
        return Command(self._installation, SEXTON_ISSUER_URL=self._relay.url)


def test_q_4_a_running_reaper_outlives_what_it_needs(alone: Installation, registry: SchemaRegistry) -> None:
    """Q-4: registry, issuer, Redis and the only broker go in turn: nothing is lost, no verdict changes."""
    stack, settings = alone.stack, alone.settings
    chain = Chain(settings, cast(SparkSession, None), alone.bucket, open_codec(settings))
    store = ObjectStore(StoreSettings.of(settings))
    for name in ("a", "b", "c", "d", "e", "f", "kept-1", "kept-2", "kept-3"):
        store.put(alone.bucket, name, b"x")
    with chain.issuer() as issuer:
        first = issuer.attach("first", "t").generation
    redis_files, dump = stack.directory / "redis" / "appendonlydir", stack.directory / "dump"
    shutil.copytree(redis_files, dump)
    by_promise = chain.intent("t", None, ["a"], guards=PROMISE)
    chain.codec.encode(by_promise)  # which tells the registry its schema

    with relayed(settings.issuer_url) as relay:
        reaper = Supervised(alone, relay, chain)
        try:
            # The registry: nobody knows what the record says, so it is held and no dead letter.
            registry.away = True
            chain.emit(by_promise)
            reaper.until_held("the schema registry does not answer")
            registry.away = False
            reaper.until(GONE, by_promise)

            # The issuer, between barrier and validate; what was accepted before is accepted still.
            accepted = chain.intent("t", first, ["b"])
            relay.after_barrier = alone.kill_issuer
            chain.emit(accepted)
            reaper.until_held("the issuer does not answer")
            assert folded(chain, accepted) == ["pending"]
            alone.start_issuer()
            with chain.issuer() as issuer:
                second = issuer.attach("second", "t").generation
            reaper.until(GONE, accepted)

            # Redis, which believes in the first generation again; the log does not.
            def replace_redis() -> None:
                stack.kill("redis")
                shutil.rmtree(redis_files)
                shutil.copytree(dump, redis_files)
                stack.restart("redis")

            relay.after_barrier = replace_redis
            stale = [chain.intent("t", first, [f"kept-{n}"]) for n in (1, 2, 3)]
            current = [chain.intent("t", second, [name]) for name in ("c", "d", "e", "f")]
            chain.emit(stale[0], current[0])
            reaper.until(GONE, current[0])
            reaper.until("stale", stale[0])
            assert reaper.ended == []

            # The only broker, after the barrier: deletes are done, their receipts wait until it is back.
            back = threading.Thread(target=stack.restart, args=("kafka",))

            def kill_broker() -> None:
                stack.kill("kafka")
                back.start()

            relay.after_barrier = kill_broker
            chain.emit(*current[1:3], stale[1])
            reaper.command.until(back.is_alive)
            back.join(60)
            reaper.until(GONE, *current[1:3])
            reaper.until("stale", stale[1])
            chain.emit(current[3], stale[2])
            reaper.until(GONE, current[3])
            reaper.until("stale", stale[2])

            reaper.command.process.send_signal(signal.SIGTERM)
            assert reaper.command.wait(30) == 0, reaper.command.printed
        finally:
            reaper.command.end()
    assert sorted(store.list_keys(alone.bucket, "")) == ["kept-1", "kept-2", "kept-3"]
    assert {o.outcome.value for o in chain.outcomes()} <= {"deleted", "absent", "stale"}
    assert (chain.dead_letters(), chain.deferred()) == ([], [])
    with chain.issuer() as issuer:
        assert issuer.attach("third", "t").generation == second + 1
