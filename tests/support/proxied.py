"""The proxy that plays faults, in this process before a strict store, and what its clients are reported."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.s3_recorder import S3Recorder

from sexton.deploy.local.faults.proxy import FaultProxy
from sexton.storage import BatchDeleter, BatchResult, KeyState

BUCKET = "bucket"


@dataclass(frozen=True, slots=True)
class Played:
    """What one rule has played."""

    rule: str
    what: str
    keys: Sequence[str]


@dataclass(frozen=True, slots=True)
class Logged:
    """A line of the request log; exactly these are its fields."""

    at: str
    ms: float
    number: int
    connection: int
    method: str
    target: str
    operation: str
    bucket: str
    keys: Sequence[str]
    versions: Sequence[str | None]
    status: int | None
    store_status: int | None
    forwarded: bool
    played: Sequence[Played]


@dataclass(frozen=True, slots=True)
class Running:
    """A proxy that answers at `url`, plays what stands in `file`, and logs to `log`."""

    url: str
    file: Path
    log: Path

    def play(self, rules: str = "") -> None:
        """Play these rules (TOML) from the next request on; without any, only record."""
        # In one step: a request that comes meanwhile must not find half a file.
        fresh = self.file.with_suffix(".new")
        fresh.write_text(rules, encoding="utf-8")
        fresh.replace(self.file)

    def requests(self, operation: str | None = None) -> list[Logged]:
        """The requests so far, or those of one operation, in the order of their answers."""
        return [each for each in read_log(self.log) if operation in (None, each.operation)]


@contextmanager
def running(store: str, directory: Path, rules: str = "") -> Iterator[Running]:
    """Run a proxy in front of a store for the length of the block; `directory` gets its two files."""
    directory.mkdir(parents=True, exist_ok=True)
    file, log = directory / "faults.toml", directory / "requests.jsonl"
    file.write_text(rules, encoding="utf-8")
    with log.open("ab") as stream, FaultProxy("127.0.0.1:0", store, file, stream) as proxy:
        threading.Thread(target=proxy.serve_forever, args=(0.02,), name="faults", daemon=True).start()
        try:
            yield Running(proxy.url, file, log)
        finally:
            proxy.shutdown()


def read_log(path: Path) -> list[Logged]:
    """The requests in a log."""
    raws = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [Logged(**{**raw, "played": [Played(**each) for each in raw["played"]]}) for raw in raws]


def kinds(result: BatchResult) -> list[str]:
    """The kind of each key's state, in order."""
    return [str(state.kind) for state in states(result)]


def states(result: BatchResult) -> list[KeyState]:
    """The state of each key, in order."""
    return [result.state(index) for index in range(result.count)]


def put(strict: S3Recorder, *keys: str) -> None:
    """Put objects into the strict store."""
    strict.buckets.fill(BUCKET, dict.fromkeys(keys, b"data"))


def delete(deleter: BatchDeleter, *keys: str) -> BatchResult:
    """Delete keys in one batch."""
    return deleter.delete_all(BUCKET, list(keys)).result(30)


def raw_exchange(url: str, request: bytes) -> bytes:
    """Send bytes and return everything that comes back until the other side ends it."""
    address = url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=20) as connection:
        connection.sendall(request)
        received = b""
        while part := connection.recv(65_536):
            received += part
    return received
