"""The rounds, by kind. Each breaks something while files are collected, and leaves all of it whole again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tests.engines.engines import Engine, Gone, Refused
from tests.engines.gate import Passing
from tests.engines.world import PREFIX, Collects, Database, Pairs, World, write

__all__ = ["KINDS", "held_put", "play"]

_ARRIVES_SECONDS = 600.0
_ANSWERS_SECONDS = 120.0
_YOUNG_S = 1.1
"""A store tells in whole seconds when a file was written: one of the same second is no older than any age."""

KINDS = {
    "collected while it writes": 3,
    "writer stopped and woken": 2,
    "writer killed": 2,
    "put of a manifest held": 2,
    "two reapers at once": 2,
    "reaper killed before its delete": 1,
}
"""How often each kind comes in a deal."""


def play(kind: str, world: World) -> None:
    """Play one round on a database that the seed chooses, and read everything of it back."""
    database = world.random.choice(world.databases)
    if kind == "put of a manifest held":
        # Only where a manifest alone makes a write durable is one lost when two manifests have one number.
        database = next(each for each in world.databases if not each.log)
    _ROUNDS[kind](world, database)
    world.verify(database)
    world.tend(database)


@contextmanager
def collecting(world: World, *sextons: Collects, beside: bool) -> Iterator[None]:
    """Collect beside the block and settle after it; `beside`: so does the engine's own collector."""
    with ThreadPoolExecutor(len(sextons)) as pool:
        begun = [pool.submit(sexton.collect, PREFIX) for sexton in sextons]
        yield
        for each in begun:
            each.result()
    if beside:  # while the reapers take what was asked for, which is the same files
        for database in world.databases:
            world.collect_by_itself(database)
    for sexton in sextons:
        sexton.settle()


def _writes_on(world: World, database: Database) -> None:
    """A writer that writes before, during and after a collection."""
    writer = world.writing(database)
    for _ in range(world.random.randrange(2, 6)):
        write(database, writer, world.pairs(6))
    with collecting(world, world.sextons[0], beside=world.toss()):
        for _ in range(world.random.randrange(2, 12)):
            write(database, writer, world.pairs(4), flush=world.random.random() < 0.7)
    write(database, writer, world.pairs(4))


def _stopped(world: World, database: Database) -> None:
    """A writer is stopped in the middle of a write and woken when another one has taken over."""
    stale = world.writing(database)
    write(database, stale, world.pairs(6))
    pairs = world.own(4)
    database.book.sent(pairs)
    answer = stale.begin("write", pairs=pairs, flush=True)
    time.sleep(world.random.uniform(0, 0.03))
    stale.stop()
    database.writer = world.open(database)
    for _ in range(world.random.randrange(2, 5)):
        write(database, database.writer, world.pairs(4))
    with collecting(world, world.sextons[0], beside=world.toss()):
        write(database, database.writer, world.pairs(4))
    stale.wake()
    _note(database, pairs, answer)
    _must_be_fenced(world, database, stale)
    world.engines.end(stale)


def _killed(world: World, database: Database) -> None:
    """A writer is killed in the middle of a write; the next one opens while files are collected."""
    writer = world.writing(database)
    write(database, writer, world.pairs(6))
    pairs = world.pairs(6)
    database.book.sent(pairs)
    answer = writer.begin("write", pairs=pairs, flush=world.random.random() < 0.5)
    time.sleep(world.random.uniform(0, 0.03))
    world.end(database)
    _note(database, pairs, answer)
    with collecting(world, world.sextons[0], beside=world.toss()):
        writer = world.writing(database)
        # What became of the writes that were not answered is seen before anything is written over them.
        world.verify(database)
        for _ in range(3):
            write(database, writer, world.pairs(4))


