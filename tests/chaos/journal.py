"""What the clients of a run were told, to be held against the log afterwards."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from sexton.issuer.client import Subject, TransactionFact, TransactionSubject
from sexton.schemas.events import PartitionOffsets
from sexton.schemas.windows import Window

__all__ = ["Answered", "Asked", "Barred", "Call", "Journal", "Judged", "Step", "Stepped"]

Offsets = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: who makes it, what intents were acknowledged before its first try."""

    request_id: str
    caller: str
    node: str
    tenant: str | None
    written: Offsets


@dataclass(frozen=True, slots=True)
class Answered:
    """Numbers that a caller was given; `sent` bounds from above how many intents there were by then."""

    asked: Asked
    granted: Mapping[str, int]
    log_offset: int
    sent: Offsets


@dataclass(frozen=True, slots=True)
class Barred:
    """A barrier and what the intents topic held before the call, at least, and after it, at most."""

    log_offset: int
    ends: Offsets
    written: Offsets
    sent: Offsets


@dataclass(frozen=True, slots=True)
class Judged:
    """Windows that a caller was reported; `seen` is the newest log offset that anybody knew before the
    call.
    """

    log_offset: int
    at_least: int
    seen: int
    ends: Offsets
    windows: Mapping[Subject, Window | None]
    asked: frozenset[Subject]
    facts: Mapping[TransactionSubject, TransactionFact]
    questions: frozenset[TransactionSubject]


class Call(Enum):
    """What is asked for a transaction; its own node's acknowledgement of an open one gives it up."""

    START = auto()
    COMMIT = auto()
    ACKNOWLEDGE = auto()
    COLLECT = auto()
    DECOMMISSION = auto()


@dataclass(frozen=True, slots=True)
class Step:
    """A request about a transaction: `node` is empty where an acknowledgement is forced."""

    request_id: str
    caller: str
    call: Call
    node: str
    tenant: str
    transaction: int
    deadlist: PartitionOffsets | None
    written: Offsets


@dataclass(frozen=True, slots=True)
class Stepped:
    """Its answer; `seen` is the newest log offset that anybody knew before the call."""

    step: Step
    number: int
    base: int | None
    log_offset: int
    sent: Offsets
    seen: int
    refused: str | None

    @property
    def was_done(self) -> bool:
        """Whether it was carried out, and not refused."""
        return self.refused is None


@dataclass
class Journal:
    """Answers of all threads, and the calls in flight."""

    answered: list[Answered] = field(default_factory=list)
    barred: list[Barred] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)
    stepped: list[Stepped] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    lost: int = 0
    in_flight: int = 0
    seen: int = -1
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> int:
        """Note a call that begins; return the newest log offset that anybody was reported."""
        with self.lock:
            self.in_flight += 1
            return self.seen

    def end(self) -> None:
        """Note a call that ended."""
        with self.lock:
            self.in_flight -= 1

    def reported(self, log_offset: int) -> None:
        """Note a log offset that somebody knows from now on."""
        with self.lock:
            self.seen = max(self.seen, log_offset)
