"""Listings of sequenced files, as the collector `sequenced` folds them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sexton.schemas.sequenced import Namespace
from sexton.storage import Listed
from sexton.streaming_jobs.collectors.room import Scope
from sexton.streaming_jobs.collectors.sequenced.files import Files, FilesFold

__all__ = ["DATE", "DB", "HOUR", "NAMES", "SCOPE", "folded", "listed", "manifests"]

DATE = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCOPE = Scope("bucket", "p/")
DB = Namespace("p/db", "manifest")
HOUR = 3600.0
NAMES = ("manifest", "compactions")


def listed(key: str, age_s: float | None = 2 * HOUR, size: int = 10) -> Listed:
    """An object as a listing has it, as old as that by the listing's Date."""
    return Listed(key, '"e"', size, written_at=None if age_s is None else DATE - timedelta(seconds=age_s))


def folded(*entries: Listed, cut: Sequence[int] = ()) -> list[Files]:
    """The parts of a listing, which is cut after these numbers of objects."""
    fold, parts = FilesFold(NAMES), list[Files]()
    for number, entry in enumerate(sorted(entries, key=lambda each: each.key.encode())):
        parts += fold.add(entry)
        if number in cut:
            parts += fold.end()
    return [*parts, *fold.end()]


def manifests(*ids: int, age_s: float = 2 * HOUR) -> list[Listed]:
    """Manifests of the database."""
    return [listed(DB.key(id), age_s) for id in ids]