def held_put(world: World, database: Database) -> bool:
    """Hold a writer's next manifest until the file of its number has been created, collected and is gone.

    It is let go at the earliest moment at which its create can succeed: when the store has deleted the file,
    before the reaper knows, so that whatever a reaper does after a delete comes too late. Returns whether it
    came to that.
    """
    world.end(database)
    sexton, let_go = world.sextons[0], threading.Event()
    with world.gate() as gate:
        stale = world.open(database, gate.url)
        write(database, stale, world.pairs(4))
        manifests = database.namespace("manifest")
        held = gate.next(
            lambda passing: passing.method == "PUT" and manifests.id_of(passing.key) is not None,
            before=lambda: _wait(let_go),
        )
        pairs = world.own(4)
        database.book.sent(pairs)
        answer = stale.begin("write", pairs=pairs, flush=True)
        _wait(held.arrived)
        database.writer = world.open(database)
        for _ in range(world.random.randrange(3, 6)):
            write(database, database.writer, world.pairs(4))

        def deleted() -> None:
            let_go.set()
            _note(database, pairs, answer)

        time.sleep(_YOUNG_S)
        gone = sexton.gate.next(lambda passing: held.key in passing.deleted, after=deleted)
        # Without the engine's own collector, which would raise the boundary too.
        with collecting(world, sexton, beside=False):
            write(database, database.writer, world.pairs(4))
        sexton.gate.forget()
        let_go.set()
        _note(database, pairs, answer)
        _must_be_fenced(world, database, stale)
        world.engines.end(stale)
    return gone.arrived.is_set()


def _held(world: World, database: Database) -> None:
    world.held_to_the_end += held_put(world, database)


def _two_reapers(world: World, database: Database) -> None:
    """Two installations find and delete the same files at once."""
    writer = world.writing(database)
    for _ in range(4):
        write(database, writer, world.pairs(4))
    with collecting(world, *world.sextons, beside=world.toss()):
        for _ in range(world.random.randrange(2, 8)):
            write(database, writer, world.pairs(4))


def _reaper_killed(world: World, database: Database) -> None:
    """A reaper dies when it has raised the boundary and before the store sees its delete."""
    sexton, writer = world.sextons[0], world.writing(database)
    for _ in range(4):
        write(database, writer, world.pairs(4))

    def kill() -> None:
        _check_order(world, killed.passing)
        sexton.kill_reaper()
        raise ConnectionResetError

    time.sleep(_YOUNG_S)
    killed = sexton.gate.next(world.deletes_files, before=kill)
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(sexton.collect, PREFIX)
        _wait(killed.arrived)
        begun.result()
    write(database, writer, world.pairs(4))
    world.verify(database)
    sexton.start_reaper()
    write(database, writer, world.pairs(4))
    sexton.settle()
    assert killed.passing is not None
    if left := [key for key in killed.passing.deleted if world.has(key)]:
        world.violations.append(f"settled, and still there: {left}")


def _check_order(world: World, passing: Passing | None) -> None:
    """No delete reaches the store before its boundary is there."""
    assert passing is not None
    for namespace in world.namespaces():
        ids = [id for key in passing.deleted if (id := namespace.id_of(key)) is not None]
        if ids and world.boundary(namespace) < max(ids):
            world.violations.append(f"{namespace.text}: {max(ids)} was to be deleted before the boundary")


def _note(database: Database, pairs: Pairs, answer: Future[dict[str, Any]]) -> None:
    """Wait for the answer to a write: durable, or of unknown fate."""
    try:
        answer.result(_ANSWERS_SECONDS)
    except (Refused, Gone):
        return
    database.book.answered(pairs)


def _must_be_fenced(world: World, database: Database, stale: Engine) -> None:
    pairs = world.own(1)
    try:
        stale.ask("write", pairs=pairs, flush=True)
    except Refused as error:
        if error.fenced:
            world.fenced += 1
            return
        world.violations.append(f"{database.path}: a writer that was replaced met something else: {error}")
        return
    world.violations.append(f"{database.path}: a writer that was replaced continues: {pairs}")


def _wait(event: threading.Event) -> None:
    if not event.wait(_ARRIVES_SECONDS):
        raise TimeoutError("what a request was held for did not come")


_ROUNDS: dict[str, Callable[[World, Database], None]] = {
    "collected while it writes": _writes_on,
    "writer stopped and woken": _stopped,
    "writer killed": _killed,
    "put of a manifest held": _held,
    "two reapers at once": _two_reapers,
    "reaper killed before its delete": _reaper_killed,
}
