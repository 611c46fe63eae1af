"""One intent of a prefix on its way: a bounded slice of it, after all that is named has gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sexton.schemas.actions import DeleteMode, DeletePrefix
from sexton.schemas.events import DeferredIntent, OutcomeKind
from sexton.storage import Deleter, Kind
from sexton.streaming_jobs.reaper.actions.delete_prefix.passes import work_prefix
from sexton.streaming_jobs.reaper.actions.delete_prefix.progress import (
    PrefixProgress,
    PrefixState,
    PrefixStep,
)
from sexton.streaming_jobs.reaper.execute.bucket import Bucket
from sexton.streaming_jobs.reaper.execute.execution import Execution
from sexton.streaming_jobs.reaper.execute.expiry import expired, listed
from sexton.streaming_jobs.reaper.execute.items import EraseAll
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome, Presence
from sexton.streaming_jobs.reaper.execute.result import Result
from sexton.streaming_jobs.reaper.vetoes import Stop

if TYPE_CHECKING:
    from sexton.streaming_jobs.reaper.execute.sender import Sender

__all__ = ["PrefixExecution", "untried"]

_LATE = "written-later"  # among an outcome's effects: objects that came too late, and stay


@dataclass(slots=True)
class PrefixExecution(Execution):
    """`progress` is how far it had come before, `step` what this slice did, `final_outcome` past the age
    limit. `ends_writes`: nobody writes there any more, as a guard says.
    """

    action: DeletePrefix
    progress: PrefixProgress = field(default_factory=PrefixProgress)
    ends_writes: bool = False
    step: PrefixStep | None = None
    final_outcome: ItemOutcome | None = None

    # -- the stage's calls

    def start(self, sender: Sender) -> None:
        """Wait for all that is named."""
        sender.last.append(self)

    @property
    def next_phase(self) -> int | None:
        """There is but one."""
        return 0

    def proceed(self, sender: Sender) -> bool:
        """Have its slice worked beside the requests; nothing comes after it.

        In a dry run nothing is listed, and it counts as one object.
        """
        if self.bucket.breaker.opened is not None:
            self.held = self.bucket.breaker.opened
            return False
        if not self.may_begin(sender):
            return False
        if sender.dry:
            self.step = PrefixStep(PrefixState.DONE, PrefixProgress(gone=1))
            return False
        sender.job(
            self.bucket,
            lambda: work_prefix(
                sender.paced(self.bucket.name),
                self.action,
                self.progress,
                max_objects=sender.replies.limits.prefix_objects,
                deadline=sender.out_of_time,
                ends_writes=self.ends_writes,
                allow_bypass=sender.replies.limits.allow_bypass,
            ),
            lambda bucket, step: self._done(sender, bucket, step),
        )
        return False

    def expire(self, deleter: Deleter) -> None:
        """Decide about a prefix that is still held; raises EnvironmentFault."""
        if self.gated is not None:
            return  # not for its bucket: it grows no older
        fault = self.step.fault if self.step is not None else None
        held = self._held() or (ItemOutcome(None, fault.code, str(fault)) if fault is not None else None)
        if held is None:
            return
        maybe_sent = self.earlier is not None or self._come().gone > 0
        decided = expired(held, _left(deleter, self.action), maybe_sent=maybe_sent)
        self.final_outcome = decided if decided.kind is not None else None

    def result(self, request_ids: Sequence[str]) -> Result:
        """Return what this slice and those before it came to."""
        if self.final_outcome is not None:
            return self._expired(self.final_outcome)
        step, result = self.step, Result(gated=self.gated)
        if isinstance(self.gated, Stop):
            return self._stopped(self.gated, result)
        if step is None:
            held, began = self._held(), self.earlier is not None
            if held is not None and held.kind is not None and not began and not self.progress.gone:
                return self._expired(held)
            result.held, result.unknown = held, began
            return result
        result.request_ids = list(step.request_ids)
        result.progress, result.continues = step.progress, step.state is PrefixState.MORE
        if step.progress.gone:
            result.effects[self._effect(step)] = step.progress.gone
        if step.late:
            result.effects[_LATE] = step.late
        result.note = step.note
        _add_failed(step, result)
        result.counts[OutcomeKind.DELETED] += step.progress.gone
        if step.fault is not None:
            result.held = ItemOutcome(None, step.fault.code, str(step.fault))
            result.unknown = step.unknown
        return result

    # -- its own

    def _done(self, sender: Sender, bucket: Bucket, step: PrefixStep) -> None:
        self.step = step
        if step.state is PrefixState.ENVIRONMENT:
            sender.note(str(step.fault))
        bucket.done += step.state is PrefixState.DONE
        if step.fault is not None and step.state is PrefixState.BUCKET:
            bucket.open_circuit(ItemOutcome(None, step.fault.code, str(step.fault)))

    def _held(self) -> ItemOutcome | None:
        """Return why nothing was tried: the bucket was closed before, or while it was the prefix's turn."""
        return self.held or (self.bucket.breaker.opened if self.step is None else None)

    def _come(self) -> PrefixProgress:
        return self.step.progress if self.step is not None else self.progress

    def _effect(self, step: PrefixStep) -> str:
        """Return how its objects go, of all slices: in one mode all go the same way."""
        effect = next((name for name in step.effects if name != "absent"), "")
        if effect:
            return effect
        erases = self.action.mode is not DeleteMode.HIDE
        return self.bucket.effect(EraseAll(self.action.bucket) if erases else self.action.bucket)

    def _stopped(self, stop: Stop, result: Result) -> Result:
        """Return what is gone of a prefix of which nothing more is sent."""
        if self.progress.gone:
            result.counts[OutcomeKind.DELETED] += self.progress.gone
            result.effects[self._effect(PrefixStep(PrefixState.DONE))] = self.progress.gone
        if self.earlier is not None:
            result.note = "it was begun before, and what else is gone is not known"
        result.name(self.action.prefix, ItemOutcome(stop.kind, stop.reason, stop.detail))
        return result

    def _expired(self, outcome: ItemOutcome) -> Result:
        """Return what became of a prefix that waited too long: what is gone, and that something is left."""
        result = Result()
        result.counts[OutcomeKind.DELETED] += self._come().gone
        if outcome.kind is OutcomeKind.DEAD_LETTERED:
            result.name(self.action.prefix, outcome)
        return result


