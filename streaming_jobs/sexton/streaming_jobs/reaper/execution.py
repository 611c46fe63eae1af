"""One intent's way through the execute stage: which items it asks for, and what became of them in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sexton.schemas import events
from sexton.schemas.events import DeleteMode, OutcomeWord
from sexton.storage import Delete
from sexton.streaming_jobs.reaper.fates import EARLIER_PHASE, Fate
from sexton.streaming_jobs.reaper.items import EraseAll, Item, key_of
from sexton.streaming_jobs.reaper.lanes import Lane
from sexton.streaming_jobs.reaper.prefix_steps import PrefixProgress, PrefixStep

__all__ = ["Execution", "Refusal", "Result", "items_of", "names_of", "result_of"]

_NO_VERSION = "null"  # of every object that was written while versioning was off or suspended
_GONE = (OutcomeWord.DELETED, OutcomeWord.ABSENT)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a key may not be sent as it stands: nothing would check its condition."""

    key: str
    fate: Fate


@dataclass(slots=True)
class Execution:
    """An intent that passed; `phases` are the items queued so far, `requests` the numbers that carried them.

    `sent_before`: an earlier attempt may have sent its keys. `was_changed`: an earlier receipt says so, None
    when nobody knows. `overdue`: past the age limit, so that what its bucket holds is decided now.
    `held` is set when its bucket was closed before anything was queued, `last_word` of a
    prefix whose age limit has passed, and `last_words` of its items: the lane's fates are those of all
    intents that name them.
    """

    action: events.DeleteObjects | events.DeletePrefix
    conditions: Mapping[str, events.KeyCondition] = field(default_factory=dict)
    sent_before: bool = False
    was_changed: bool | None = False
    overdue: bool = False
    progress: PrefixProgress = field(default_factory=PrefixProgress)
    phases: list[Sequence[Item]] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    lane: Lane | None = None
    held: Fate | None = None
    refused: list[Refusal] = field(default_factory=list)
    blocked: Fate | None = None
    step: PrefixStep | None = None
    last_word: Fate | None = None
    last_words: dict[Item, Fate] = field(default_factory=dict)

    def fate(self, item: Item) -> Fate | None:
        """Return a queued item's fate, None for plainly gone."""
        assert self.lane is not None
        return self.last_words.get(item) or self.lane.fates.get(item)

    def fates(self) -> Iterator[tuple[Item, Fate | None]]:
        """Yield each item that was queued with its fate, None for plainly gone."""
        for phase in self.phases:
            for item in phase:
                yield item, self.fate(item)

    def blocking(self) -> Fate | None:
        """Return the fate of a queued key that is not gone, so that no later phase may start.

        One that waits comes first, as the intent does; a dead letter last: it is replayed, and what stays
        for another reason would not be among its keys.
        """
        if self.held is not None:
            return self.held
        assert self.lane is not None
        bad = [refusal.fate for refusal in self.refused]
        if self.lane.fates or self.last_words:
            # What stands under a key of this phase may need what a later phase would delete.
            bad += [f for _, f in self.fates() if f is not None and (f.word not in _GONE or f.stands)]
        return min(bad, key=_hold, default=None)


def _hold(fate: Fate) -> int:
    """Return how a fate stands before others that hold up a phase, the least first."""
    return 0 if fate.word is None else 2 if fate.word is OutcomeWord.DEAD_LETTERED else 1


@dataclass(slots=True)
class Result:
    """What became of an intent: keys by word, those that are not of the most common word by name.

    With `held` it has no word yet: it waits, and `unknown` tells whether some of its keys may be gone.
    """

    counts: Counter[OutcomeWord] = field(default_factory=Counter)
    named: list[tuple[str, Fate]] = field(default_factory=list)
    effects: Counter[str] = field(default_factory=Counter)
    request_ids: list[str] = field(default_factory=list)
    held: Fate | None = None
    unknown: bool = False


def items_of(execution: Execution, keys: Sequence[str], lane: Lane) -> Sequence[Item]:
    """Return what is sent for these keys; those that may not be sent are noted as refused.

    A guard that the store cannot check in the delete itself has not passed.
    """
    action, conditions = execution.action, execution.conditions
    assert isinstance(action, events.DeleteObjects)
    if not conditions and (action.mode is DeleteMode.HIDE or not lane.marks):
        return keys
    items: list[Item] = []
    for key in keys:
        item = _item(key, conditions.get(key), action.mode, lane)
        if isinstance(item, Fate):
            execution.refused.append(Refusal(key, item))
        else:
            items.append(item)
    return items


