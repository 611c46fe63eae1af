"""Reading the lock that keeps a version: retention date and legal hold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sexton.schemas.errors import StoreUnavailable
from sexton.storage.signing import RequestSigner
from sexton.storage.wire import Wire

__all__ = ["Lock", "lock_of"]


@dataclass(frozen=True, slots=True)
class Lock:
    """Why a version stays: until when it is retained (aware, UTC), and whether a legal hold is on it."""

    retain_until: datetime | None
    legal_hold: bool
    mode: str = ""


def lock_of(
    signer: RequestSigner, wire: Wire, bucket: str, key: str, version_id: str | None = None
) -> Lock | None:
    """Return the lock on a version (by default the current one); None without one that can be read."""
    query = {} if version_id is None else {"versionId": version_id}
    try:
        reply = wire.exchange(bucket, signer.call("HEAD", bucket, key, query))
    except StoreUnavailable:
        # The refusal stands without it: the date is for people.
        return None
    if reply.status != 200:
        return None
    until = _instant(reply.headers.get("x-amz-object-lock-retain-until-date", ""))
    held = reply.headers.get("x-amz-object-lock-legal-hold", "").upper() == "ON"
    mode = reply.headers.get("x-amz-object-lock-mode", "")
    return Lock(until, held, mode) if until or held else None


def _instant(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
