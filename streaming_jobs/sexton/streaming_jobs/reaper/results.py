"""What became of one intent: its keys by word, or what is known of each while it waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from sexton.schemas import events
from sexton.schemas.events import DeleteMode, OutcomeWord
from sexton.storage import Kind
from sexton.streaming_jobs.reaper.execution import Execution
from sexton.streaming_jobs.reaper.fates import EARLIER_PHASE, Earlier, Fate, Seen
from sexton.streaming_jobs.reaper.items import EraseAll, Item, key_of
from sexton.streaming_jobs.reaper.key_progress import Before, progress_of
from sexton.streaming_jobs.reaper.lanes import Lane
from sexton.streaming_jobs.reaper.looking import Looker, look
from sexton.streaming_jobs.reaper.prefix_steps import PrefixStep

__all__ = ["Result", "result_of", "untried"]


@dataclass(slots=True)
class Result:
    """What became of an intent: keys by word, those that are not of the most common word by name.

    With `held` it has no word yet: it waits, `unknown` tells whether some of its keys may be gone, and `keys`
    which.
    """

    counts: Counter[OutcomeWord] = field(default_factory=Counter)
    named: list[tuple[str, Fate]] = field(default_factory=list)
    effects: Counter[str] = field(default_factory=Counter)
    request_ids: list[str] = field(default_factory=list)
    held: Fate | None = None
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
    lane = execution.lane
    assert lane is not None
    for items in execution.phases:
        met = [item for item in items if execution.fate(item)] if lane.fates or execution.last_words else []
        untroubled = [item for item in items if not execution.fate(item)] if met else items
        if untroubled:
            result.counts[OutcomeWord.DELETED] += len(untroubled)
            result.effects.update(lane.effects(untroubled))
            result.unknown = result.unknown or bool(lane.fates)  # what waits as a whole is gone in part
        _add_fates(met, execution, lane, result)
    for refusal in execution.refused:
        _name(result, refusal.key, refusal.fate)
    _add_unqueued(execution, result)


def _add_before(action: events.Action, before: Before, result: Result) -> None:
    """Count what earlier attempts have settled."""
    assert isinstance(action, events.DeleteObjects)
    result.unknown = bool(before.done or before.unknown)
    result.request_ids = [*before.request_ids, *result.request_ids]
    for number, key in enumerate(chain.from_iterable(action.phases)):
        if number not in before.done:
            continue
        word, effect = before.done[number]
        result.effects[effect] += 1
        if word is OutcomeWord.DELETED:
            result.counts[word] += 1  # as it is plain, nobody names it
        else:
            _name(result, key, Fate(word))


def untried(
    waited: events.DeferredIntent,
    action: events.Action,
    before: Before | None,
    word: OutcomeWord,
    looker: Looker,
) -> Result:
    """Return what became of an intent that waited and goes no further: what is not gone has this word.

    Of what may be gone that is only said after a look; while it cannot be seen the intent waits. Without
    `before` each of its keys may be.
    """
    result = Result()
    if isinstance(action, events.DeletePrefix):
        if waited.gone:
            result.counts[OutcomeWord.DELETED] += waited.gone
        _name(result, action.prefix, Fate(word))
    if not isinstance(action, events.DeleteObjects):
        return result
    before = before or Before(action.phases, unknown=frozenset(chain.from_iterable(action.phases)))
    _add_before(action, before, result)
    doubtful = [key for phase in before.left for key in phase if key in before.unknown]
    seen = look(looker, action.bucket, doubtful)
    for key in chain.from_iterable(before.left):
        shown = seen[key].seen if key in seen else Seen.THERE
        if shown is Seen.UNKNOWN:
            result.held, result.keys = Fate(None, "held", "what may be gone cannot be looked at"), waited.keys
        elif shown is Seen.ABSENT:
            _name(result, key, Fate(OutcomeWord.ABSENT))
            result.effects["absent"] += 1
        else:
            _name(result, key, Fate(word))
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


def _gone(execution: Execution, item: Item) -> tuple[OutcomeWord, str] | None:
    """Return the word and the effect of a queued item that is gone, None for any other."""
    fate, lane = execution.fate(item), execution.lane
    assert lane is not None
    if fate is None or fate.word is OutcomeWord.DELETED:
        return OutcomeWord.DELETED, (fate.effect if fate else "") or lane.effect(item)
    return (fate.word, "absent") if fate.word is OutcomeWord.ABSENT and not fate.stands else None


def _add_fates(items: Sequence[Item], execution: Execution, lane: Lane, result: Result) -> None:
    """Count those that are not plainly gone, or that met trouble first."""
    for item in items:
        fate = execution.fate(item)
        assert fate is not None
        result.unknown = result.unknown or fate.unknown or item in lane.sent_before
        if fate.word is None:
            result.held = fate
            continue
        if fate.request_id and fate.request_id not in result.request_ids:
            result.request_ids.append(fate.request_id)
        _name(result, key_of(item), fate)
        if fate.word is OutcomeWord.DELETED:
            result.effects[fate.effect or lane.effect(item)] += 1
            result.unknown = True
        elif fate.word is OutcomeWord.ABSENT:
            result.effects["absent"] += 1


def _add_unqueued(execution: Execution, result: Result) -> None:
    """Give the keys of phases that never started the word of what stood in their way."""
    if execution.blocked is None:
        return
    dead = execution.blocked.word is OutcomeWord.DEAD_LETTERED
    word = OutcomeWord.DEAD_LETTERED if dead else OutcomeWord.REFUSED
    why = Fate(word, EARLIER_PHASE, f"a key of an earlier phase is not gone: {execution.blocked.detail}")
    for phase in execution.left[len(execution.phases) :]:
        for key in phase:
            _name(result, key, why)


def _of_prefix(execution: Execution, result: Result) -> Result:
    step = execution.step
    if execution.last_word is not None:
        return _last_word(execution, execution.last_word, result)
    if step is None:
        assert execution.held is not None
        result.held, result.unknown = execution.held, execution.earlier is not None
        return result
    _add_prefix_effects(execution, step, result)
    result.request_ids = list(step.request_ids)
    for key, state in step.failed:
        word = OutcomeWord.REFUSED if state.kind is Kind.REFUSED else OutcomeWord.DEAD_LETTERED
        _name(result, key, Fate(word, state.code, str(state)))
    unnamed = step.failed_count - len(step.failed)
    if unnamed:
        most = result.counts.most_common(1)[0][0] if result.counts else OutcomeWord.DEAD_LETTERED
        result.counts[most] += unnamed
    result.counts[OutcomeWord.DELETED] += step.progress.gone
    if step.fault is not None:
        result.held, result.unknown = Fate(None, step.fault.code, str(step.fault)), step.unknown
    return result


def _add_prefix_effects(execution: Execution, step: PrefixStep, result: Result) -> None:
    """Count what went in all slices, not only in the last one: in one mode all objects go the same way."""
    lane, action = execution.lane, execution.action
    assert lane is not None
    assert isinstance(action, events.DeletePrefix)
    kind = next((name for name in step.effects if name != "absent"), "")
    if not kind:
        erases = action.mode is not DeleteMode.HIDE
        kind = lane.effect(EraseAll(action.bucket) if erases else action.bucket)
    if step.progress.gone:
        result.effects[kind] = step.progress.gone


def _last_word(execution: Execution, fate: Fate, result: Result) -> Result:
    """Return what became of a prefix that waited too long: what is gone, and that something is left."""
    assert isinstance(execution.action, events.DeletePrefix)
    progress = execution.step.progress if execution.step is not None else execution.progress
    result.counts[OutcomeWord.DELETED] += progress.gone
    if fate.word is OutcomeWord.DEAD_LETTERED:
        _name(result, execution.action.prefix, fate)
    return result


def _name(result: Result, key: str, fate: Fate) -> None:
    assert fate.word is not None
    result.counts[fate.word] += 1
    result.named.append((key, fate))
