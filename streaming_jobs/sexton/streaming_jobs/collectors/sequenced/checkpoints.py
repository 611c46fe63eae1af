"""Who says which files checkpoints hold. What nobody has said is unknown, and never "none"."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from sexton.schemas.errors import InvalidEvent, SextonError, UsageError
from sexton.schemas.forms import from_json, names_once
from sexton.schemas.sequenced import MAX_BOUNDARY
from sexton.storage import BucketAddress

__all__ = [
    "Answer",
    "Checkpoints",
    "CheckpointsUnreadable",
    "FromFile",
    "Held",
    "NoCheckpoints",
    "NotSaid",
    "Unknown",
    "held_in",
]

_VERSION = 1
_HINT = "nothing was decided; docs/sequenced.md has the form of the file"


class CheckpointsUnreadable(SextonError):
    """The file that says what checkpoints hold cannot be read: nobody concludes that there are none."""

    usual_hint = _HINT


@dataclass(frozen=True, slots=True)
class Held:
    """A file that a checkpoint holds, of the name or of every one; with `expires_at` up to that instant."""

    id: int
    name: str | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why nobody can tell what is held in a database."""

    why: str


Answer = Sequence[Held] | Unknown


class Checkpoints(Protocol):
    """Tells what the checkpoints of databases hold."""

    def check(self, names: Sequence[str]) -> None:
        """Raise UsageError where it cannot tell of any database with files of these names."""

    def ask(self, address: BucketAddress, bucket: str, newest: Mapping[str, int | None]) -> dict[str, Answer]:
        """Return what is held in each database by its root.

        `newest` has the newest manifest that is listed of each, None where none is. Raises SextonError where
        nothing can be told of any.
        """


@dataclass(frozen=True, slots=True)
class NotSaid:
    """Nobody has said whether there are any."""

    def check(self, names: Sequence[str]) -> None:
        """Nothing can be wrong."""

    def ask(self, address: BucketAddress, bucket: str, newest: Mapping[str, int | None]) -> dict[str, Answer]:
        """Return that it is not known."""
        why = "nobody has said what checkpoints hold: --checkpoints slatedb, a file, or none"
        return {root: Unknown(why) for root in newest}


@dataclass(frozen=True, slots=True)
class NoCheckpoints:
    """The operator has said that the engine has none."""

    def check(self, names: Sequence[str]) -> None:
        """Nothing can be wrong."""

    def ask(self, address: BucketAddress, bucket: str, newest: Mapping[str, int | None]) -> dict[str, Answer]:
        """Return that nothing is held."""
        return dict.fromkeys(newest, ())


@dataclass(frozen=True, slots=True)
class FromFile:
    """A JSON file, read at every run; a database that it does not have is unknown."""

    path: Path

    def check(self, names: Sequence[str]) -> None:
        """Raise UsageError without the file."""
        if not self.path.is_file():
            raise UsageError(
                f"--checkpoints: no such file: {self.path}", hint="slatedb, none, or a JSON file's path"
            )

    def ask(self, address: BucketAddress, bucket: str, newest: Mapping[str, int | None]) -> dict[str, Answer]:
        """Return what the file says now; raises CheckpointsUnreadable."""
        try:
            said = parse(self.path.read_bytes())
        except OSError as error:
            raise CheckpointsUnreadable(f"{self.path}: {error.strerror}") from error
        except CheckpointsUnreadable as error:
            raise CheckpointsUnreadable(f"{self.path}: {error}") from error
        missing = Unknown(f"{self.path} does not have the database")
        return {root: said.get(root, missing) for root in newest}


def parse(body: bytes) -> dict[str, Sequence[Held]]:
    """Return what is held in each database by its root; raises CheckpointsUnreadable for another form."""
    try:
        plain = json.loads(body, object_pairs_hook=names_once)
        if not isinstance(plain, dict) or plain.keys() != {"version", "databases"}:
            raise CheckpointsUnreadable("it has the fields version and databases, and no others")
        if type(plain["version"]) is not int or plain["version"] != _VERSION:
            raise CheckpointsUnreadable(f"version {plain['version']!r:.20} is not {_VERSION}")
        if not isinstance(plain["databases"], dict):
            raise CheckpointsUnreadable("databases is an object: from a database's root to a list")
        return {
            root: [_held(root, each) for each in _list(root, of)] for root, of in plain["databases"].items()
        }
    except (ValueError, InvalidEvent, RecursionError) as error:
        raise CheckpointsUnreadable(str(error)) from error


def held_in(held: Sequence[Held], name: str, *instants: datetime) -> frozenset[int]:
    """Return the ids that are held of a name; what has expired holds nothing, once each clock says so.

    `instants` are what the clocks show: ours, and the store's.
    """
    return frozenset(
        each.id
        for each in held
        if each.name in (None, name) and not (each.expires_at and each.expires_at < min(instants))
    )


def _held(root: str, plain: Any) -> Held:
    found = from_json(Held, plain)
    if not 0 <= found.id <= MAX_BOUNDARY:
        raise CheckpointsUnreadable(f"{root!r:.80}: no id: {found.id}")
    return found


def _list(root: str, plain: Any) -> list[Any]:
    if not isinstance(plain, list):
        raise CheckpointsUnreadable(f"{root!r:.80}: not a list of what is held")
    return plain
