"""The guard of MVCC transactions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sexton.schemas.checks import check_tenant
from sexton.schemas.guards.room import GuardRoom

__all__ = ["TransactionGuard", "TransactionState"]


class TransactionState(StrEnum):
    """A final state of a transaction."""

    COMMITTED = "committed"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class TransactionGuard(GuardRoom):
    """True once the transaction has reached the state."""

    tenant: str
    transaction: int
    state: TransactionState

    def check(self) -> None:
        """Raise InvalidEvent for a tenant's name that cannot be one."""
        check_tenant(self.tenant)

    @property
    def allows_prefix(self) -> bool:
        """Nothing that carries the number of a rejected transaction is ever visible."""
        return self.state is TransactionState.REJECTED

    @property
    def ends_writes(self) -> bool:
        """Of a rejected transaction all uploads have ceased."""
        return self.state is TransactionState.REJECTED

    @property
    def text(self) -> str:
        """Tenant, number and state."""
        return f"transaction {self.tenant}@{self.transaction} {self.state.value}"
