"""The request log: one JSON line for each request, written before its answer leaves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

__all__ = ["Logged", "Played", "RequestLog", "read_log"]


@dataclass(frozen=True, slots=True)
class Played:
    """What one rule has played, in words; `keys` are those it was about, when it was about some only."""

    rule: str
    what: str
    keys: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Logged:
    """One request.

    `at` is when it came (UTC, ISO 8601), `number` counts requests in the order in which they came, and lines
    stand in the order of the answers. `keys` are those of a DeleteObjects in their order, or the key of a
    single call; `versions` likewise. `status` is what the client was answered, None for a cut connection;
    `store_status` what the store answered, None when it was not asked or gave no answer. `forwarded` tells
    whether the store was sent anything, `ms` how long it all took.
    """

    at: str
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
    ms: float
    played: Sequence[Played] = ()

    @property
    def instant(self) -> datetime:
        """When it came."""
        return datetime.fromisoformat(self.at)


class RequestLog:
    """Appends lines to a file or stream; each is there for readers at once."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, logged: Logged) -> None:
        """Append one request."""
        # Keys that are no UTF-8 hold surrogates, which only ASCII escapes can carry.
        self._stream.write(json.dumps(asdict(logged)).encode("ascii") + b"\n")
        self._stream.flush()


def read_log(path: Path, operation: str | None = None) -> list[Logged]:
    """Return the requests in a log, or those of one operation, in the order of their answers.

    A last line that is still being written is left out.
    """
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    found = (_logged(json.loads(line)) for line in lines)
    return [logged for logged in found if operation is None or logged.operation == operation]


def _logged(raw: dict[str, Any]) -> Logged:
    played = tuple(Played(each["rule"], each["what"], tuple(each["keys"])) for each in raw["played"])
    return Logged(**{**raw, "played": played})
