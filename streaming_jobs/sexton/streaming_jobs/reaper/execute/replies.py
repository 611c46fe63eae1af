"""Taking in what the store answered: every key of a reply gets its next step, and the bucket its pace.

Everything here changes one bucket and sends nothing. What is wrong with everything is returned, as text.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sexton.schemas.events import OutcomeKind
from sexton.storage import BatchResult, Delete, KeyState
from sexton.streaming_jobs.reaper.execute.bucket import Batch, Bucket, apart
from sexton.streaming_jobs.reaper.execute.items import EraseAll, Item, key_of
from sexton.streaming_jobs.reaper.execute.outcomes import (
    MOST_TRIES,
    ItemOutcome,
    Step,
    after_verification,
    is_throttled,
    step_of,
)
from sexton.streaming_jobs.reaper.execute.verification import Verification
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt

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
    failure_threshold_s: float = 10.0
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

    def batch(self, bucket: Bucket, batch: Batch, result: BatchResult) -> str | None:
        """Take in the answer to a request."""
        done = result.count - len(result.states)
        bucket.done += done
        if done and bucket.outcomes:
            _now_gone(bucket, batch, result)
        if not result.states:
            bucket.works(self.limits.in_flight)
            return None
        fault = self._states(bucket, batch, result)
        if not bucket.done and len(bucket.denied) >= _EARLY_DENIED:
            self.open_circuit(bucket, next(iter(bucket.denied.values())))
        bucket.sweep()
        return fault

    def _states(self, bucket: Bucket, batch: Batch, result: BatchResult) -> str | None:
        again: list[str | Delete] = []
        steps: set[Step] = set()
        fault: str | None = None
        worst = ItemOutcome(None)
        for index, state in sorted(result.states.items()):
            item = batch.items[index]
            step, outcome = _decided(bucket, item, state)
            steps.add(step)
            if step is Step.ENVIRONMENT:
                fault = fault or outcome.detail
            elif state.code in UNTRIED and not batch.probed:
                bucket.untried[item] = outcome  # until the store was seen to do it
                bucket.outcomes[item] = ItemOutcome(None, outcome.reason, outcome.detail)
                continue
            elif step in (Step.RETRY, Step.BUCKET):
                again.append(item)
            if step is Step.BUCKET or Step.BUCKET not in steps:
                worst = outcome
            _note(bucket, item, step, outcome)
        if again:
            bucket.again.append(Batch(again, due=self.clock() + self._backoff(bucket, again), again=True))
        if bucket.probed and bucket.untried:
            self.probed(bucket)  # it was tried while this request was under way
        if Step.BUCKET in steps:
            self.open_circuit(bucket, worst)
        elif result.count == len(result.states) and all(map(is_throttled, result.states.values())):
            # Looks at what such a reply may have done do not make the store less busy.
            self.slow_down(bucket, worst, result.retry_after_s)
        elif result.count > len(result.states) or steps & {Step.DONE, Step.DENIED, Step.VERIFY}:
            bucket.works(self.limits.in_flight)
        elif fault is None:
            self.slow_down(bucket, worst, result.retry_after_s)
        return fault

    def slow_down(self, bucket: Bucket, why: ItemOutcome, retry_after_s: float | None = None) -> None:
        """Slow a bucket down that did nothing but fail; close it once its failure threshold is reached."""
        now = self.clock()
        bucket.pace.bad(now, retry_after_s, self.jitter())
        if bucket.breaker.fails(now, self.limits.failure_threshold_s, retry_after_s):
            self.open_circuit(bucket, why)

    @staticmethod
    def open_circuit(bucket: Bucket, why: ItemOutcome) -> None:
        """Open a bucket's circuit: what is unsent is held, and waits for it; nothing has happened to it."""
        bucket.hold(ItemOutcome(None, why.reason, why.detail))

    def verified(
        self, bucket: Bucket, asked: Mapping[str | Delete, ItemOutcome], found: Mapping[str, Verification]
    ) -> None:
        """Take in what a look at some keys has shown."""
        again: list[str | Delete] = []
        now = self.wall_clock()
        for item, outcome in asked.items():
            shown, earlier = found[key_of(item)], bucket.sent_before.get(item)
            since = earlier.since if earlier else None
            stood = shown.age_s is not None and since is not None and shown.age_s >= now - since
            step, decided = after_verification(outcome, shown.presence, earlier, stood=stood)
            bucket.done += decided.kind is OutcomeKind.ABSENT
            bucket.outcomes[item] = decided
            if step is Step.RETRY and bucket.tries.get(item, 0) < MOST_TRIES:
                again.append(item)
        if again:
            bucket.again.append(Batch(again, due=self.clock(), again=True))
        bucket.sweep()

    def probed(self, bucket: Bucket) -> None:
        """Take in that the store was tried: what waited for that is sent, or refused for good."""
        if bucket.probed and bucket.untried:
            # Gathered from many requests: more than one holds, and a key with several conditions.
            bucket.again += [Batch(items, due=self.clock(), again=True) for items in apart(bucket.untried)]
            bucket.untried = {}

    def erased(self, bucket: Bucket, item: EraseAll, step: Step, outcome: ItemOutcome) -> str | None:
        """Take in what became of the versions of one key."""
        tries = bucket.tries[item] = bucket.tries.get(item, 0) + 1
        bucket.outcomes[item] = outcome
        bucket.done += outcome.kind in (OutcomeKind.DELETED, OutcomeKind.ABSENT)
        if step is Step.RETRY and tries < MOST_TRIES:
            bucket.erasing.append(item)
        elif step is Step.BUCKET:
            self.open_circuit(bucket, outcome)
        bucket.sweep()
        return outcome.detail if step is Step.ENVIRONMENT else None

    def denied(self, bucket: Bucket) -> bool:
        """Decide what the denied keys of an idle bucket are; say whether something has to be asked first.

        Where every key was denied it is the bucket's policy, else each key's own end. About a single one
        the bucket is asked whether it lets us delete at all.
        """
        if not bucket.denied:
            return False
        is_single = not bucket.done and len(bucket.denied) == 1
        if bucket.breaker.opened is None and is_single and bucket.denies_all is None:
            bucket.asking = True
            return True
        denied, bucket.denied = bucket.denied, {}
        if not bucket.done and (len(denied) > 1 or bucket.denies_all or bucket.breaker.opened is not None):
            why = bucket.breaker.opened or ItemOutcome(
                None, "AccessDenied", "the store denied every key of the bucket"
            )
            bucket.outcomes.update(dict.fromkeys(denied, why))
            self.open_circuit(bucket, why)
            return False
        bucket.outcomes.update(denied.items())
        bucket.to_verify.update({item: denied[item] for item in denied if item in bucket.sent_before})
        bucket.sweep()  # a closed bucket is not verified any more
        return bool(bucket.to_verify)

    def _backoff(self, bucket: Bucket, items: Sequence[Item]) -> float:
        tries = max(bucket.tries.get(item, 0) for item in items)
        return min(0.05 * 2.0**tries, _LONGEST_BACKOFF_S) * (0.5 + self.jitter() / 2)


