"""The log's rule for transactions once more, written apart from the product's fold like `oracle`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sexton.schemas import events

__all__ = ["REJECTED", "Event", "Fact", "Told", "Transactions"]

REJECTED = ("reject-pending", "reject-acknowledged", "collected")

_Change = events.TransactionCommitted | events.TransactionAcknowledged | events.TransactionCollected
Event = events.TransactionStarted | events.NodeDecommissioned | _Change

Fact = tuple[str, int, tuple[int, int | None] | None]
"""Status, the log offset that gave it, the window in one partition."""


@dataclass(slots=True)
class Told:
    """One transaction: `since` has the log offset of each status that it has had."""

    node: str
    base: int | None
    start: Sequence[int]
    since: dict[str, int]
    until: Sequence[int] | None = None

    @property
    def status(self) -> str:
        """The status that it has now."""
        return list(self.since)[-1]

    def move(self, status: str, offset: int) -> None:
        """Give it the next status."""
        self.since[status] = offset


@dataclass(slots=True)
class Transactions:
    """What the log says of transactions, event by event."""

    tenants: dict[str, dict[int, Told]] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)
    """Request id -> log offset of its one valid event."""

    def read(self, offset: int, event: Event, largest: Sequence[int]) -> None:
        """Take in an event; `largest` is the running maximum of end offsets, its own among them."""
        if event.request_id in self.requests:
            return
        if isinstance(event, events.TransactionStarted):
            valid = self._start(offset, event, largest)
        elif isinstance(event, events.NodeDecommissioned):
            valid = self._decommission(offset, event)
        else:
            found = self.tenants.get(event.tenant, {}).get(event.transaction)
            valid = found is not None and self._change(offset, event, found)
        if valid:
            self.requests[event.request_id] = offset

    def _start(self, offset: int, event: events.TransactionStarted, largest: Sequence[int]) -> bool:
        known = self.tenants.get(event.tenant, {})
        newest, committed = max(known, default=None), self.committed.get(event.tenant)
        follows = event.previous == newest and event.transaction == (newest or 0) + 1
        if not follows or event.last_committed != committed or event.node in self.gone:
            return False
        for other in known.values():
            if other.status == "open":
                other.move("reject-pending", offset)
        started = Told(event.node, committed, largest, {"open": offset})
        self.tenants.setdefault(event.tenant, {})[event.transaction] = started
        return True

    def _decommission(self, offset: int, event: events.NodeDecommissioned) -> bool:
        if event.node in self.gone:
            return False
        self.gone[event.node] = offset
        for told in (told for known in self.tenants.values() for told in known.values()):
            if told.node == event.node and told.status in ("open", "reject-pending"):
                told.move("reject-acknowledged", offset)
        return True

    def _change(self, offset: int, event: _Change, found: Told) -> bool:
        match event:
            case events.TransactionCommitted():
                if found.status != "open" or event.node != found.node or not reached(event):
                    return False
                found.move("committed", offset)
                found.until = event.ends.offsets
                self.committed[event.tenant] = event.transaction
            case events.TransactionAcknowledged():
                own = event.node == found.node and found.status == "open"
                if not own and (found.status != "reject-pending" or event.node not in (None, found.node)):
                    return False
                found.move("reject-acknowledged", offset)
            case _:
                if found.status != "reject-acknowledged":
                    return False
                found.move("collected", offset)
        return True

    def find(self, tenant: str, number: int) -> Told | None:
        """Return what the log says of one, None where it was never started."""
        return self.tenants.get(tenant, {}).get(number)

    def fact(self, tenant: str, number: int, partition: int) -> Fact:
        """Return what is to be answered about one as of now."""
        found = self.find(tenant, number)
        if found is None:
            return "never-started", -1, None
        until = None if found.until is None else _at(found.until, partition)
        return found.status, found.since[found.status], (_at(found.start, partition), until)


def reached(event: events.TransactionCommitted) -> bool:
    """Return whether the end offsets of a commit have reached its deadlist."""
    if event.deadlist is None:
        return True
    assert event.deadlist.topic_id == event.ends.topic_id, "a run has one topic"
    wanted = enumerate(event.deadlist.offsets)
    return all(position <= _at(event.ends.offsets, partition) for partition, position in wanted)


def _at(offsets: Sequence[int], partition: int) -> int:
    return offsets[partition] if partition < len(offsets) else 0
