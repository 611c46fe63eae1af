"""A log with transactions in it that is folded as it grows."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.logs import GENESIS, NOW

from sexton.issuer.state.fold import State, Verdict, apply
from sexton.issuer.state.transactions import Transactions
from sexton.schemas import events
from sexton.schemas.events import Grant, IssueOperation, NumberPlace, PartitionOffsets

__all__ = ["FIRST", "LAST", "Log", "ends"]

FIRST, LAST = NumberPlace.FIRST, NumberPlace.LAST


def ends(*offsets: int, topic: str = "intents") -> PartitionOffsets:
    """End offsets of the intents topic."""
    return PartitionOffsets(topic, list(offsets) or [0])


class Log:
    """A log that is folded as it grows; each event has a request id of its own."""

    def __init__(self) -> None:
        self.state = State()
        self.verdicts: list[Verdict] = []
        self._append(GENESIS)

    def _append(self, event: events.GenerationEvent) -> Verdict:
        self.verdicts.append(apply(self.state, len(self.verdicts), event))
        return self.verdicts[-1]

    def _who(self) -> tuple[str, str]:
        return f"r{len(self.verdicts)}", "c"

    def start(
        self,
        node: str,
        number: int,
        base: int | None = None,
        *,
        at: Sequence[int] = (0,),
        previous: int | None = None,
        place: NumberPlace = FIRST,
        tenant: str = "t",
    ) -> Verdict:
        """A Started event that names the number before as the newest, unless told otherwise."""
        before = previous if previous is not None else number - 1 or None
        return self._append(
            events.TransactionStarted(*self._who(), node, tenant, number, before, base, place, ends(*at), NOW)
        )

    def commit(
        self,
        node: str,
        number: int,
        *,
        at: Sequence[int] = (0,),
        deadlist: PartitionOffsets | None = None,
        tenant: str = "t",
    ) -> Verdict:
        """A Committed event."""
        return self._append(
            events.TransactionCommitted(*self._who(), node, tenant, number, deadlist, ends(*at), NOW)
        )

    def acknowledge(self, number: int, node: str | None = None, tenant: str = "t") -> Verdict:
        """An Acknowledged event: of a node, or forced."""
        by, why = (None, None) if node else ("somebody", "because")
        return self._append(events.TransactionAcknowledged(*self._who(), node, tenant, number, by, why, NOW))

    def collect(self, number: int, *at: int, tenant: str = "t") -> Verdict:
        """A Collected event."""
        return self._append(events.TransactionCollected(*self._who(), tenant, number, ends(*at), NOW))

    def decommission(self, node: str) -> Verdict:
        """A NodeDecommissioned event."""
        return self._append(events.NodeDecommissioned(*self._who(), node, NOW, NOW))

    def drop(self, tenant: str = "t") -> Verdict:
        """A Dropped event."""
        return self._append(events.Dropped(*self._who(), tenant, NOW))

    def barrier(self, at: Sequence[int], unsettled: Sequence[int] | None = None) -> Verdict:
        """A Barrier event."""
        claim = None if unsettled is None else ends(*unsettled)
        return self._append(events.Barrier(self._who()[0], ends(*at), claim, NOW))

    def imports(self, *rows: events.ImportedTransactions) -> Verdict:
        """A TransactionsImported event."""
        return self._append(events.TransactionsImported(*self._who(), rows, ends(), NOW))

    def attach(self, tenant: str = "t") -> Verdict:
        """The first generation of a tenant."""
        grants = [Grant(tenant, 1, None)]
        attach = IssueOperation.ATTACH
        return self._append(events.Issued(*self._who(), attach, "a", 0, 1, grants, ends(), NOW))

    @property
    def owner(self) -> Transactions:
        """The transactions of tenant `t`."""
        tenant = self.state.tenant("t")
        assert tenant is not None
        assert tenant.transactions is not None
        return tenant.transactions

    def statuses(self) -> list[str]:
        """The status of every number up to the newest."""
        return [self.owner.status(number).value for number in range(1, (self.owner.newest or 0) + 1)]
