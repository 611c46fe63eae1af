"""One task of the reaper in this process, without Spark and a broker, on intents like the collector's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.engines.gate import Gate
from tests.support.task_work import FIRST, NOW, Issuer, codec, work_of

from sexton.schemas import events
from sexton.schemas.sequenced import Namespace
from sexton.storage import BatchDeleter
from sexton.streaming_jobs.budget import NoBudget
from sexton.streaming_jobs.reaper.decode import Record
from sexton.streaming_jobs.reaper.execute.executor import Executor, Limits
from sexton.streaming_jobs.reaper.work import settle, take

__all__ = ["OneTask"]


@dataclass
class OneTask:
    """Collects all but the newest file of some namespaces, of databases without checkpoints.

    `deleter` reaches the store through the gate, `s3` directly.
    """

    deleter: BatchDeleter
    s3: Any
    bucket: str
    gate: Gate
    namespaces: list[Namespace]
    boundary: Callable[[Namespace], int]
    files_deleted: int = 0

    def collect(self, prefix: str) -> None:
        """Ask for what is found, and have one task process it."""
        intents = [intent for space in self.namespaces if (intent := self._intent(space)) is not None]
        work = work_of(Issuer(), executor=Executor(self.deleter, NoBudget(), Limits()))
        take(
            work,
            [Record(0, FIRST.offset + n, 0, b"t", codec.encode(intent)) for n, intent in enumerate(intents)],
        )
        for row in settle(work):
            outcome = codec.decode(row.value, events.Outcome)
            assert outcome.outcome is events.OutcomeKind.DELETED, outcome
            self.files_deleted += outcome.counts["deleted"]

    def settle(self) -> None:
        """Nothing is left to be done."""

    def kill_reaper(self) -> None:
        """It runs in this process."""

    def start_reaper(self) -> None:
        """It runs in this process."""

    def _intent(self, space: Namespace) -> events.DeletionIntent | None:
        listed = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=space.folder).get("Contents", ())
        *ids, _ = sorted(id for each in listed if (id := space.id_of(each["Key"])) is not None)
        if not ids:
            return None
        guard = events.BoundaryGuard(space.text, max(ids), floor=self.boundary(space))
        action = events.DeleteObjects(self.bucket, (tuple(space.key(id) for id in ids),))
        return events.DeletionIntent(f"intent-{space.text}-{max(ids)}", "t", NOW, "test", (guard,), action)
