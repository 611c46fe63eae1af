"""What the SDK needs of the generation authority; the real one is its HTTP client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sexton.schemas.events import NumberPlace, PartitionOffsets
from sexton.schemas.generations import PackedGeneration
from sexton.schemas.settings import Settings

__all__ = ["Attachment", "FirstFormIssuer", "Grant", "Issuer", "TransactionIssuer", "open_issuer"]


class Attachment(Protocol):
    """The answer to an attach."""

    @property
    def generation(self) -> int:
        """The generation that was handed out, once and to nobody else."""


class FirstFormAttachment(Attachment, Protocol):
    """The answer to an attach of a registered node."""

    @property
    def tenant(self) -> str:
        """The tenant's name."""

    @property
    def packed(self) -> PackedGeneration | None:
        """All parts of a generation of the first form, None for a tenant of the final form."""


class Issuer(Protocol):
    """The calls that hand out and give back generations.

    Each call has a deadline. All raise IssuerUnavailable when the issuer is away and RequestRefused when it
    says no.
    """

    def attach(self, node: str, tenant: str, request_id: str | None = None) -> Attachment:
        """Hand out the tenant's next generation to a node."""

    def re_attach(self, node: str) -> Mapping[str, int]:
        """Hand out the next generation of every tenant that the node holds."""

    def detach(self, node: str, tenant: str) -> int:
        """Take a tenant from the node that holds it and return its generation."""

    def drop(self, tenant: str) -> object:
        """End a tenant: nothing is issued for it afterwards."""


class FirstFormIssuer(Issuer, Protocol):
    """The calls of a node of the first form; `registration` is what `register_node` returned."""

    def register_node(self, node: str, number: int | None = None) -> Any:
        """Hand out the node's next node generation; every process with an older one must stop."""

    def attach(
        self, node: str, tenant: str, request_id: str | None = None, *, registration: Any = None
    ) -> FirstFormAttachment:
        """Hand out the tenant's next generation, if the registration is the node's newest."""

    def re_attach_all(self, node: str, *, registration: Any = None) -> Sequence[FirstFormAttachment]:
        """Hand out the next generation of every tenant that the node holds, of either form."""


class Grant(Protocol):
    """The answer to a start of a transaction."""

    @property
    def transaction(self) -> int:
        """Its number, handed out once and to nobody else."""

    @property
    def last_committed(self) -> int | None:
        """The number of the transaction that it builds on."""


class TransactionIssuer(Protocol):
    """The calls of MVCC transactions."""

    def start_transaction(self, node: str, tenant: str, *, number_place: NumberPlace | None = None) -> Grant:
        """Start the tenant's next transaction; every other open one of the tenant is rejected by it."""

    def commit_transaction(
        self, node: str, tenant: str, transaction: int, deadlist: PartitionOffsets | None = None
    ) -> int:
        """Make it the visible one, once the end offsets have reached its deadlist; return the log offset."""

    def acknowledge_transaction(self, tenant: str, transaction: int, node: str | None = None) -> int:
        """Say that every upload in its name has ceased; return the log offset."""


def open_issuer(settings: Settings) -> Issuer:
    """Return the HTTP client of the issuer that the settings name."""
    from sexton.issuer.client import IssuerClient

    return IssuerClient.of(settings)
