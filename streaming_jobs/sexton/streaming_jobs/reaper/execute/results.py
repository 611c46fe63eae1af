"""What became of one intent: its keys by outcome, or what is known of each while it waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from sexton.schemas import events
from sexton.schemas.events import DeleteMode, OutcomeKind
from sexton.storage import Kind
from sexton.streaming_jobs.reaper.actions.delete_prefix.progress import PrefixStep
from sexton.streaming_jobs.reaper.execute.bucket import Bucket
from sexton.streaming_jobs.reaper.execute.execution import Execution
from sexton.streaming_jobs.reaper.execute.items import EraseAll, Item, key_of
from sexton.streaming_jobs.reaper.execute.outcomes import EARLIER_PHASE, Earlier, ItemOutcome, Presence
from sexton.streaming_jobs.reaper.execute.verification import Verifier, verify
from sexton.streaming_jobs.reaper.recovery.key_progress import Before, progress_of

__all__ = ["Result", "result_of", "untried"]


@dataclass(slots=True)
class Result:
    """What became of an intent: keys by outcome, those that are not of the most common outcome by name.

    With `held` it has no outcome yet: it waits, `unknown` says whether some of its keys may be gone, and
    `keys` which.
    """

    counts: Counter[OutcomeKind] = field(default_factory=Counter)
    named: list[tuple[str, ItemOutcome]] = field(default_factory=list)
    effects: Counter[str] = field(default_factory=Counter)
    request_ids: list[str] = field(default_factory=list)
    held: ItemOutcome | None = None
    unknown: bool = False
    keys: events.KeyProgress | None = None


def result_of(execution: Execution, request_ids: Sequence[str]) -> Result:
    """Return what became of an execution that has come to rest; `request_ids` are the task's, by number."""
    result = Result(request_ids=[name for n in execution.requests if (name := request_ids[n])])
    if isinstance(execution.action, events.DeletePrefix):
        return _of_prefix(execution, result)
    _of_keys(execution, result)
    if result.held is not None:
        result.keys = _progress(execution, result.request_ids)
    return result


def _of_keys(execution: Execution, result: Result) -> None:
    if execution.before is not None:
        _add_before(execution.action, execution.before, result)
    if execution.held is not None:
        # Phases that were queued before the bucket was closed are gone.
        gone = execution.earlier is not None or bool(execution.phases)
        result.held, result.unknown = execution.held, result.unknown or gone or execution.held.unknown
        return
    bucket = execution.bucket
    assert bucket is not None
    for items in execution.phases:
        met = (
            [item for item in items if execution.outcome(item)]
            if bucket.outcomes or execution.final_outcomes
            else []
        )
        untroubled = [item for item in items if not execution.outcome(item)] if met else items
        if untroubled:
            result.counts[OutcomeKind.DELETED] += len(untroubled)
            result.effects.update(bucket.effects(untroubled))
            result.unknown = result.unknown or bool(bucket.outcomes)  # what waits as a whole is gone in part
        _add_outcomes(met, execution, bucket, result)
    for refusal in execution.refused:
        _name(result, refusal.key, refusal.outcome)
    _add_unqueued(execution, result)


def _add_before(action: events.Action, before: Before, result: Result) -> None:
    """Count what earlier attempts have settled."""
    assert isinstance(action, events.DeleteObjects)
    result.unknown = bool(before.done or before.unknown)
    result.request_ids = [*before.request_ids, *result.request_ids]
    for number, key in enumerate(chain.from_iterable(action.phases)):
        if number not in before.done:
            continue
        kind, effect = before.done[number]
        result.effects[effect] += 1
        if kind is OutcomeKind.DELETED:
            result.counts[kind] += 1  # as it is plain, nobody names it
        else:
            _name(result, key, ItemOutcome(kind))


def untried(
    waited: events.DeferredIntent,
    action: events.Action,
    before: Before | None,
    kind: OutcomeKind,
    verifier: Verifier,
) -> Result:
    """Return what became of an intent that waited and goes no further: what is not gone has this outcome.

    Of what may be gone that is only said after verification; while it cannot be seen the intent waits.
    Without `before` each of its keys may be.
    """
    result = Result()
    if isinstance(action, events.DeletePrefix):
        if waited.gone:
            result.counts[OutcomeKind.DELETED] += waited.gone
        _name(result, action.prefix, ItemOutcome(kind))
    if not isinstance(action, events.DeleteObjects):
        return result
    before = before or Before(action.phases, unknown=frozenset(chain.from_iterable(action.phases)))
    _add_before(action, before, result)
    doubtful = [key for phase in before.left for key in phase if key in before.unknown]
    presence = verify(verifier, action.bucket, doubtful)
    for key in chain.from_iterable(before.left):
        shown = presence[key].presence if key in presence else Presence.PRESENT
        if shown is Presence.UNKNOWN:
            result.held, result.keys = (
                ItemOutcome(None, "held", "what may be gone cannot be verified"),
                waited.keys,
            )
        elif shown is Presence.ABSENT:
            _name(result, key, ItemOutcome(OutcomeKind.ABSENT))
            result.effects["absent"] += 1
        else:
            _name(result, key, ItemOutcome(kind))
    return result


