"""The published engine beside Sexton: what rounds at random may not find, made to happen."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engines.engines import Engines
from tests.engines.gate import Gate
from tests.engines.one_task import OneTask
from tests.engines.rounds import held_put, play
from tests.engines.run import place
from tests.engines.turned import Turned
from tests.engines.world import PREFIX, Database, World
from tests.support import s3_stores, stores
from tests.support.s3_stores import Running
from tests.support.sequenced import client_of

from sexton.storage import BatchDeleter

pytestmark = [pytest.mark.stores, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A store whose conditional writes are real."""
    if s3_stores.binary_of(stores.VERSITYGW) is None:
        pytest.skip("versitygw is not built: make stores")
    with s3_stores.versitygw(tmp_path_factory.mktemp("versitygw")) as started:
        yield started


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The whole of it, with one installation."""
    if s3_stores.binary_of(stores.VERSITYGW) is None:
        pytest.skip("versitygw is not built: make stores")
    with place("versitygw", 1, tmp_path_factory.mktemp("engines"), 1) as made:
        yield made


@pytest.fixture
def alone(running: Running, tmp_path: Path) -> Iterator[World]:
    """One database without a log, and nobody who collects yet."""
    s3, bucket = client_of(running), f"engines-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    engines = Engines(running, bucket, tmp_path / "log")
    with closing(engines):
        yield World(engines, [], s3, bucket, random.Random(1), [Database(f"{PREFIX}db", log=False)])


def through(running: Running, gate: Gate) -> Running:
    """The store as it is reached through a gate."""
    return replace(running, settings=replace(running.settings, endpoint_url=gate.url))


def test_b_9_a_delete_before_its_boundary_loses_what_the_engine_called_durable(
    running: Running, alone: World
) -> None:
    """B-9, B-1: a held put tells the wrong order by the keys that are lost."""
    (database,) = alone.databases
    with alone.gate() as gate:
        s3 = client_of(through(running, gate))
        alone.sextons = [Turned(s3, alone.bucket, gate, [database.namespace("manifest")])]
        assert held_put(alone, database)
        alone.verify(database)

    assert [": read None, " in each for each in alone.violations] == [True] * 4


def test_b_9_a_put_that_was_held_across_one_task_of_the_reaper_is_refused(
    running: Running, alone: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-9, B-1: with the boundary before the delete the engine finds it, and nothing is lost."""
    for name, value in running.environ.items():
        monkeypatch.setenv(name, value)
    (database,) = alone.databases
    spaces = [database.namespace(name) for name in ("manifest", "compactions")]
    with alone.gate() as gate, BatchDeleter(through(running, gate).settings) as deleter:
        task = OneTask(deleter, alone.s3, alone.bucket, gate, spaces, alone.boundary)
        alone.sextons = [task]
        assert held_put(alone, database)
        alone.verify(database)

    assert alone.violations == []
    assert alone.fenced == 1
    assert alone.keys_compared > 20
    assert task.files_deleted > 5


def test_b_9_a_writer_whose_put_was_held_across_a_collection_is_refused(world: World) -> None:
    """B-9, B-1: the put succeeds, as its file is gone, and the engine finds the boundary: nothing is lost."""
    fenced, database = world.fenced, world.databases[1]
    assert held_put(world, database)
    world.verify(database)

    assert world.violations == []
    assert world.fenced == fenced + 1
    assert world.boundary(database.namespace("manifest")) > 0
    assert world.sextons[0].files_deleted > 0


def test_b_8_a_reaper_that_dies_between_boundary_and_delete_starts_again_and_deletes(world: World) -> None:
    """B-8: the boundary stands before the store sees the delete, and the next reaper converges."""
    play("reaper killed before its delete", world)

    assert world.violations == []
