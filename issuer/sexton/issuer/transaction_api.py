"""What services and jobs ask of an issuer about transactions; `api` has the rest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import UnsetType

from sexton.issuer.answers import TransactionGrant, TransactionsState, TransactionState
from sexton.issuer.calling import Calling
from sexton.issuer.operations.acknowledge_transaction import AcknowledgeTransaction
from sexton.issuer.operations.barrier import Ends
from sexton.issuer.operations.collect_transaction import CollectTransaction
from sexton.issuer.operations.commit_transaction import CommitTransaction
from sexton.issuer.operations.decommission_node import DecommissionNode
from sexton.issuer.operations.import_transactions import ImportedNumbers, ImportTransactions
from sexton.issuer.operations.list_transactions import ListTransactions
from sexton.issuer.operations.start_transaction import StartTransaction
from sexton.issuer.state.transactions import Status
from sexton.issuer.views import TRANSACTIONS, TransactionView
from sexton.schemas.events import ImportedTransactions, NumberPlace, PartitionOffsets

__all__ = ["TransactionCalls"]


class TransactionCalls(Calling):
    """The calls of MVCC transactions (designs: MVCC transactions)."""

    def start_transaction(
        self,
        node: str,
        tenant: str,
        request_id: str | None = None,
        deadline: float | None = None,
        *,
        number_place: NumberPlace | None = None,
    ) -> TransactionGrant:
        """Start a tenant's next transaction; every other open one of the tenant is rejected by it.

        `number_place`, where keys carry the number, is fixed by the tenant's first one (default: last). May
        raise RequestRefused: `other-form`, `tenant-dropped`, `node-decommissioned`, `number-place-fixed`,
        `generations-exhausted`, `request-id-conflict`.
        """
        asked = StartTransaction(node, tenant, request_id=request_id)
        asked.number_place = None if number_place is None else number_place.value
        answer = self._call(asked, self._end(deadline))
        place = NumberPlace(answer.number_place)
        return TransactionGrant(tenant, answer.transaction, answer.last_committed, place, answer.log_offset)

    def commit_transaction(
        self,
        node: str,
        tenant: str,
        transaction: int,
        deadlist: PartitionOffsets | None = None,
        request_id: str | None = None,
        deadline: float | None = None,
    ) -> int:
        """Make a transaction the visible one and return the log offset that says so.

        `deadlist` has the offset behind its last deadlist intent in each partition. Asked again after it was
        granted, the answer is the same. IssuerUnavailable also while the last stable end offsets have not
        reached the deadlist. May raise RequestRefused: `transaction-rejected`, which is final, `other-node`,
        `unknown-tenant`, `unknown-transaction`, `transaction-forgotten`, `tenant-dropped`, `other-topic`.
        """
        ends = None if deadlist is None else Ends(deadlist.topic_id, list(deadlist.offsets))
        asked = CommitTransaction(tenant, transaction, node, ends, request_id=request_id)
        return self._call(asked, self._end(deadline)).log_offset

    def acknowledge_transaction(
        self,
        tenant: str,
        transaction: int,
        node: str | None = None,
        request_id: str | None = None,
        deadline: float | None = None,
        *,
        why: str | None = None,
    ) -> int:
        """Say that every upload in the name of a transaction has ceased; return the log offset.

        Its node may give up an open one, too; `why`, without a node, forces it for one that is rejected. May
        raise RequestRefused: `other-node`, `transaction-committed`, `transaction-open`, `unknown-tenant`,
        `unknown-transaction`, `transaction-forgotten`.
        """
        asked = AcknowledgeTransaction(tenant, transaction, node, why, request_id=request_id)
        return self._call(asked, self._end(deadline)).log_offset

    def collect_transaction(
        self, tenant: str, transaction: int, request_id: str | None = None, deadline: float | None = None
    ) -> int:
        """Say that a whole, exact listing found nothing of a rejected transaction; return the log offset.

        May raise RequestRefused: `transaction-not-acknowledged`, `unknown-transaction`, ...
        """
        asked = CollectTransaction(tenant, transaction, request_id=request_id)
        return self._call(asked, self._end(deadline)).log_offset

    def decommission_node(
        self,
        node: str,
        credentials_revoked_at: datetime,
        request_id: str | None = None,
        deadline: float | None = None,
    ) -> int:
        """End a node for good: what it has not committed is rejected and acknowledged; return the log offset.

        May raise RequestRefused: `revocation-too-recent`, `node-decommissioned`.
        """
        asked = DecommissionNode(node, credentials_revoked_at, request_id=request_id)
        return self._call(asked, self._end(deadline)).log_offset

    def import_transactions(
        self,
        tenants: Sequence[ImportedTransactions],
        request_id: str | None = None,
        deadline: float | None = None,
    ) -> int:
        """Start tenants, up to 10,000, at the numbers that they have elsewhere; return the log offset.

        All of them or none. May raise RequestRefused: `tenant-known`.
        """
        rows = [
            ImportedNumbers(row.tenant, row.newest, row.last_committed, row.number_place.value)
            for row in tenants
        ]
        return self._call(ImportTransactions(rows, request_id=request_id), self._end(deadline)).log_offset

    def unfinished_transactions(
        self, node: str | None = None, deadline: float | None = None
    ) -> list[TransactionState]:
        """Return what is open, or rejected and not collected: of one node, or of all."""
        end, after = self._end(deadline), None
        found: list[TransactionState] = []
        while True:
            answer = self._call(ListTransactions(node, after), end)
            found += map(_transaction, answer.transactions)
            if not answer.more:
                return found
            after = answer.after

    def transactions(self, tenant: str, deadline: float | None = None) -> TransactionsState | None:
        """Return a tenant's transactions, None when the log knows none of it."""
        found = self._look(TRANSACTIONS, tenant, self._end(deadline))
        if found is None:
            return None
        return TransactionsState(
            log_offset=found.log_offset,
            tenant=found.tenant,
            newest=found.newest,
            last_committed=found.last_committed,
            number_place=NumberPlace(found.number_place),
            imported=found.imported,
            dropped=found.dropped,
            transactions=tuple(map(_transaction, found.transactions)),
        )


def _transaction(view: TransactionView) -> TransactionState:
    until = None if isinstance(view.until, UnsetType) else tuple(view.until)
    where = (view.log_offset, view.changed, view.base)
    return TransactionState(
        view.tenant, view.transaction, view.node, Status(view.status), *where, tuple(view.start), until
    )
