"""One intent's way through the execute stage: which items it asks for, and what stands in their way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from sexton.schemas import events
from sexton.schemas.events import DeleteMode, OutcomeKind
from sexton.storage import Delete
from sexton.streaming_jobs.reaper.actions.delete_prefix.progress import PrefixProgress, PrefixStep
from sexton.streaming_jobs.reaper.execute.bucket import Bucket
from sexton.streaming_jobs.reaper.execute.items import EraseAll, Item, key_of
from sexton.streaming_jobs.reaper.execute.outcomes import Earlier, ItemOutcome
from sexton.streaming_jobs.reaper.recovery.key_progress import GONE, Before

__all__ = ["Execution", "Refusal", "items_of", "names_of"]

_NO_VERSION = "null"  # of every object that was written while versioning was off or suspended


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a key may not be sent as it stands: nothing would check its condition."""

    key: str
    outcome: ItemOutcome


@dataclass(slots=True)
class Execution:
    """An intent that passed; `phases` are the items queued so far, `requests` the numbers that carried them.

    `clear` counts the phases that were seen to be gone.

    `before` is what earlier attempts are known to have settled, key by key; `earlier` one that may have sent
    any of its keys. `overdue`: past the age limit, so that what its bucket holds is decided now. `held` is
    set when its bucket was closed before anything was queued, `last_word` of a prefix whose age limit has
    passed, and `last_words` of its items: the bucket's outcomes are those of all intents that name them.
    """

    action: events.DeleteObjects | events.DeletePrefix
    conditions: Mapping[str, events.KeyCondition] = field(default_factory=dict)
    before: Before | None = None
    earlier: Earlier | None = None
    overdue: bool = False
    progress: PrefixProgress = field(default_factory=PrefixProgress)
    phases: list[Sequence[Item]] = field(default_factory=list)
    clear: int = 0
    requests: list[int] = field(default_factory=list)
    bucket: Bucket | None = None
    held: ItemOutcome | None = None
    refused: list[Refusal] = field(default_factory=list)
    blocked: ItemOutcome | None = None
    step: PrefixStep | None = None
    final_outcome: ItemOutcome | None = None
    final_outcomes: dict[Item, ItemOutcome] = field(default_factory=dict)

    @property
    def left(self) -> Sequence[Sequence[str]]:
        """The keys of each phase that have no final outcome from an earlier attempt."""
        assert isinstance(self.action, events.DeleteObjects)
        return self.before.left if self.before else self.action.phases

    def touched(self, items: Iterable[Item]) -> dict[Item, Earlier]:
        """Return those items that an earlier attempt may have deleted."""
        if self.earlier is not None:
            return dict.fromkeys(items, self.earlier)
        if self.before is None or not self.before.unknown:
            return {}
        earlier = Earlier(self.before.sent_since)
        return {item: earlier for item in items if key_of(item) in self.before.unknown}

    def attempt_at(self, item: Item) -> Earlier | None:
        """Return the attempt, of this task or an earlier one, that may have deleted an item."""
        assert self.bucket is not None
        earlier = self.bucket.sent_before.get(item) or self.touched([item]).get(item)
        outcome = self.outcome(item)
        return earlier or (Earlier(self.bucket.started) if outcome is not None and outcome.unknown else None)

    def outcome(self, item: Item) -> ItemOutcome | None:
        """Return a queued item's outcome, None for plainly gone."""
        assert self.bucket is not None
        return self.final_outcomes.get(item) or self.bucket.outcomes.get(item)

    def outcomes(self) -> Iterator[tuple[Item, ItemOutcome | None]]:
        """Yield each item that was queued with its outcome, None for plainly gone."""
        for phase in self.phases:
            for item in phase:
                yield item, self.outcome(item)

    def blocking(self) -> ItemOutcome | None:
        """Return the outcome of a queued key that is not gone, so that no later phase may start.

        One that waits comes first, as the intent does; a dead letter last: it is replayed, and what stays
        for another reason would not be among its keys.
        """
        if self.held is not None:
            return self.held
        assert self.bucket is not None
        bad = [refusal.outcome for refusal in self.refused]
        if self.bucket.outcomes or self.final_outcomes:
            met = map(self.outcome, chain.from_iterable(self.phases[self.clear :]))
            # What stands under a key of this phase may need what a later phase would delete.
            bad += [f for f in met if f is not None and (f.kind not in GONE or f.stands)]
        if not bad:
            self.clear = len(self.phases)
        return min(bad, key=_hold, default=None)


def _hold(outcome: ItemOutcome) -> int:
    """Return how an outcome stands before others that hold up a phase, the least first."""
    return 0 if outcome.kind is None else 2 if outcome.kind is OutcomeKind.DEAD_LETTERED else 1


def items_of(execution: Execution, keys: Sequence[str], bucket: Bucket) -> Sequence[Item]:
    """Return what is sent for these keys; those that may not be sent are noted as refused.

    A guard that the store cannot check in the delete itself has not passed.
    """
    action, conditions = execution.action, execution.conditions
    assert isinstance(action, events.DeleteObjects)
    if not conditions and (action.mode is DeleteMode.HIDE or not bucket.creates_markers):
        return keys
    items: list[Item] = []
    for key in keys:
        item = _item(key, conditions.get(key), action.mode, bucket)
        if isinstance(item, ItemOutcome):
            execution.refused.append(Refusal(key, item))
        else:
            items.append(item)
    return items


def _item(
    key: str, condition: events.KeyCondition | None, mode: DeleteMode, bucket: Bucket
) -> Item | ItemOutcome:
    """Return what is sent for a key, or why nothing is: each condition needs a store that checks it."""
    if bucket.creates_markers and mode is DeleteMode.ERASE_ALL_VERSIONS:
        if condition is not None:
            return _refuse("no store checks a condition while all versions are erased")
        return EraseAll(key)
    is_permanent = bucket.creates_markers and mode is DeleteMode.ERASE_VERSION
    if condition is None or (is_permanent and condition.version_id is None):
        return _refuse("a version id is needed to erase one") if is_permanent else key
    if condition.version_id is None:
        return Delete(key, condition.etag)
    if condition.etag is not None:
        return _refuse("no store is known to check an ETag and a version id together: give one of them")
    if not bucket.creates_markers:
        return _refuse("the bucket keeps no versions, so that no id tells one object from the next")
    if not is_permanent:
        return _refuse("no store checks a version id when it hides; give the ETag, or erase the version")
    if condition.version_id == _NO_VERSION:
        return _refuse("what is written without a version id takes the place of this one: it says nothing")
    if not bucket.has_versions:
        return _refuse("nobody knows whether the bucket keeps versions")
    return Delete(key, version_id=condition.version_id)


def _refuse(why: str) -> ItemOutcome:
    return ItemOutcome(OutcomeKind.REFUSED, "ConditionNotChecked", why)


def names_of(items: Iterable[Item]) -> tuple[list[str], dict[str, str]]:
    """Return the keys of items, and by key the version that an item names."""
    named = {item.key: item.version_id for item in items if isinstance(item, Delete) and item.version_id}
    return [key_of(item) for item in items], named
