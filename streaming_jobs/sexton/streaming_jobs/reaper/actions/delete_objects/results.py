"""What became of one intent of named keys: its keys by outcome, or what is known of each while it waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from sexton.schemas.actions import DeleteObjects
from sexton.schemas.events import DeferredIntent, KeyProgress, OutcomeKind
from sexton.storage import Deleter
from sexton.streaming_jobs.reaper.execute.bucket import Bucket
from sexton.streaming_jobs.reaper.execute.items import Item, key_of
from sexton.streaming_jobs.reaper.execute.outcomes import EARLIER_PHASE, ItemOutcome, Presence
from sexton.streaming_jobs.reaper.execute.result import Result
from sexton.streaming_jobs.reaper.execute.verification import verify
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt
from sexton.streaming_jobs.reaper.recovery.key_progress import Before, progress_of
from sexton.streaming_jobs.reaper.vetoes import Stop

if TYPE_CHECKING:
    from sexton.streaming_jobs.reaper.actions.delete_objects.execution import ObjectsExecution

__all__ = ["result_of", "untried"]


def result_of(execution: ObjectsExecution, request_ids: Sequence[str]) -> Result:
    """Return what became of an execution that has come to rest; `request_ids` are the task's, by number."""
    result = Result(request_ids=[name for n in execution.requests if (name := request_ids[n])])
    _of_keys(execution, result)
    if result.held is not None:
        result.keys, result.resumes_at = _progress(execution, result.request_ids), execution.resumes_at
    result.gated = execution.gated
    return result


def _of_keys(execution: ObjectsExecution, result: Result) -> None:
    if execution.before is not None:
        _add_before(execution.action, execution.before, result)
    if execution.held is not None:
        # Phases that were queued before the bucket was closed are gone.
        gone = execution.earlier is not None or bool(execution.phases)
        result.held, result.unknown = execution.held, result.unknown or gone or execution.held.unknown
        return
    bucket = execution.bucket
    for items in execution.phases:
        some_met = bucket.keys or execution.final_outcomes
        met = [item for item in items if execution.outcome(item)] if some_met else []
        untroubled = [item for item in items if not execution.outcome(item)] if met else items
        if untroubled:
            result.counts[OutcomeKind.DELETED] += len(untroubled)
            result.effects.update(bucket.effects(untroubled))
            result.unknown = result.unknown or bool(bucket.keys)  # what waits as a whole is gone in part
        _add_outcomes(met, execution, bucket, result)
    for refusal in execution.refused:
        result.name(refusal.key, refusal.outcome)
    _add_unqueued(execution, result)


def _add_before(action: DeleteObjects, before: Before, result: Result) -> None:
    """Count what earlier attempts have settled."""
    result.unknown = bool(before.done or before.unknown)
    result.request_ids = [*before.request_ids, *result.request_ids]
    for number, key in enumerate(action.keys):
        if number not in before.done:
            continue
        kind, effect = before.done[number]
        result.effects[effect] += 1
        if kind is OutcomeKind.DELETED:
            result.counts[kind] += 1  # as it is plain, nobody names it
        else:
            result.name(key, ItemOutcome(kind))


def untried(
    action: DeleteObjects,
    waited: DeferredIntent,
    before: Before | None,
    kind: OutcomeKind,
    deleter: Deleter,
) -> Result:
    """Return what became of an intent that waited and goes no further: what is not gone has this outcome.

    Of what may be gone that is only said after verification; while it cannot be seen the intent waits.
    Without `before` each of its keys may be.
    """
    result = Result()
    before = before or Before(action.phases, unknown=frozenset(action.keys))
    _add_before(action, before, result)
    uncertain = [key for phase in before.left for key in phase if key in before.unknown]
    shown = verify(deleter, action.bucket, uncertain)
    there = {key: found.presence for key, found in shown.items()}
    _add_unsent(chain.from_iterable(before.left), there, ItemOutcome(kind), "held", result)
    if result.held is not None:
        result.keys = waited.keys
    return result


def _add_unsent(
    keys: Iterable[str],
    shown: Mapping[str, Presence],
    outcome: ItemOutcome,
    waits: str,
    result: Result,
) -> None:
    """Give keys of which nothing more is sent their outcome, and those that were seen to be gone theirs.

    Where one that may have gone cannot be verified the intent waits, for the reason `waits`.
    """
    for key in keys:
        presence = shown.get(key, Presence.PRESENT)
        if presence is Presence.UNKNOWN:
            result.held = ItemOutcome(None, waits, "what may be gone cannot be verified")
        elif presence is Presence.ABSENT:
            result.name(key, ItemOutcome(OutcomeKind.ABSENT))
            result.effects["absent"] += 1
        else:
            result.name(key, outcome)


def _progress(execution: ObjectsExecution, request_ids: Sequence[str]) -> KeyProgress | None:
    """Return what is known of each key of an intent that waits."""
    done = dict(execution.before.done) if execution.before else {}
    unknown: dict[int, Attempt] = {}
    # Of all phases: a key that several of them name is one delete.
    queued = {key_of(item): item for item in chain.from_iterable(execution.phases)}
    for number, key in enumerate(execution.action.keys):
        if number in done:
            continue
        item = queued.get(key)
        gone = _gone(execution, item) if item is not None else None
        if gone is not None:
            done[number] = gone
        elif (earlier := execution.attempt_at(key if item is None else item)) is not None:
            unknown[number] = earlier
    return progress_of(done, unknown, request_ids)


def _gone(execution: ObjectsExecution, item: Item) -> tuple[OutcomeKind, str] | None:
    """Return the outcome and the effect of a queued item that is gone, None for any other."""
    outcome, bucket = execution.outcome(item), execution.bucket
    if outcome is None or outcome.kind is OutcomeKind.DELETED:
        return OutcomeKind.DELETED, (outcome.effect if outcome else "") or bucket.effect(item)
    return (outcome.kind, "absent") if outcome.kind is OutcomeKind.ABSENT and not outcome.stands else None


def _add_outcomes(items: Sequence[Item], execution: ObjectsExecution, bucket: Bucket, result: Result) -> None:
    """Count those that are not plainly gone, or that met trouble first."""
    for item in items:
        outcome = execution.outcome(item)
        assert outcome is not None
        result.unknown = result.unknown or outcome.unknown or item in bucket.sent_before
        if outcome.kind is None:
            result.held = outcome
            continue
        if outcome.request_id and outcome.request_id not in result.request_ids:
            result.request_ids.append(outcome.request_id)
        result.name(key_of(item), outcome)
        if outcome.kind is OutcomeKind.DELETED:
            result.effects[outcome.effect or bucket.effect(item)] += 1
            result.unknown = True
        elif outcome.kind is OutcomeKind.ABSENT:
            result.effects["absent"] += 1


def _add_unqueued(execution: ObjectsExecution, result: Result) -> None:
    """Give the keys of phases that never started the outcome of what stood in their way."""
    if isinstance(stop := execution.gated, Stop):
        left = chain.from_iterable(execution.left[len(execution.phases) :])
        stopped = ItemOutcome(stop.kind, stop.reason, stop.detail)
        _add_unsent(left, execution.shown, stopped, "veto-unknown", result)
    if execution.blocked is None:
        return
    dead = execution.blocked.kind is OutcomeKind.DEAD_LETTERED
    kind = OutcomeKind.DEAD_LETTERED if dead else OutcomeKind.REFUSED
    why = ItemOutcome(
        kind, EARLIER_PHASE, f"a key of an earlier phase is not gone: {execution.blocked.detail}"
    )
    for phase in execution.left[len(execution.phases) :]:
        for key in phase:
            result.name(key, why)
