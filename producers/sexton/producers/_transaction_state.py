"""What is kept of a transaction, and what may be done with it when: pure data and rules.

A deadlist that is out lies in the transaction's window and cannot be recalled: committed with another index
than its own, it would delete what that one names. So from the first deadlist intent on nothing but that very
commit is allowed, or to give the transaction up (designs: MVCC transactions, writer and resuming).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Literal

import msgspec

from sexton.producers._errors import (
    CommitBegun,
    CommitRejected,
    HandleUnusable,
    IndexFateUnknown,
    StateNotSaved,
    TransactionLost,
    TransactionOver,
)
from sexton.schemas.errors import UsageError
from sexton.schemas.events import NumberPlace, PartitionOffsets

__all__ = ["FORMAT", "MAX_DISCARDED", "Call", "Phase", "State", "digest", "refusal", "resumed"]

FORMAT = 1
MAX_DISCARDED = 10_000
"""How many names a transaction whose state is kept may discard: the state stays below 200 kB."""


class Phase(StrEnum):
    """How far a transaction got. The first five are kept, the others are known to one process only."""

    OPEN = "open"
    PUT = "put"  # an index PUT is under way, or of unknown fate
    DEADLIST = "deadlist"  # the index is acknowledged, deadlist intents may be out
    COMMIT = "commit"  # Kafka has acknowledged the whole deadlist
    ACKNOWLEDGE = "acknowledge"  # it is given up
    TORN = "torn"  # resumed from DEADLIST: the deadlist was lost with its process
    WRITTEN = "written"  # the index is acknowledged, nothing is out; kept as PUT
    LEFT = "left"  # its block has ended before it committed
    LOST = "lost"  # resumed without its state
    REJECTED = "rejected"
    COMMITTED = "committed"
    OVER = "over"
    CLOSED = "closed"


class Call(StrEnum):
    """What is asked of a handle; `READ_AND_COMMIT` is a commit that can read the index back."""

    KEY = "key"
    DELETE = "delete"
    DISCARD = "discard"
    COMMIT = "commit"
    READ_AND_COMMIT = "read and commit"
    ACKNOWLEDGE = "acknowledge"


_COMMITS = frozenset({Call.COMMIT, Call.READ_AND_COMMIT})
_ALLOWED: Mapping[Phase, frozenset[Call]] = {
    Phase.OPEN: frozenset(Call),
    Phase.PUT: frozenset({Call.KEY, Call.DELETE, Call.READ_AND_COMMIT, Call.ACKNOWLEDGE}),
    Phase.WRITTEN: _COMMITS | {Call.ACKNOWLEDGE},
    Phase.DEADLIST: _COMMITS | {Call.ACKNOWLEDGE},
    Phase.COMMIT: _COMMITS | {Call.ACKNOWLEDGE},
    Phase.TORN: frozenset({Call.DELETE, Call.READ_AND_COMMIT, Call.ACKNOWLEDGE}),
    Phase.LEFT: frozenset({Call.ACKNOWLEDGE}),
    Phase.LOST: frozenset({Call.ACKNOWLEDGE}),
    Phase.REJECTED: frozenset({Call.ACKNOWLEDGE}),
    Phase.ACKNOWLEDGE: frozenset({Call.ACKNOWLEDGE}),
    Phase.COMMITTED: _COMMITS,
    Phase.OVER: frozenset(),
    Phase.CLOSED: frozenset(),
}
_REFUSALS: Mapping[Phase, tuple[type[HandleUnusable], str]] = {
    Phase.PUT: (IndexFateUnknown, "nobody knows whether its index was written"),
    Phase.WRITTEN: (CommitBegun, "its index is written"),
    Phase.DEADLIST: (CommitBegun, "its deadlist may be out and cannot be recalled"),
    Phase.COMMIT: (CommitBegun, "its deadlist is out and cannot be recalled"),
    Phase.TORN: (CommitBegun, "its process ended while the deadlist went out"),
    Phase.LEFT: (TransactionLost, "its block was left before it committed"),
    Phase.LOST: (TransactionLost, "nobody knows how far it got"),
    Phase.REJECTED: (CommitRejected, "it is rejected, and never visible"),
    Phase.ACKNOWLEDGE: (TransactionOver, "it is given up"),
    Phase.COMMITTED: (TransactionOver, "it is committed"),
    Phase.OVER: (TransactionOver, "it is over"),
    Phase.CLOSED: (StateNotSaved, "its state was not saved"),
}
_WHAT_GOES = {
    Phase.PUT: "commit(put_index, read_index=...) where index PUTs are conditional; else acknowledge()",
    Phase.WRITTEN: "repeat that very commit, or acknowledge()",
    Phase.DEADLIST: "repeat that very commit, or acknowledge()",
    Phase.COMMIT: "repeat that very commit, or acknowledge()",
    Phase.TORN: "name the deadlist again, then commit(read_index=...); else acknowledge()",
    Phase.LEFT: "end its uploads, then acknowledge(); or resume it from its state",
    Phase.LOST: "end its uploads, then acknowledge()",
    Phase.REJECTED: "end its uploads, then acknowledge()",
    Phase.ACKNOWLEDGE: "acknowledge() again, if its answer was lost; go on in a new transaction",
    Phase.CLOSED: "resume it from the state that is stored",
}


def refusal(phase: Phase, call: Call, name: str) -> HandleUnusable | None:
    """Return why a call is not allowed in a phase of the named transaction; None if it is."""
    if call in _ALLOWED[phase]:
        return None
    kind, why = _REFUSALS[phase]
    return kind(f"no {call} of {name}: {why}", hint=_WHAT_GOES.get(phase, "go on in a new transaction"))


def resumed(kept: Phase) -> Phase:
    """Return the phase of a handle that is made from a kept state: of a torn deadlist nothing is known."""
    return Phase.TORN if kept is Phase.DEADLIST else kept


def digest(key: str) -> str:
    """Return what is kept of a discarded key: two that agree by chance cost one of them its name."""
    return hashlib.blake2b(key.encode(), digest_size=6).hexdigest()


@dataclass(frozen=True, slots=True)
class State:
    """All that is kept of a transaction; `deadlist` has the offset behind its last intent by partition.

    `discarded` has digests of the names that are never written again.
    """

    tenant: str
    transaction: int
    node: str
    last_committed: int | None
    prefix: str
    number_place: NumberPlace
    version: int = 0
    phase: Phase = Phase.OPEN
    deadlist: PartitionOffsets | None = None
    discarded: frozenset[str] = frozenset()

    def next(self, phase: Phase, **changes: Any) -> State:
        """Return the state of the next version."""
        return replace(self, version=self.version + 1, phase=phase, **changes)

    def without(self, keys: Iterable[str]) -> frozenset[str]:
        """Return the digests of all discarded names and of these; raises UsageError for too many."""
        gone = self.discarded | set(map(digest, keys))
        if len(gone) > MAX_DISCARDED:
            raise UsageError(
                f"a transaction whose state is kept discards at most {MAX_DISCARDED} names: {len(gone)}",
                hint="leave them to its deadlist",
            )
        return gone

    def to_dict(self) -> dict[str, Any]:
        """Return it as what JSON can carry."""
        kept = asdict(self)
        kept["deadlist"] = None if self.deadlist is None else {
            "topic_id": self.deadlist.topic_id, "offsets": list(self.deadlist.offsets)
        }  # fmt: skip
        return {
            "format": FORMAT,
            **kept,
            "number_place": self.number_place.value,
            "phase": self.phase.value,
            "discarded": sorted(self.discarded),
        }

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> State:
        """Return what was kept; raises UsageError for anything else, and for what a newer Sexton has kept."""
        if not isinstance(kept, Mapping):
            raise UsageError(f"a transaction's state must be a dict, not of type {type(kept).__name__}")
        if kept.get("format") != FORMAT:
            raise UsageError(
                f"a transaction's state of an unknown format: {kept.get('format')!r}",
                hint=f"this Sexton reads format {FORMAT}; update it where the transaction is resumed",
            )
        try:
            read = msgspec.convert({**kept}, _Kept)
        except msgspec.ValidationError as error:
            raise UsageError(f"not a transaction's state: {error}") from error
        return cls(
            read.tenant,
            read.transaction,
            read.node,
            read.last_committed,
            read.prefix,
            read.number_place,
            read.version,
            Phase(read.phase),
            None if read.deadlist is None else PartitionOffsets(**msgspec.structs.asdict(read.deadlist)),
            frozenset(read.discarded),
        )


_KeptPhase = Literal["open", "put", "deadlist", "commit", "acknowledge"]


class _Deadlist(msgspec.Struct, forbid_unknown_fields=True):
    topic_id: str
    offsets: tuple[int, ...]


class _Kept(msgspec.Struct, forbid_unknown_fields=True):
    """Format 1. A field more or less, or another meaning of one, is another format."""

    format: int
    tenant: str
    transaction: int
    node: str
    last_committed: int | None
    prefix: str
    number_place: NumberPlace
    version: int
    phase: _KeptPhase
    deadlist: _Deadlist | None
    discarded: list[str]
