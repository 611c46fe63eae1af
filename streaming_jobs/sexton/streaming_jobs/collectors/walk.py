"""The listing of a run: in this process, page by page; `spark` does the same on a cluster.

Both turn objects into the same parts by the plan's fold, sift them in bulk, and keep what may be garbage.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from sexton.storage import CheckedPage, pages_of
from sexton.streaming_jobs.collectors.progress import Progress
from sexton.streaming_jobs.collectors.resume import Range, Resume, Walked
from sexton.streaming_jobs.collectors.room import Part, Plan, Room, Scope, Sources

__all__ = ["Stopped", "Walk", "walk_here"]

_SIFT_AT = 500  # parts that are asked about at once
_SAVE_EVERY_S = 5.0


class Stopped(Exception):  # control flow of a run, not an error for callers
    """A stop was asked for; how far the listing has come is kept."""


@dataclass
class Walk:
    """A listing that is under way; `stopped` says that a stop was asked for."""

    room: Room
    scope: Scope
    sources: Sources
    resume: Resume
    progress: Progress
    plan: Plan
    walked: Walked
    parts: list[Part] = field(default_factory=list)
    stopped: Callable[[], bool] = lambda: False
    save_every_s: float = _SAVE_EVERY_S
    _raw: list[Part] = field(default_factory=list)
    _saved: float = field(default_factory=time.monotonic)

    def take(self, parts: Iterable[Part]) -> None:
        """Take in parts as a fold has made them."""
        self._raw.extend(parts)
        if len(self._raw) >= _SIFT_AT:
            self.sift()

    def sift(self) -> None:
        """Keep of the parts so far those that may be garbage."""
        if self._raw:
            self.parts += self.room.sift(self._raw, self.sources)
            self._raw = []

    def count(self, objects: int, size: int, date: datetime) -> None:
        """Count what was listed; the oldest Date is that of the whole listing."""
        before = self.walked.listed_at
        listed_at = date if before is None else min(before, date)
        self.walked = replace(
            self.walked,
            listed_at=listed_at,
            objects=self.walked.objects + objects,
            bytes=self.walked.bytes + size,
        )
        self.progress.listed(self.walked.objects)

    def save(self, left: Sequence[Range]) -> None:
        """Keep how far it is: these ranges are left."""
        self.sift()
        self.walked = replace(self.walked, left=list(left))
        self.resume.save(self.walked, self.plan, self.parts)
        self._saved = time.monotonic()

    @property
    def prefix(self) -> str:
        """What is listed."""
        return self.room.listed(self.scope)

    @property
    def save_is_due(self) -> bool:
        """Return whether the state was kept long enough ago, or a stop was asked for."""
        return self.stopped() or time.monotonic() - self._saved >= self.save_every_s

    def check_stop(self) -> None:
        """Raise Stopped if a stop was asked for; called where the state has just been kept."""
        if self.stopped():
            raise Stopped


def walk_here(walk: Walk) -> None:
    """List the ranges that are left, in this process; raises Stopped, ListingFault, and what calls raise."""
    for number, at in enumerate(walk.walked.left):
        _walk_range(walk, at, walk.walked.left[number + 1 :])
    walk.sift()


def _walk_range(walk: Walk, at: Range, others: Sequence[Range]) -> None:
    fold, calls = walk.plan.fold(), walk.sources.store.calls
    for page in pages_of(calls, walk.scope.bucket, walk.prefix, at.after, at.until):
        for entry in page.objects:
            walk.take(fold.add(entry))
        _count(walk, page)
        if page.after is not None and walk.save_is_due:
            # What the fold holds belongs to the objects before: with it, or without them.
            walk.take(fold.end())
            walk.save([Range(page.after, at.until), *others])
            walk.check_stop()
    walk.take(fold.end())


def _count(walk: Walk, page: CheckedPage) -> None:
    walk.count(len(page.objects), sum(entry.size for entry in page.objects), page.date)
