"""What the fold knows of one tenant's transactions: pure data, changed by the rules of the operations only.

Open → Committed, or Open → RejectPending → RejectAcknowledged → Collected (designs: MVCC transactions). The
last committed one is kept for ever; another final one is forgotten once every intent that can ask about it
has had its outcome; a rejected one stays until it is collected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sexton.schemas.events import NumberPlace
from sexton.schemas.offsets import offset_at
from sexton.schemas.windows import Window

__all__ = ["Closing", "Status", "Transaction", "Transactions"]


class Status(StrEnum):
    """Where a transaction is on its way; what was never started, or is not known any more, too."""

    OPEN = "open"
    COMMITTED = "committed"
    REJECT_PENDING = "reject-pending"
    REJECT_ACKNOWLEDGED = "reject-acknowledged"
    COLLECTED = "collected"
    NEVER_STARTED = "never-started"
    IMPORTED = "imported"
    FORGOTTEN = "forgotten"


@dataclass(slots=True)
class Transaction:
    """One transaction: `changed` is the log offset of the event that gave it its status.

    Its window in a partition runs from `start`, the running maximum of end offsets up to its Started event,
    to `until`, the end offsets in its Committed event. `base` is the last committed one that it builds on.
    `closed` is the log offset of the event, and the running maximum there, since which no intent of it is
    undecided.
    """

    number: int
    node: str
    log_offset: int
    start: Sequence[int]
    base: int | None
    status: Status = Status.OPEN
    changed: int = -1
    until: Sequence[int] | None = None
    closed: tuple[int, Sequence[int]] | None = None

    def window(self, partition: int) -> Window:
        """Return the window in one intents partition: open at its end until the commit."""
        until = None if self.until is None else offset_at(self.until, partition)
        return Window(offset_at(self.start, partition), until)

    def move(self, status: Status, offset: int) -> None:
        """Give it another status by the event at this log offset."""
        self.status, self.changed = status, offset


@dataclass(slots=True)
class Transactions:
    """A tenant's transactions: numbers up to `imported` are from before its import and never pass.

    `changed` is the log offset of the last Started, Committed or Imported event: what Redis has to agree on.
    """

    place: NumberPlace
    newest: int | None = None
    committed: int | None = None
    imported: int = 0
    changed: int = -1
    kept: dict[int, Transaction] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self.kept.values())

    def status(self, number: int) -> Status:
        """Return the status of any number."""
        if (known := self.kept.get(number)) is not None:
            return known.status
        if number < 1 or self.newest is None or number > self.newest:
            return Status.NEVER_STARTED
        return Status.IMPORTED if number <= self.imported else Status.FORGOTTEN

    def was_at(self, number: int, offset: int) -> bool:
        """Return whether `number` was the newest by the event at this log offset, as far as is remembered."""
        found = self.kept.get(number)
        if found is None:
            return self.status(number) is not Status.NEVER_STARTED and offset < self.changed
        return offset in (found.log_offset, found.changed)

    def closings(self) -> Iterator[tuple[int, Sequence[int], Closing]]:
        """Yield what may be forgotten one day: log offset and end of the window, and what forgets it."""
        for each in self:
            if each.closed is not None:
                yield (*each.closed, Closing(self, each.number))

    def close(self, number: int, offset: int, high: Sequence[int]) -> Closing | None:
        """Note that no intent of this transaction above `high` can pass; None where it is not kept."""
        found = self.kept.get(number)
        if found is None:
            return None
        found.closed = (offset, high)
        return Closing(self, number)


@dataclass(frozen=True, slots=True)
class Closing:
    """A transaction that may be forgotten."""

    owner: Transactions
    number: int

    def forget_oldest(self) -> None:
        """Drop it: that it was started is still known, how it ended is not."""
        self.owner.kept.pop(self.number, None)