def _add_failed(step: PrefixStep, result: Result) -> None:
    for key, state in step.failed:
        kind = OutcomeKind.REFUSED if state.kind is Kind.REFUSED else OutcomeKind.DEAD_LETTERED
        result.name(key, ItemOutcome(kind, state.code, str(state)))
    unnamed = step.failed_count - len(step.failed)
    if unnamed:
        most = result.counts.most_common(1)[0][0] if result.counts else OutcomeKind.DEAD_LETTERED
        result.counts[most] += unnamed


def _left(deleter: Deleter, action: DeletePrefix) -> Presence:
    """Return whether something is there under a prefix."""
    calls, bucket, prefix = deleter.calls, action.bucket, action.prefix
    if action.mode is DeleteMode.ERASE_ALL_VERSIONS:
        return listed(lambda: bool(calls.version_slice(bucket, prefix, limit=1).versions))
    return listed(lambda: bool(calls.list_slice(bucket, prefix, limit=1).objects))


def untried(
    action: DeletePrefix, waited: DeferredIntent, before: object, kind: OutcomeKind, deleter: object
) -> Result:
    """Return what became of a prefix that waited and goes no further: what is gone, and this outcome."""
    result = Result()
    if waited.gone:
        result.counts[OutcomeKind.DELETED] += waited.gone
    result.name(action.prefix, ItemOutcome(kind))
    return result
