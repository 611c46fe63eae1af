"""The published engine beside Sexton: what rounds at random may not find, made to happen."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engines.engines import Engines
from tests.engines.gate import opened
from tests.engines.rounds import held_put, play
from tests.engines.run import place
from tests.engines.turned import Turned
from tests.engines.world import PREFIX, Database, World
from tests.support import s3_stores, stores
from tests.support.s3_stores import Running
from tests.support.sequenced import client_of

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


@pytest.mark.parametrize("deletes_first", [False, True])
def test_b_9_a_delete_before_its_boundary_loses_what_the_engine_called_durable(
    running: Running, tmp_path: Path, deletes_first: bool
) -> None:
    """B-9, B-1: a held put tells the wrong order by the keys that are lost, and lets the right one pass."""
    s3, bucket = client_of(running), f"engines-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    database, engines = Database(f"{PREFIX}db", log=False), Engines(running, bucket, tmp_path / "log")
    url = running.settings.endpoint_url
    assert url is not None
    try:
        with opened(url) as gate:
            through = client_of(replace(running, settings=replace(running.settings, endpoint_url=gate.url)))
            turned = Turned(through, bucket, gate, [database.namespace("manifest")], deletes_first)
            world = World(engines, [turned], s3, bucket, random.Random(1), [database])
            assert held_put(world, database)
            world.verify(database)
    finally:
        engines.close()

    assert world.keys_compared > 20
    assert [": read None, " in each for each in world.violations] == [True] * (4 if deletes_first else 0)


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
