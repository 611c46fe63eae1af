"""Where the object store is and how hard it may be worked."""

from __future__ import annotations

from dataclasses import dataclass

from sexton.schemas.errors import InvalidSettings
from sexton.schemas.settings import Settings

__all__ = ["StoreSettings"]


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The store's address and limits; hashable and picklable, it holds no secret and no connection.

    `endpoint_url` None lets botocore choose (AWS, or the endpoint variables and profiles it knows).
    `requester_pays` agrees to pay for requests to other accounts' buckets.
    Credentials come the usual AWS ways, in the process that uses these settings.
    """

    endpoint_url: str | None = None
    region: str = "us-east-1"
    requests_in_flight: int = 8
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    requester_pays: bool = False

    @classmethod
    def of(cls, settings: Settings) -> StoreSettings:
        """Return the store's part of the process' settings."""
        return cls(
            endpoint_url=settings.s3_endpoint_url,
            region=settings.s3_region,
            requests_in_flight=settings.reaper_requests_in_flight,
            read_timeout_s=settings.s3_read_timeout_s,
            requester_pays=settings.s3_requester_pays,
        )

    def __post_init__(self) -> None:
        if self.requests_in_flight < 1:
            raise InvalidSettings(f"requests in flight must be at least 1: {self.requests_in_flight}")
        if self.connect_timeout_s <= 0 or self.read_timeout_s <= 0:
            raise InvalidSettings(
                f"timeouts must be above 0 seconds: {self.connect_timeout_s}, {self.read_timeout_s}"
            )
