"""The listing of a run on Spark, parallel by sub-prefix: the same fold over the same rows, in many tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sexton.storage import ObjectStore, StoreSettings, folders_of, pages_of
from sexton.streaming_jobs.collectors.resume import Range
from sexton.streaming_jobs.collectors.room import Part, Plan
from sexton.streaming_jobs.collectors.walk import Walk
from sexton.streaming_jobs.spark import open_session

__all__ = ["split", "walk_on_spark"]

_RANGES = 256
_PARTS = 1000  # in one row of a task


@dataclass(frozen=True, slots=True)
class _Row:
    """What a task has made of some pages of its range."""

    objects: int
    size: int
    date: datetime | None
    parts: Sequence[Part]


def split(folders: Sequence[str], ranges: int = _RANGES) -> list[Range]:
    """Return ranges between folders' names, about as many of these in each; together they are all keys."""
    step = max(1, -(-len(folders) // ranges))
    bounds = list(folders[step::step])
    starts: list[str | None] = [None, *bounds]
    ends: list[str | None] = [*bounds, None]
    return [Range(start, end) for start, end in zip(starts, ends, strict=True)]


def walk_on_spark(walk: Walk) -> None:
    """List the ranges that are left, some at a time; raises Stopped, and what listing raises.

    A range counts once its task is done: what is kept of a run that was killed are whole ranges.
    """
    settings, left = walk.sources.settings, list(walk.walked.left)
    if left == [Range()]:
        left = split(folders_of(walk.sources.store.calls, walk.scope.bucket, walk.prefix))
    session = open_session(settings, f"sexton-collect-{walk.room.name}")
    try:
        at_once = max(2, session.sparkContext.defaultParallelism)
        task = _Task(StoreSettings.of(settings), walk.scope.bucket, walk.prefix, walk.plan)
        while left:
            wave, left = left[: 2 * at_once], left[2 * at_once :]
            rows = session.sparkContext.parallelize(wave, len(wave)).mapPartitions(task)
            for row in rows.collect():
                walk.take(row.parts)
                if row.date is not None:
                    walk.count(row.objects, row.size, row.date)
            if left:
                walk.save(left)
                walk.check_stop()
        walk.sift()
    finally:
        session.stop()


@dataclass(frozen=True, slots=True)
class _Task:
    """Lists ranges in a worker."""

    store: StoreSettings
    bucket: str
    prefix: str
    plan: Plan

    def __call__(self, ranges: Iterable[Range]) -> Iterator[_Row]:
        with ObjectStore(self.store) as store:
            for at in ranges:
                yield from self._listed(store, at)

    def _listed(self, store: ObjectStore, at: Range) -> Iterator[_Row]:
        fold = self.plan.fold()
        parts: list[Part] = []
        objects = size = 0
        date: datetime | None = None
        for page in pages_of(store.calls, self.bucket, self.prefix, at.after, at.until):
            for entry in page.objects:
                parts += fold.add(entry)
            date = page.date if date is None else min(date, page.date)
            objects += len(page.objects)
            size += sum(entry.size for entry in page.objects)
            if len(parts) >= _PARTS:
                yield _Row(objects, size, date, parts)
                objects, size, parts = 0, 0, []
        parts += fold.end()
        yield _Row(objects, size, date, parts)
