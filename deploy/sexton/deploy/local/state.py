"""What a local stack has started, on disk: `state.json` in its folder."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sexton.deploy.local.process import Process
from sexton.deploy.output import told_when_slow
from sexton.schemas.errors import EnvironmentFault, UsageError

__all__ = ["State", "forget", "is_new", "load", "locked", "save"]

# An older one knows one server of each part, and would leave out a broker that it does not know: it reads
# this form no more. What it wrote itself is read.
_VERSION = 2
_ONE_OF_EACH = 1
_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class State:
    """Ports by purpose, processes by name, the parts that were left out, the file of faults to play, and how
    many servers a part has that may have several.
    """

    ports: Mapping[str, int] = field(default_factory=dict)
    processes: Mapping[str, Process] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    faults: str | None = None
    servers: Mapping[str, int] = field(default_factory=dict)


def load(directory: Path) -> State:
    """Return the state of the stack in `directory`; an empty one if none was ever started there.

    Raises EnvironmentFault when the file is there and cannot be understood: its processes are then unknown.
    """
    path = _path(directory)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return State()
    except OSError as error:
        raise _unusable(directory, error) from error
    try:
        raw = json.loads(text)
        if raw["version"] not in (_ONE_OF_EACH, _VERSION):
            raise ValueError(f"version {raw['version']}")
        servers = {} if raw["version"] == _ONE_OF_EACH else raw["servers"]
        processes = {
            name: Process(int(entry["pid"]), str(entry["start"])) for name, entry in raw["processes"].items()
        }
        counts = {part: int(count) for part, count in servers.items()}
        return State(dict(raw["ports"]), processes, frozenset(raw["without"]), raw.get("faults"), counts)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EnvironmentFault(
            f"the local stack's state cannot be read: {path}: {error}",
            hint="end its processes by hand, then remove the file",
        ) from error


def is_new(directory: Path) -> bool:
    """Return whether no stack was ever started there, nor is being started now; raises as `load` does."""
    return load(directory) == State() and not (directory / _LOCK).exists()


def save(directory: Path, state: State) -> None:
    """Write the state, whole or not at all; raises EnvironmentFault where that cannot be."""
    raw = {
        "version": _VERSION,
        "ports": dict(state.ports),
        "processes": {
            name: {"pid": process.pid, "start": process.start} for name, process in state.processes.items()
        },
        "without": sorted(state.without),
        "faults": state.faults,
        "servers": dict(state.servers),
    }
    path = _path(directory)
    unfinished = path.with_suffix(f".{os.getpid()}")
    try:
        unfinished.write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise EnvironmentFault(
            f"the local stack's state cannot be written: {path}: {error.strerror}",
            hint="`sexton local down --wipe` removes the stack, --dir names another folder for one",
        ) from error


@contextmanager
def locked(directory: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Keep a second command from changing the same stack at the same time; it waits, and says so.

    Raises UsageError for a folder that cannot be made or written.
    """
    descriptor = _locked(directory, say)
    try:
        yield
    finally:
        os.close(descriptor)


def forget(directory: Path) -> None:
    """Remove the state and the lock, which the caller holds, and the folder if nothing is left in it."""
    for path in (_path(directory), directory / _LOCK):
        path.unlink(missing_ok=True)
    with suppress(OSError):  # somebody else's files are in it
        directory.rmdir()


def _locked(directory: Path, say: Callable[[str], None]) -> int:
    """Return the descriptor of the lock file that is there now: whoever had it before may have removed it."""
    while True:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unusable(directory, error) from error
        try:
            _take(descriptor, partial(say, f"waiting for another command that works on {directory}"))
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _take(descriptor: int, tell: Callable[[], None]) -> None:
    """Return with the lock; `tell` is called, once, if it is not to be had soon."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with told_when_slow(tell):
            fcntl.flock(descriptor, fcntl.LOCK_EX)


def _unusable(directory: Path, error: OSError) -> UsageError:
    return UsageError(
        f"the folder of the local stack cannot be used: {directory}: {error.strerror}",
        hint="--dir or SEXTON_STATE_DIR names a folder that can be made and written by this user",
    )


def _path(directory: Path) -> Path:
    return directory / "state.json"
