"""Taking in what the store answered: every key of a reply gets its next step, and the lane its pace.

Everything here changes one lane and sends nothing. What is wrong with everything is returned, as text.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sexton.schemas.events import OutcomeWord
from sexton.storage import BatchResult, Delete, KeyState
from sexton.streaming_jobs.reaper.fates import (
    MOST_TRIES,
    Earlier,
    Fate,
    Step,
    after_look,
    is_throttled,
    step_of,
)
from sexton.streaming_jobs.reaper.items import EraseAll, Item, key_of
from sexton.streaming_jobs.reaper.lanes import Batch, Lane, apart
from sexton.streaming_jobs.reaper.looking import Look

__all__ = ["Limits", "Replies"]

UNTRIED = ("FoldedKey", "ConditionNotChecked")
"""Codes of what is refused until a probe has shown that the store does it right."""

_EARLY_DENIED = 1000  # so many keys denied and none done: the bucket's policy, seen before all are tried
_LONGEST_BACKOFF_S = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How far one task goes.

    `in_flight` requests of all buckets at a time; a bucket that does nothing but fail for `patience_s`
    seconds is closed, and so is a throttled one after `slice_s` seconds where other buckets' receipts wait.
    `prefix_objects` is how many objects of a `delete_prefix` one task deletes.
    """

    in_flight: int = 8
    patience_s: float = 10.0
    slice_s: float = 60.0
    prefix_objects: int = 10_000
    allow_bypass: bool = False


