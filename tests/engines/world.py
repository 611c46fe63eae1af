"""Databases of the engine under one prefix, what each has to hold, and how they are read back."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.engines.engines import Engine, Engines, Refused
from tests.engines.gate import Gate, Passing, opened
from tests.engines.oracle import Book, Value

from sexton.schemas.sequenced import Namespace, parse_boundary

__all__ = ["PREFIX", "Collects", "Database", "World", "write"]

PREFIX = "databases/"
_NAMES = ("manifest", "compactions")
_CHECKPOINTS, _CLONES, _SHARED = 3, 3, 10
Pairs = list[tuple[str, Value]]


class Collects(Protocol):
    """What asks for the deletion of files and carries it out; it reaches the store through `gate`."""

    gate: Gate

    @property
    def files_deleted(self) -> int:
        """How many files are gone by its receipts."""

    def collect(self, prefix: str) -> None:
        """Find files and ask for their deletion."""

    def settle(self) -> None:
        """Return once all of that is done."""

    def kill_reaper(self) -> None:
        """End what deletes, in the middle of whatever it does."""

    def start_reaper(self) -> None:
        """Start it again."""


@dataclass
class Database:
    """One database, its checkpoints and its clones; `log` is False where only a manifest makes durable."""

    path: str
    log: bool
    book: Book = field(default_factory=Book)
    checkpoints: dict[str, Book] = field(default_factory=dict)
    clones: dict[str, Book] = field(default_factory=dict)
    writer: Engine | None = None

    def namespace(self, name: str) -> Namespace:
        """The files of one kind."""
        return Namespace(self.path, name)


@dataclass
class World:
    """All there is in one run, and what was found to be wrong; `s3` is a client of its own."""

    engines: Engines
    sextons: Sequence[Collects]
    s3: Any
    bucket: str
    random: random.Random
    databases: list[Database]
    violations: list[str] = field(default_factory=list)
    keys_compared: int = 0
    advances: int = 0
    checkpoints: int = 0
    clones: int = 0
    fenced: int = 0
    held_to_the_end: int = 0

    def __post_init__(self) -> None:
        self._boundaries: dict[str, int] = {}
        self._number = 0
        self._reader_process: Engine | None = None

    def gate(self) -> AbstractContextManager[Gate]:
        """Open a gate before the store for a writer."""
        url = self.engines.running.settings.endpoint_url
        assert url is not None
        return opened(url)

    def namespaces(self) -> list[Namespace]:
        """Return the namespaces of all databases and clones."""
        paths = [path for each in self.databases for path in (each.path, *each.clones)]
        return [Namespace(path, name) for path in paths for name in _NAMES]

    def deletes_files(self, passing: Passing) -> bool:
        """Return whether a request deletes files, and not what a probe has made for itself."""
        spaces = self.namespaces()
        return any(space.id_of(key) is not None for key in passing.deleted for space in spaces)

    def toss(self) -> bool:
        """Toss a coin."""
        return self.random.random() < 0.5

    def pairs(self, count: int) -> Pairs:
        """Return writes: keys of their own, some that were written before, some deletions."""
        made: Pairs = []
        for _ in range(count):
            self._number += 1
            shared = self.random.random() < 0.3
            key = f"shared-{self.random.randrange(_SHARED)}" if shared else f"key-{self._number:06d}"
            made.append((key, None if shared and self.random.random() < 0.2 else f"value-{self._number}"))
        return list(dict(made).items())

    def own(self, count: int) -> Pairs:
        """Return writes of keys that nobody else writes."""
        numbers = range(self._number + 1, self._number + 1 + count)
        self._number += count
        return [(f"key-{number:06d}", f"value-{number}") for number in numbers]

    def open(self, database: Database, url: str | None = None) -> Engine:
        """Open a database for writing in a new process, which fences the one before."""
        made = self.engines.start(url)
        made.ask("open", path=database.path, log=database.log)
        return made

    def writing(self, database: Database) -> Engine:
        """Return the writer of a database, opened if there is none."""
        if database.writer is None:
            database.writer = self.open(database)
        return database.writer

    def end(self, database: Database) -> None:
        """End a database's writer."""
        if database.writer is not None:
            self.engines.end(database.writer)
            database.writer = None

    def tend(self, database: Database) -> None:
        """Take or drop a checkpoint, make a clone: whatever the seed wants; nothing is being written."""
        drawn, reader = self.random.random(), self._reader()
        if drawn < 0.3 and len(database.checkpoints) < _CHECKPOINTS:
            self._checkpoint(database)
        elif drawn < 0.5 and database.checkpoints and len(database.clones) < _CLONES:
            id = self.random.choice(sorted(database.checkpoints))
            to = f"{database.path}-clone-{self.clones}"
            reader.ask("clone", path=database.path, id=id, to=to)
            database.clones[to] = database.checkpoints[id].snapshot()
            self.clones += 1
        elif drawn < 0.7 and database.checkpoints:
            id = self.random.choice(sorted(database.checkpoints))
            reader.ask("drop", path=database.path, id=id)
            del database.checkpoints[id]

    def collect_by_itself(self, database: Database) -> None:
        """Run the engine's own collector."""
        self._reader().ask("collect", path=database.path)

    def verify(self, database: Database) -> None:
        """Read a database, its checkpoints and its clones whole, and note every difference."""
        self._compare(database.path, None, database.book)
        for id, book in database.checkpoints.items():
            self._compare(database.path, id, book)
        for path, book in database.clones.items():
            self._compare(path, None, book)
        for namespace in self.namespaces():
            self._watch(namespace)

    def boundary(self, namespace: Namespace) -> int:
        """Return a boundary as it is now; 0 where there is none."""
        try:
            answer = self.s3.get_object(Bucket=self.bucket, Key=namespace.boundary_key)
        except self.s3.exceptions.NoSuchKey:
            return 0
        return parse_boundary(answer["Body"].read())

    def has(self, key: str) -> bool:
        """Return whether an object is there."""
        listed = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=key).get("Contents", ())
        return any(each["Key"] == key for each in listed)

    def _checkpoint(self, database: Database) -> None:
        made = self._reader().ask("checkpoint", path=database.path)
        # What is open is settled first: the checkpoint has it or has it not.
        self._compare(database.path, None, database.book)
        database.checkpoints[made["id"]] = database.book.snapshot()
        self.checkpoints += 1

    def _compare(self, path: str, checkpoint: str | None, book: Book) -> None:
        place = path if checkpoint is None else f"{path} as of {checkpoint}"
        try:
            found = self._read(path, checkpoint)
        except Refused as error:
            self.violations.append(f"{place}: cannot be read: {error}")
            return
        self.keys_compared += book.keys
        self.violations += [f"{place}: {each}" for each in book.differences(found)]

    def _read(self, path: str, checkpoint: str | None) -> dict[str, str]:
        managed = checkpoint is None and self.random.random() < 0.2
        request = {"path": path, "checkpoint": checkpoint, "managed": managed}
        try:
            answer = self._reader().ask("read", **request)
        except Refused:
            # It may have listed a manifest and not found it: files go at an age of nothing here. Not twice.
            answer = self._reader().ask("read", **request)
        found: dict[str, str] = answer["found"]
        return found

    def _watch(self, namespace: Namespace) -> None:
        before, now = self._boundaries.get(namespace.text, 0), self.boundary(namespace)
        if now < before:
            self.violations.append(f"{namespace.boundary_key}: was {before}, is {now}")
        self.advances += now > before
        self._boundaries[namespace.text] = now

    def _reader(self) -> Engine:
        if self._reader_process is None:
            self._reader_process = self.engines.start()
        return self._reader_process


def write(database: Database, engine: Engine, pairs: Pairs, *, flush: bool = True) -> None:
    """Write and note that the engine said it is durable; without a log that takes a flush."""
    database.book.sent(pairs)
    engine.ask("write", pairs=pairs, flush=flush or not database.log)
    database.book.answered(pairs)
