"""The log's rule once more, small and written apart from the product's fold: what a run is held against.

It knows the events that a run makes (Genesis, Issued, Barrier, and by `transaction_oracle` those of
transactions) and refuses any other. Nothing of the issuer is imported here, so that a mistake in the
product's rule is not repeated: a test watches that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.chaos.transaction_oracle import Transactions

from sexton.schemas import events

__all__ = ["Oracle", "Span"]

Span = tuple[int, int | None]
"""Offsets of one partition, from the first up to and without the second, which is None for an open end."""


@dataclass(slots=True)
class _Tenant:
    holder: str
    starts: list[list[int]] = field(default_factory=list)  # of each generation, the oldest first


@dataclass(slots=True)
class Oracle:
    """What a log of attachments says, event by event."""

    next_offset: int = 0
    topic_id: str | None = None
    largest: list[int] = field(default_factory=list)
    tenants: dict[str, _Tenant] = field(default_factory=dict)
    requests: dict[str, tuple[str, dict[str, int]]] = field(default_factory=dict)
    """Request id -> who asked, and what the one valid event of it gave."""
    transactions: Transactions = field(default_factory=Transactions)

    def read(self, offset: int, event: events.GenerationEvent) -> None:
        """Take in the next event of the log."""
        assert offset == self.next_offset, f"a gap in the log: {self.next_offset} to {offset}"
        self.next_offset += 1
        match event:
            case events.Genesis():
                assert offset == 0, f"a second beginning at {offset}"
                self.topic_id = event.intents_topic_id
            case events.Barrier():
                assert event.unsettled is None, "a run forgets nothing"
                self._see(event.ends)
            case events.Issued():
                self._see(event.ends)
                if self._counts(event):
                    self._give(event)
            case events.TransactionAcknowledged() | events.NodeDecommissioned():
                self.transactions.read(offset, event, self.largest)
            case events.TransactionStarted() | events.TransactionCommitted() | events.TransactionCollected():
                self._see(event.ends)
                self.transactions.read(offset, event, self.largest)
            case _:
                raise AssertionError(f"no run makes such an event: {event}")

    def _see(self, ends: events.PartitionOffsets) -> None:
        assert ends.topic_id == self.topic_id, f"end offsets of another topic: {ends}"
        width = max(len(self.largest), len(ends.offsets))
        both = [[*row, *[0] * (width - len(row))] for row in (self.largest, list(ends.offsets))]
        self.largest = [max(pair) for pair in zip(*both, strict=True)]

    def _counts(self, event: events.Issued) -> bool:
        """An event counts whole or not at all, and the first of its request only."""
        assert (event.part, event.parts) == (0, 1), "no call of a run is that large"
        return event.request_id not in self.requests and all(self._follows(event, g) for g in event.grants)

    def _follows(self, event: events.Issued, grant: events.Grant) -> bool:
        tenant = self.tenants.get(grant.tenant)
        restart = event.operation is events.IssueOperation.RE_ATTACH
        if tenant is None:
            return not restart and grant.supersedes is None and grant.generation == 1
        newest = len(tenant.starts)
        if restart and tenant.holder != event.node:
            return False
        return grant.supersedes == newest and grant.generation == newest + 1

    def _give(self, event: events.Issued) -> None:
        self.requests[event.request_id] = (event.caller, {g.tenant: g.generation for g in event.grants})
        for grant in event.grants:
            tenant = self.tenants.setdefault(grant.tenant, _Tenant(event.node))
            tenant.holder = event.node
            tenant.starts.append(self.largest)

    def knows(self, tenant: str) -> bool:
        """Return whether the tenant was ever given a number."""
        return tenant in self.tenants

    def span(self, tenant: str, generation: int, partition: int) -> Span | None:
        """Return where intents of a generation are right, None for one that was never given."""
        starts = self.tenants[tenant].starts
        if not 1 <= generation <= len(starts):
            return None
        begin, following = _at(starts[generation - 1], partition), starts[generation : generation + 1]
        return begin, _at(following[0], partition) if following else None


def _at(offsets: Sequence[int], partition: int) -> int:
    return offsets[partition] if partition < len(offsets) else 0
