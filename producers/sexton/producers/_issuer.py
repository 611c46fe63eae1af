"""What the SDK needs of the generation authority; the real one is its HTTP client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sexton.schemas.settings import Settings

__all__ = ["Attachment", "Issuer", "open_issuer"]


class Attachment(Protocol):
    """The answer to an attach."""

    @property
    def generation(self) -> int:
        """The generation that was handed out, once and to nobody else."""


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


def open_issuer(settings: Settings) -> Issuer:
    """Return the HTTP client of the issuer that the settings name."""
    from sexton.issuer.client import IssuerClient

    return IssuerClient.of(settings)