def _decided(bucket: Bucket, item: str | Delete, state: KeyState) -> tuple[Step, ItemOutcome]:
    busy = is_throttled(state)  # the failure threshold ends that, not a number of tries
    tries = bucket.tries[item] = bucket.tries.get(item, 0) + (not busy)
    decided = step_of(
        state,
        may_be_gone=item in bucket.sent_before or (isinstance(item, Delete) and item.version_id is not None),
        repeat_creates_marker=bucket.may_create_marker(item),
        tries=0 if busy else tries,
    )
    if state.effect_unknown:
        bucket.sent_before.setdefault(item, Attempt(bucket.started))
    return decided


def _note(bucket: Bucket, item: str | Delete, step: Step, outcome: ItemOutcome) -> None:
    if step is Step.DENIED:
        bucket.denied[item] = outcome
        return
    if step is Step.VERIFY:
        bucket.to_verify[item] = outcome
    bucket.done += outcome.kind is OutcomeKind.ABSENT
    bucket.outcomes[item] = (
        outcome
        if step is Step.DONE
        else ItemOutcome(None, outcome.reason, outcome.detail, unknown=outcome.unknown)
    )


def _now_gone(bucket: Bucket, batch: Batch, result: BatchResult) -> None:
    """Give those that met trouble before, and are gone now, their outcome."""
    for index, item in enumerate(batch.items):
        if index not in result.states and item in bucket.outcomes:
            bucket.outcomes[item] = ItemOutcome(
                OutcomeKind.DELETED, effect=bucket.effect(item), request_id=result.request_id
            )