def _item(key: str, condition: events.KeyCondition | None, mode: DeleteMode, lane: Lane) -> Item | Fate:
    """Return what is sent for a key, or why nothing is: each condition needs a store that checks it."""
    if lane.marks and mode is DeleteMode.ERASE_ALL_VERSIONS:
        if condition is not None:
            return _refuse("no store checks a condition while all versions are erased")
        return EraseAll(key)
    erases = lane.marks and mode is DeleteMode.ERASE_VERSION
    if condition is None or (erases and condition.version_id is None):
        return _refuse("a version id is needed to erase one") if erases else key
    if condition.version_id is None:
        return Delete(key, condition.etag)
    if condition.etag is not None:
        return _refuse("no store is known to check an ETag and a version id together: give one of them")
    if not lane.marks:
        return _refuse("the bucket keeps no versions, so that no id tells one object from the next")
    if not erases:
        return _refuse("no store checks a version id when it hides; give the ETag, or erase the version")
    if condition.version_id == _NO_VERSION:
        return _refuse("what is written without a version id takes the place of this one: it says nothing")
    if not lane.has_versions:
        return _refuse("nobody knows whether the bucket keeps versions")
    return Delete(key, version_id=condition.version_id)


def _refuse(why: str) -> Fate:
    return Fate(OutcomeWord.REFUSED, "ConditionNotChecked", why)


def names_of(items: Iterable[Item]) -> tuple[list[str], dict[str, str]]:
    """Return the keys of items, and by key the version that an item names."""
    named = {item.key: item.version_id for item in items if isinstance(item, Delete) and item.version_id}
    return [key_of(item) for item in items], named


def result_of(execution: Execution, request_ids: Sequence[str]) -> Result:
    """Return what became of an execution that has come to rest; `request_ids` are the task's, by number."""
    result = Result(request_ids=[name for n in execution.requests if (name := request_ids[n])])
    if isinstance(execution.action, events.DeletePrefix):
        return _of_prefix(execution, result)
    if execution.held is not None:
        # Phases that were queued before the bucket was closed are gone.
        gone = execution.sent_before or bool(execution.phases)
        result.held, result.unknown = execution.held, gone or execution.held.unknown
        return result
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
    return result


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
    action = execution.action
    assert isinstance(action, events.DeleteObjects)
    if execution.blocked is None:
        return
    dead = execution.blocked.word is OutcomeWord.DEAD_LETTERED
    word = OutcomeWord.DEAD_LETTERED if dead else OutcomeWord.REFUSED
    why = Fate(word, EARLIER_PHASE, f"a key of an earlier phase is not gone: {execution.blocked.detail}")
    for phase in action.phases[len(execution.phases) :]:
        for key in phase:
            _name(result, key, why)


def _of_prefix(execution: Execution, result: Result) -> Result:
    step = execution.step
    if execution.last_word is not None:
        return _last_word(execution, execution.last_word, result)
    if step is None:
        assert execution.held is not None
        result.held, result.unknown = execution.held, execution.sent_before
        return result
    _add_prefix_effects(execution, step, result)
    result.request_ids = list(step.request_ids)
    for key, state in step.failed:
        locked = state.retain_until is not None or state.legal_hold or state.kind.value == "refused"
        word = OutcomeWord.REFUSED if locked else OutcomeWord.DEAD_LETTERED
        _name(result, key, Fate(word, state.code, str(state)))
    unnamed = step.failed_count - len(step.failed)
    if unnamed:
        most = result.counts.most_common(1)[0][0] if result.counts else OutcomeWord.DEAD_LETTERED
        result.counts[most] += unnamed
    result.counts[OutcomeWord.DELETED] += step.progress.gone
    if step.fault is not None:
        result.held = Fate(None, step.fault.code, str(step.fault), unknown=step.progress.gone > 0)
    return result


def _add_prefix_effects(execution: Execution, step: PrefixStep, result: Result) -> None:
    """Count what went in all slices, not only in the last one: in one mode all objects go the same way."""
    lane, action = execution.lane, execution.action
    assert lane is not None
    assert isinstance(action, events.DeletePrefix)
    kind = max(step.effects, key=lambda name: step.effects[name], default="")
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
