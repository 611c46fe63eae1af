"""Reading the lock that keeps a version: retention date and legal hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from sexton.schemas.errors import StoreUnavailable
from sexton.storage.errors import BucketUnusable
from sexton.storage.exchange import Exchange
from sexton.storage.reply import child_text, parsed
from sexton.storage.wire import RawReply

__all__ = ["Lock", "lock_of"]


@dataclass(frozen=True, slots=True)
class Lock:
    """Why a version stays: until when it is retained (aware, UTC), and whether a legal hold is on it."""

    retain_until: datetime | None
    legal_hold: bool
    mode: str = ""


def lock_of(exchange: Exchange, bucket: str, key: str, version_id: str | None = None) -> Lock | None:
    """Return the lock on a version (by default the current one); None without one that can be read."""
    query = {} if version_id is None else {"versionId": version_id}
    try:
        reply = exchange.send("HEAD", bucket, key, query)
        found = _of_headers(reply.headers) if reply.status == 200 else None
        if found is not None or version_id is None:
            return found
        # Some stores tell the lock of an older version only where it is asked for by name.
        retention, hold = (
            exchange.send("GET", bucket, key, {**query, name: ""}) for name in ("retention", "legal-hold")
        )
    except (StoreUnavailable, BucketUnusable):
        # The refusal stands without it: the date is for people.
        return None
    until = _instant(_text_of(retention, "RetainUntilDate"))
    held = _text_of(hold, "Status").upper() == "ON"
    return Lock(until, held, _text_of(retention, "Mode")) if until or held else None


def _of_headers(headers: Mapping[str, str]) -> Lock | None:
    until = _instant(headers.get("x-amz-object-lock-retain-until-date", ""))
    held = headers.get("x-amz-object-lock-legal-hold", "").upper() == "ON"
    return Lock(until, held, headers.get("x-amz-object-lock-mode", "")) if until or held else None


def _text_of(reply: RawReply, name: str) -> str:
    root = parsed(reply.body) if reply.status == 200 else None
    return child_text(root, name) if root is not None else ""


def _instant(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