@dataclass(frozen=True, slots=True)
class Replies:
    """The rules of one task, with its clocks and its source of jitter (0 to 1).

    `clock` counts seconds, `wall_clock` those since 1970.
    """

    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random
    wall_clock: Callable[[], float] = time.time

    def batch(self, lane: Lane, batch: Batch, result: BatchResult) -> str | None:
        """Take in the answer to a request."""
        done = result.count - len(result.states)
        lane.done += done
        if done and lane.fates:
            _now_gone(lane, batch, result)
        if not result.states:
            lane.pace.good(self.limits.in_flight)
            return None
        fault = self._states(lane, batch, result)
        if not lane.done and len(lane.denied) >= _EARLY_DENIED:
            self.close(lane, next(iter(lane.denied.values())))
        lane.sweep()
        return fault

    def _states(self, lane: Lane, batch: Batch, result: BatchResult) -> str | None:
        again: list[str | Delete] = []
        steps: set[Step] = set()
        fault: str | None = None
        worst = Fate(None)
        for index, state in sorted(result.states.items()):
            item = batch.items[index]
            step, fate = _decided(lane, item, state)
            steps.add(step)
            if step is Step.ENVIRONMENT:
                fault = fault or fate.detail
            elif state.code in UNTRIED and not batch.probed:
                lane.untried[item] = fate  # until the store was seen to do it
                lane.fates[item] = Fate(None, fate.reason, fate.detail)
                continue
            elif step in (Step.AGAIN, Step.BUCKET):
                again.append(item)
            if step is Step.BUCKET or Step.BUCKET not in steps:
                worst = fate
            _note(lane, item, step, fate)
        if again:
            lane.again.append(Batch(again, due=self.clock() + self._backoff(lane, again), again=True))
        if lane.probed and lane.untried:
            self.probed(lane)  # it was tried while this request was under way
        if Step.BUCKET in steps:
            self.close(lane, worst)
        elif result.count == len(result.states) and all(map(is_throttled, result.states.values())):
            # Looks at what such a reply may have done do not make the store less busy.
            self.slow_down(lane, worst, result.retry_after_s)
        elif result.count > len(result.states) or steps & {Step.DONE, Step.DENIED, Step.LOOK}:
            lane.pace.good(self.limits.in_flight)
        elif fault is None:
            self.slow_down(lane, worst, result.retry_after_s)
        return fault

    def slow_down(self, lane: Lane, why: Fate, retry_after_s: float | None = None) -> None:
        """Slow a lane down that did nothing but fail; close it once patience is at its end."""
        now = self.clock()
        lane.pace.bad(now, retry_after_s, self.jitter())
        since = now if lane.pace.bad_since is None else lane.pace.bad_since
        if now - since > self.limits.patience_s or (retry_after_s or 0.0) > self.limits.patience_s:
            self.close(lane, why)

    @staticmethod
    def close(lane: Lane, why: Fate) -> None:
        """Close a lane: what is unsent is held, and waits for the bucket; nothing has happened to it."""
        lane.close(Fate(None, why.reason, why.detail))

    def looked(self, lane: Lane, asked: Mapping[str | Delete, Fate], found: Mapping[str, Look]) -> None:
        """Take in what a look at some keys has shown."""
        again: list[str | Delete] = []
        now = self.wall_clock()
        for item, fate in asked.items():
            shown, earlier = found[key_of(item)], lane.sent_before.get(item)
            since = earlier.since if earlier else None
            stood = shown.age_s is not None and since is not None and shown.age_s >= now - since
            step, decided = after_look(fate, shown.seen, earlier, stood=stood)
            lane.done += decided.word is OutcomeWord.ABSENT
            lane.fates[item] = decided
            if step is Step.AGAIN and lane.tries.get(item, 0) < MOST_TRIES:
                again.append(item)
        if again:
            lane.again.append(Batch(again, due=self.clock(), again=True))
        lane.sweep()

    def probed(self, lane: Lane) -> None:
        """Take in that the store was tried: what waited for that is sent, or refused for good."""
        if lane.probed and lane.untried:
            # Gathered from many requests: more than one holds, and a key with several conditions.
            lane.again += [Batch(items, due=self.clock(), again=True) for items in apart(lane.untried)]
            lane.untried = {}

    def erased(self, lane: Lane, item: EraseAll, step: Step, fate: Fate) -> str | None:
        """Take in what became of the versions of one key."""
        tries = lane.tries[item] = lane.tries.get(item, 0) + 1
        lane.fates[item] = fate
        lane.done += fate.word in (OutcomeWord.DELETED, OutcomeWord.ABSENT)
        if step is Step.AGAIN and tries < MOST_TRIES:
            lane.erasing.append(item)
        elif step is Step.BUCKET:
            self.close(lane, fate)
        lane.sweep()
        return fate.detail if step is Step.ENVIRONMENT else None

    def denied(self, lane: Lane) -> bool:
        """Decide what the denied keys of an idle lane are; tell whether something has to be asked first.

        Where every key was denied it is the bucket's policy, else each key's own end. About a single one
        the bucket is asked whether it lets us delete at all.
        """
        if not lane.denied:
            return False
        if lane.closed is None and not lane.done and len(lane.denied) == 1 and lane.denies_all is None:
            lane.asking = True
            return True
        denied, lane.denied = lane.denied, {}
        if not lane.done and (len(denied) > 1 or lane.denies_all or lane.closed is not None):
            why = lane.closed or Fate(None, "AccessDenied", "the store denied every key of the bucket")
            lane.fates.update(dict.fromkeys(denied, why))
            self.close(lane, why)
            return False
        lane.fates.update(denied.items())
        lane.to_look.update((item, fate) for item, fate in denied.items() if item in lane.sent_before)
        lane.sweep()  # a closed lane is not looked at any more
        return bool(lane.to_look)

    def _backoff(self, lane: Lane, items: Sequence[Item]) -> float:
        tries = max(lane.tries.get(item, 0) for item in items)
        return min(0.05 * 2.0**tries, _LONGEST_BACKOFF_S) * (0.5 + self.jitter() / 2)


def _decided(lane: Lane, item: str | Delete, state: KeyState) -> tuple[Step, Fate]:
    busy = is_throttled(state)  # patience ends that, not a number of tries
    tries = lane.tries[item] = lane.tries.get(item, 0) + (not busy)
    decided = step_of(
        state,
        may_be_gone=item in lane.sent_before or (isinstance(item, Delete) and item.version_id is not None),
        repeat_marks=lane.may_mark(item),
        tries=0 if busy else tries,
    )
    if state.effect_unknown:
        lane.sent_before.setdefault(item, Earlier(lane.started))
    return decided


def _note(lane: Lane, item: str | Delete, step: Step, fate: Fate) -> None:
    if step is Step.DENIED:
        lane.denied[item] = fate
        return
    if step is Step.LOOK:
        lane.to_look[item] = fate
    lane.done += fate.word is OutcomeWord.ABSENT
    lane.fates[item] = (
        fate if step is Step.DONE else Fate(None, fate.reason, fate.detail, unknown=fate.unknown)
    )


def _now_gone(lane: Lane, batch: Batch, result: BatchResult) -> None:
    """Give those that met trouble before, and are gone now, their word."""
    for index, item in enumerate(batch.items):
        if index not in result.states and item in lane.fates:
            lane.fates[item] = Fate(
                OutcomeWord.DELETED, effect=lane.effect(item), request_id=result.request_id
            )