def _progress(execution: Execution, request_ids: Sequence[str]) -> events.KeyProgress | None:
    """Return what is known of each key of an intent that waits."""
    assert isinstance(execution.action, events.DeleteObjects)
    done = dict(execution.before.done) if execution.before else {}
    unknown: dict[int, Earlier] = {}
    # Of all phases: a key that several of them name is one delete.
    queued = {key_of(item): item for item in chain.from_iterable(execution.phases)}
    for number, key in enumerate(chain.from_iterable(execution.action.phases)):
        if number in done:
            continue
        item = queued.get(key)
        gone = _gone(execution, item) if item is not None else None
        if gone is not None:
            done[number] = gone
        elif (earlier := execution.attempt_at(key if item is None else item)) is not None:
            unknown[number] = earlier
    return progress_of(done, unknown, request_ids)


def _gone(execution: Execution, item: Item) -> tuple[OutcomeKind, str] | None:
    """Return the outcome and the effect of a queued item that is gone, None for any other."""
    outcome, bucket = execution.outcome(item), execution.bucket
    assert bucket is not None
    if outcome is None or outcome.kind is OutcomeKind.DELETED:
        return OutcomeKind.DELETED, (outcome.effect if outcome else "") or bucket.effect(item)
    return (outcome.kind, "absent") if outcome.kind is OutcomeKind.ABSENT and not outcome.stands else None


def _add_outcomes(items: Sequence[Item], execution: Execution, bucket: Bucket, result: Result) -> None:
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
        _name(result, key_of(item), outcome)
        if outcome.kind is OutcomeKind.DELETED:
            result.effects[outcome.effect or bucket.effect(item)] += 1
            result.unknown = True
        elif outcome.kind is OutcomeKind.ABSENT:
            result.effects["absent"] += 1


def _add_unqueued(execution: Execution, result: Result) -> None:
    """Give the keys of phases that never started the outcome of what stood in their way."""
    if execution.blocked is None:
        return
    dead = execution.blocked.kind is OutcomeKind.DEAD_LETTERED
    kind = OutcomeKind.DEAD_LETTERED if dead else OutcomeKind.REFUSED
    why = ItemOutcome(
        kind, EARLIER_PHASE, f"a key of an earlier phase is not gone: {execution.blocked.detail}"
    )
    for phase in execution.left[len(execution.phases) :]:
        for key in phase:
            _name(result, key, why)


def _of_prefix(execution: Execution, result: Result) -> Result:
    step = execution.step
    if execution.final_outcome is not None:
        return _final_outcome(execution, execution.final_outcome, result)
    if step is None:
        assert execution.held is not None
        result.held, result.unknown = execution.held, execution.earlier is not None
        return result
    _add_prefix_effects(execution, step, result)
    result.request_ids = list(step.request_ids)
    for key, state in step.failed:
        kind = OutcomeKind.REFUSED if state.kind is Kind.REFUSED else OutcomeKind.DEAD_LETTERED
        _name(result, key, ItemOutcome(kind, state.code, str(state)))
    unnamed = step.failed_count - len(step.failed)
    if unnamed:
        most = result.counts.most_common(1)[0][0] if result.counts else OutcomeKind.DEAD_LETTERED
        result.counts[most] += unnamed
    result.counts[OutcomeKind.DELETED] += step.progress.gone
    if step.fault is not None:
        result.held, result.unknown = ItemOutcome(None, step.fault.code, str(step.fault)), step.unknown
    return result


def _add_prefix_effects(execution: Execution, step: PrefixStep, result: Result) -> None:
    """Count what went in all slices, not only in the last one: in one mode all objects go the same way."""
    bucket, action = execution.bucket, execution.action
    assert bucket is not None
    assert isinstance(action, events.DeletePrefix)
    kind = next((name for name in step.effects if name != "absent"), "")
    if not kind:
        is_permanent = action.mode is not DeleteMode.HIDE
        kind = bucket.effect(EraseAll(action.bucket) if is_permanent else action.bucket)
    if step.progress.gone:
        result.effects[kind] = step.progress.gone


def _final_outcome(execution: Execution, outcome: ItemOutcome, result: Result) -> Result:
    """Return what became of a prefix that waited too long: what is gone, and that something is left."""
    assert isinstance(execution.action, events.DeletePrefix)
    progress = execution.step.progress if execution.step is not None else execution.progress
    result.counts[OutcomeKind.DELETED] += progress.gone
    if outcome.kind is OutcomeKind.DEAD_LETTERED:
        _name(result, execution.action.prefix, outcome)
    return result


def _name(result: Result, key: str, outcome: ItemOutcome) -> None:
    assert outcome.kind is not None
    result.counts[outcome.kind] += 1
    result.named.append((key, outcome))
