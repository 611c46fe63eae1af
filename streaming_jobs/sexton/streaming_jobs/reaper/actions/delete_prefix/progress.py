"""How far a prefix has come, and what one pass and one step did to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from sexton.schemas.events import DeferredIntent
from sexton.storage import KeyState

if TYPE_CHECKING:
    from sexton.streaming_jobs.reaper.actions.delete_prefix.pages import Page

__all__ = [
    "FIRST_PASS_OVER",
    "MOST_NAMED",
    "Pass",
    "PrefixProgress",
    "PrefixState",
    "PrefixStep",
    "progress_of",
]

MOST_NAMED = 1000
"""So many of the keys that cannot be deleted are named."""

FIRST_PASS_OVER = ""
"""`PrefixProgress.after` once everything was listed and tried: what is listed now is left over, or new."""


class PrefixState(StrEnum):
    """How a step ended; what is held, and what continues, comes again."""

    DONE = "done"
    MORE = "more"
    BUCKET = "bucket"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True)
class PrefixProgress:
    """How far a prefix has come: objects (or versions) `gone`, and the key `after` which it continues.

    `after` is None at the beginning and FIRST_PASS_OVER when a pass has reached the end. `written_before` is
    up to when an object has to have been written, by the store's clock, None before the first listing.
    """

    gone: int = 0
    after: str | None = None
    written_before: datetime | None = None


def progress_of(waited: DeferredIntent | None) -> PrefixProgress:
    """Return how far a copy says that its prefix has come."""
    return PrefixProgress(waited.gone, waited.after, waited.written_before) if waited else PrefixProgress()


@dataclass(frozen=True, slots=True)
class PrefixStep:
    """What one step did; `progress` counts from the beginning, `effects` only this step.

    `failed` names up to 1,000 of the `failed_count` keys that cannot be deleted (when done: that stay, at
    least). `fault` says why the bucket or everything waits, `note` what a person should know. `unknown`:
    some may have gone that nobody has counted. `late` objects were written too late, and stay.
    """

    state: PrefixState
    progress: PrefixProgress = field(default_factory=PrefixProgress)
    effects: Mapping[str, int] = field(default_factory=dict)
    failed: tuple[tuple[str, KeyState], ...] = ()
    failed_count: int = 0
    fault: KeyState | None = None
    note: str = ""
    request_ids: tuple[str, ...] = ()
    unknown: bool = False
    late: int = 0


@dataclass(slots=True)
class Pass:
    """What one pass met; `whole` when it began at the start, `cut` when it did not come to the end."""

    whole: bool
    listed: int = 0
    gone: int = 0
    absent: int = 0
    left: int = 0
    unmoved: int = 0
    failed_count: int = 0
    failed: dict[str, KeyState] = field(default_factory=dict)
    late: int = 0
    beside: int = 0
    trouble: KeyState | None = None
    after: str | None = None
    cut: bool = False
    last_failed: str | None = None

    def add(self, page: Page) -> None:
        """Count a page."""
        self.listed += page.listed
        self.late += page.late
        self.beside += page.beside
        self.gone += page.gone
        self.absent += page.absent
        self.left += page.left
        self.unmoved += page.left + page.kept + len(page.failed)
        self.trouble = page.trouble or self.trouble
        for key, state in page.failed:
            # Versions of a key stand together in a listing.
            self.failed_count += key != self.last_failed
            self.last_failed = key
            if len(self.failed) < MOST_NAMED:
                self.failed.setdefault(key, state)

    @property
    def is_settled(self) -> bool:
        """Return whether nothing was met but what cannot be deleted, and newest versions above that."""
        return self.whole and not (self.gone or self.absent or self.left or self.cut)
