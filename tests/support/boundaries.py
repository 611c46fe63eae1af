"""Intents under boundary guards, and the files that they are about, on a server that records its requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.support.s3_recorder import Recorded, S3Recorder
from tests.support.task_work import FIRST, NOW, TYPES, Issuer, codec, work_of

from sexton.schemas import events
from sexton.schemas.sequenced import Namespace
from sexton.storage import BatchDeleter, StoreSettings
from sexton.streaming_jobs.budget import NoBudget
from sexton.streaming_jobs.reaper.decode import Record
from sexton.streaming_jobs.reaper.execute.dry_store import DryStore
from sexton.streaming_jobs.reaper.execute.executor import Executor, Limits
from sexton.streaming_jobs.reaper.work import settle, take

__all__ = [
    "BOUNDARY",
    "BUCKET",
    "COMPACTIONS",
    "DELETED",
    "MANIFESTS",
    "Bench",
    "asked",
    "bench",
    "files",
    "outcome",
]

BUCKET = "bucket"
MANIFESTS, COMPACTIONS = Namespace("db", "manifest"), Namespace("db", "compactions")
BOUNDARY = MANIFESTS.boundary_key
DELETED = ("deleted", "pass", "pass")
"""The `outcome` of an intent whose keys are all deleted."""


def files(ids: Iterable[int], space: Namespace = MANIFESTS) -> list[str]:
    """Return the keys of these files."""
    return [space.key(id) for id in ids]


def asked(
    ids: Sequence[int],
    up_to: int | None = None,
    *,
    floor: int | None = None,
    name: str = "intent",
    space: Namespace = MANIFESTS,
    guards: Sequence[events.Guard] = (),
    vetoes: Sequence[events.Veto] = (),
) -> events.DeletionIntent:
    """Return an intent about files, under a boundary that is the highest of them unless told."""
    guard = events.BoundaryGuard(space.text, max(ids) if up_to is None else up_to, floor)
    action = events.DeleteObjects(BUCKET, (tuple(files(ids, space)),))
    return events.DeletionIntent(name, "t", NOW, "test", (guard, *guards), action, vetoes=vetoes)


def outcome(row: Any) -> tuple[str, str, str]:
    """Return what became of an intent: its outcome or `deferred`, the verdict's result, and the reason."""
    if isinstance(row, events.DeferredIntent):
        return "deferred", "", row.reason
    assert isinstance(row, events.Outcome)
    return row.outcome.value, row.verdict.result.value, row.verdict.reason


class Bench:
    """A task's execution on a real client, against a recorder with ten manifests and a boundary at 3."""

    def __init__(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        self.s3, self.deleter = s3, deleter
        s3.create_bucket(BUCKET, {**dict.fromkeys(files(range(1, 11)), b"x"), BOUNDARY: b"3"})

    def settle(
        self,
        *intents: events.DeletionIntent,
        dry: bool = False,
        held: Mapping[str, str] | None = None,
        **work: Any,
    ) -> list[Any]:
        """Return what one task writes of these intents, in their order; `work` is as of `work_of`.

        `held` are buckets whose circuit is open, with the reason.
        """
        store = DryStore(lambda: self.deleter.calls) if dry else self.deleter
        executor = Executor(store, NoBudget(), Limits(failure_threshold_s=1.0), held or {}, dry=dry)
        task = work_of(work.pop("issuer", None) or Issuer(), executor=executor, **work)
        records = [
            Record(0, FIRST.offset + n, 0, b"t", codec.encode(intent)) for n, intent in enumerate(intents)
        ]
        take(task, records)
        self.counts = task.counts
        return [codec.decode(row.value, TYPES[row.topic]) for row in settle(task)]

    @property
    def boundary(self) -> bytes | None:
        """The boundary object's bytes."""
        return self.s3.objects(BUCKET).get(BOUNDARY)

    def set_boundary(self, body: bytes | None) -> None:
        """Write or delete the boundary object, as somebody else would."""
        if body is None:
            self.s3.buckets.of(BUCKET).versions.pop(BOUNDARY)
        else:
            self.s3.buckets.fill(BUCKET, {BOUNDARY: body})

    def left(self, space: Namespace = MANIFESTS) -> list[int]:
        """Return the ids of the files that stand."""
        found = (space.id_of(key) for key in self.s3.objects(BUCKET))
        return sorted(id for id in found if id is not None)

    def calls(self) -> list[str]:
        """Return the requests but a probe's and those about the bucket itself: method, and about what."""
        return [_told(each) for each in self.s3.requests if not each.is_probe and (each.key or each.query)]


def _told(request: Recorded) -> str:
    if request.is_delete_objects:
        return "delete"
    return "list" if "list-type" in request.query else f"{request.method} {request.key}"


@contextmanager
def bench(s3: S3Recorder) -> Iterator[Bench]:
    """Run a bench against a recorder whose credentials are in this process' environment."""
    with BatchDeleter(StoreSettings(s3.url, connect_timeout_s=5, read_timeout_s=5)) as deleter:
        yield Bench(s3, deleter)
