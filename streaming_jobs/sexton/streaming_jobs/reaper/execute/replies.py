"""Interpreting what the store answered: every key of a reply gets its next state, and the bucket its pace.

Everything here changes one bucket and sends nothing. What is wrong with everything is returned, as text.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sexton.schemas.events import OutcomeKind
from sexton.storage import BatchResult, Delete, KeyState, Kind
from sexton.streaming_jobs.reaper.execute.bucket import Bucket, Denial, Probe
from sexton.streaming_jobs.reaper.execute.due import Batch, apart
from sexton.streaming_jobs.reaper.execute.items import EraseAll, Item, key_of
from sexton.streaming_jobs.reaper.execute.key_states import State
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
        if done and bucket.keys:
            _now_gone(bucket, batch, result)
        if not result.states:
            bucket.works(self.limits.in_flight)
            return None
        fault = self._states(bucket, batch, result)
        denied = bucket.keys.all_in(State.DENIED)
        if not bucket.done and len(denied) >= _EARLY_DENIED:
            bucket.open_circuit(next(iter(denied.values())).outcome)
        bucket.sweep()
        return fault

    def _states(self, bucket: Bucket, batch: Batch, result: BatchResult) -> str | None:
        again: list[str | Delete] = []
        steps: set[Step] = set()
        fault: str | None = None
        worst = ItemOutcome(None)
        for index, state in sorted(result.states.items()):
            item = batch.items[index]
            step, outcome, tries = _decided(bucket, item, state)
            steps.add(step)
            if step is Step.ENVIRONMENT:
                # The task ends unsettled; what went of this request is found gone when it is done again.
                fault = fault or outcome.detail
            elif state.code in UNTRIED and not batch.probed:
                bucket.keys.move(item, State.TO_PROBE, ItemOutcome(None, outcome.reason, outcome.detail))
                continue
            elif step in (Step.RETRY, Step.BUCKET):
                again.append(item)
            if step is Step.BUCKET or Step.BUCKET not in steps:
                worst = outcome
            bucket.keys.move(item, _NEXT[step], outcome, tries=tries)
            bucket.done += outcome.kind is OutcomeKind.ABSENT
        bucket.due.send_again(again, self.clock() + self._backoff(bucket, again))
        if bucket.probe is Probe.PROBED:
            self.probed(bucket)  # it was tried while this request was under way
        if result.fault is not None and result.fault.kind is Kind.UNUSABLE:
            bucket.give_up(worst)
        elif Step.BUCKET in steps:
            bucket.open_circuit(worst)
        elif result.count == len(result.states) and all(map(is_throttled, result.states.values())):
            # Verifying what such a reply may have done does not make the store less busy.
            self.slow_down(bucket, worst, result.retry_after_s)
        elif result.count > len(result.states) or steps & {Step.DONE, Step.DENIED, Step.VERIFY}:
            bucket.works(self.limits.in_flight)
        elif fault is None:
            self.slow_down(bucket, worst, result.retry_after_s)
        return fault

    def slow_down(self, bucket: Bucket, why: ItemOutcome, retry_after_s: float | None = None) -> None:
        """Slow a bucket down that did nothing but fail; open its circuit at the failure threshold."""
        now = self.clock()
        bucket.pace.bad(now, retry_after_s, self.jitter())
        if bucket.breaker.fails(now, self.limits.failure_threshold_s, retry_after_s):
            bucket.open_circuit(why)

    def verified(
        self, bucket: Bucket, asked: Mapping[Item, ItemOutcome], found: Mapping[str, Verification]
    ) -> None:
        """Take in what verifying some keys has shown."""
        again: list[str | Delete] = []
        now = self.wall_clock()
        for item, outcome in asked.items():
            shown, earlier = found[key_of(item)], bucket.sent_before.get(item)
            since = earlier.since if earlier else None
            stood = shown.age_s is not None and since is not None and shown.age_s >= now - since
            step, decided = after_verification(outcome, shown.presence, earlier, stood=stood)
            retry = step is Step.RETRY and bucket.keys.tries(item) < MOST_TRIES
            bucket.done += decided.kind is OutcomeKind.ABSENT
            bucket.keys.move(item, State.DUE if retry else State.SETTLED, decided)
            if retry and not isinstance(item, EraseAll):
                again.append(item)
        bucket.due.send_again(again, self.clock())
        bucket.sweep()

    def probed(self, bucket: Bucket) -> None:
        """Take in that the store was tried: what waited for that is sent, or refused for good."""
        waiting = {item: entry.outcome for item, entry in bucket.keys.all_in(State.TO_PROBE).items()}
        for item, outcome in waiting.items():
            bucket.keys.move(item, State.DUE, outcome)
        # Gathered from many requests: more than one holds, and a key with several conditions.
        for items in apart(item for item in waiting if not isinstance(item, EraseAll)):
            bucket.due.send_again(items, self.clock())

    def erased(self, bucket: Bucket, item: EraseAll, step: Step, outcome: ItemOutcome) -> str | None:
        """Take in what became of the versions of one key."""
        retry = step is Step.RETRY and bucket.keys.tries(item) + 1 < MOST_TRIES
        bucket.keys.move(item, State.DUE if retry else State.SETTLED, outcome, tries=1)
        bucket.done += outcome.kind in (OutcomeKind.DELETED, OutcomeKind.ABSENT)
        if retry:
            bucket.due.alone.append(item)
        elif step is Step.BUCKET:
            bucket.open_circuit(outcome)
        bucket.sweep()
        return outcome.detail if step is Step.ENVIRONMENT else None

    def denied(self, bucket: Bucket) -> bool:
        """Decide what the denied keys of an idle bucket are; say whether something has to be asked first.

        Where every key was denied it is the bucket's policy, else each key's own end. About a single one
        the bucket is asked whether it lets us delete at all.
        """
        denied = {item: entry.outcome for item, entry in bucket.keys.all_in(State.DENIED).items()}
        if not denied:
            return False
        is_single = not bucket.done and len(denied) == 1
        if not bucket.is_open and is_single and bucket.denial is Denial.UNASKED:
            bucket.denial = Denial.ASKING
            return True
        policy = len(denied) > 1 or bucket.denial is Denial.DENIES_ALL or bucket.is_open
        if not bucket.done and policy:
            why = bucket.breaker.opened or ItemOutcome(
                None, "AccessDenied", "the store denied every key of the bucket"
            )
            for item in denied:
                bucket.keys.move(item, State.SETTLED, why)
            bucket.open_circuit(why)
            return False
        for item, outcome in denied.items():
            verify = item in bucket.sent_before
            bucket.keys.move(item, State.TO_VERIFY if verify else State.SETTLED, outcome)
        bucket.sweep()  # where the circuit is open nothing is verified any more
        return bool(bucket.keys.all_in(State.TO_VERIFY))

    def _backoff(self, bucket: Bucket, items: Sequence[Item]) -> float:
        tries = max(map(bucket.keys.tries, items), default=0)
        return min(0.05 * 2.0**tries, _LONGEST_BACKOFF_S) * (0.5 + self.jitter() / 2)


_NEXT: Mapping[Step, State] = {
    Step.DONE: State.SETTLED,
    Step.RETRY: State.DUE,
    Step.VERIFY: State.TO_VERIFY,
    Step.DENIED: State.DENIED,
    # Due until the circuit opens, which holds all that is: some of the request may be about others' keys.
    Step.BUCKET: State.DUE,
    Step.ENVIRONMENT: State.SETTLED,  # nothing of the micro-batch is settled outside
}
"""The state that each step brings a key into."""


def _decided(bucket: Bucket, item: str | Delete, state: KeyState) -> tuple[Step, ItemOutcome, int]:
    """Return a key's next step, its outcome so far, and whether this try counts."""
    busy = is_throttled(state)  # the failure threshold ends that, not a number of tries
    step, outcome = step_of(
        state,
        may_be_gone=item in bucket.sent_before or (isinstance(item, Delete) and item.version_id is not None),
        repeat_creates_marker=bucket.may_create_marker(item),
        tries=0 if busy else bucket.keys.tries(item) + 1,
    )
    # From then on no outcome of no effect without verification: the object may be gone by this request.
    if state.effect_unknown:
        bucket.sent_before.setdefault(item, Attempt(bucket.started))
    return step, outcome, int(not busy)


def _now_gone(bucket: Bucket, batch: Batch, result: BatchResult) -> None:
    """Give those that met trouble before, and are gone now, their outcome."""
    for index, item in enumerate(batch.items):
        if index not in result.states and item in bucket.keys.entries:
            gone = ItemOutcome(OutcomeKind.DELETED, effect=bucket.effect(item), request_id=result.request_id)
            bucket.keys.move(item, State.SETTLED, gone)
