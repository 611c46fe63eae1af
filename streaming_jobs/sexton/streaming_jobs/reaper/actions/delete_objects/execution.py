"""One intent of named keys on its way: phase by phase, each started when all before it is gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING

from sexton.schemas.actions import DeleteMode, DeleteObjects
from sexton.schemas.events import OutcomeKind
from sexton.schemas.guards import KeyCondition
from sexton.storage import Deleter
from sexton.streaming_jobs.reaper.actions.delete_objects.expiry import expire, give_up, seen
from sexton.streaming_jobs.reaper.actions.delete_objects.items import item_of
from sexton.streaming_jobs.reaper.actions.delete_objects.results import result_of
from sexton.streaming_jobs.reaper.execute.execution import Execution
from sexton.streaming_jobs.reaper.execute.items import Item, key_of
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome, Presence
from sexton.streaming_jobs.reaper.execute.result import Result
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt
from sexton.streaming_jobs.reaper.recovery.key_progress import GONE, Before
from sexton.streaming_jobs.reaper.vetoes import Stop, Wait

if TYPE_CHECKING:
    from sexton.streaming_jobs.reaper.execute.sender import Sender

__all__ = ["ObjectsExecution", "Refused"]


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a key may not be sent as it stands: nothing would check its condition."""

    key: str
    outcome: ItemOutcome


@dataclass(slots=True)
class ObjectsExecution(Execution):
    """`left` are the keys of each phase that have no final outcome from an earlier attempt, `phases` the
    items queued so far; `clear` counts the phases that were seen to be gone.

    `before` is what earlier attempts are known to have settled, key by key; `earlier` one that may have sent
    any of its keys. `resumes_at` is when the pause ends before phase `paused`. `blocked` is the outcome that
    keeps later phases from being sent. `shown` is what stands under keys that may have gone before it was
    cancelled. `final_outcomes` are those of its items past the age limit: the bucket's are those of all
    intents that name them.
    """

    action: DeleteObjects
    conditions: Mapping[str, KeyCondition] = field(default_factory=dict)
    before: Before | None = None
    resumes_at: datetime | None = None
    paused: int = field(init=False)
    left: list[Sequence[str]] = field(init=False)
    phases: list[Sequence[Item]] = field(default_factory=list)
    clear: int = 0
    refused: list[Refused] = field(default_factory=list)
    blocked: ItemOutcome | None = None
    shown: Mapping[str, Presence] = field(default_factory=dict)
    final_outcomes: dict[Item, ItemOutcome] = field(default_factory=dict)
    _numbers: list[int] = field(init=False)  # of the phases of `left`

    def __post_init__(self) -> None:
        self.left = list(self.before.left if self.before else self.action.phases)
        self._numbers = list(range(len(self.left)))
        # A copy tells the instant of the first phase of which something is left: what went before is gone.
        self.paused = next((number for number, keys in enumerate(self.left) if keys), 0)

    # -- the stage's calls

    def start(self, sender: Sender) -> None:
        """Queue the first phase; later ones wait for all that can go before, and for what they hang on."""
        if self.gate is not None:
            sender.later.append(self)
            return
        self._queue(sender, self.left[0])
        if len(self.left) > 1:
            sender.later.append(self)

    def proceed(self, sender: Sender) -> bool:
        """Queue the next phase if everything before it is gone; return whether more are to come."""
        # Here data dies whose commit object must be gone: one key that is not, or may not be, stops the rest.
        # What stays is named in the dead letter, and its replay begins with the same phase.
        self.blocked = self.blocking()
        if self.blocked is not None:
            return False
        self._pause(sender)
        if self.bucket.breaker.opened is not None:
            self.held = self.bucket.breaker.opened
            return False
        if not self.may_begin(sender, self.resumes_at):
            if isinstance(self.gated, Stop):
                self.shown = self._shown(sender.deleter)
            return False
        number = len(self.phases)
        self._queue(sender, self.left[number])
        return len(self.left) > number + 1

    @property
    def next_phase(self) -> int | None:
        """The number of the phase that comes next, None where nothing of it would be sent."""
        at = len(self.phases)
        return self._numbers[at] if at < len(self.left) and self.left[at] else None

    def delete_first(self, key: str) -> Wait | None:
        """Have a key that has come back deleted before the phase that comes next, as a step of its own.

        Only one that this intent names: of no other its guards say anything.
        """
        at, named = len(self.phases), self.action.keys
        # In whatever form: one that stands above an erased version would be queued over and over.
        if key not in named or self.bucket.queued(key):
            return Execution.delete_first(self, key)
        left = self.left[at:]
        rest = [[each for each in phase if each != key] for phase in left]
        if not rest[0]:
            return None
        own = [key for phase in left for each in phase if each == key]
        if not own and self.before is not None:
            self.before = self.before.again(named.index(key))
        self.left[at:] = [own or [key], *rest]
        self._numbers.insert(at, self._numbers[at])
        return None

    def expire(self, deleter: Deleter) -> None:
        """Decide what is still held; raises EnvironmentFault."""
        expire(self, deleter)

    def result(self, request_ids: Sequence[str]) -> Result:
        """Return its keys by outcome, or what is known of each while it waits."""
        if self.held is not None and self.held.kind is not None:
            give_up(self)
        return result_of(self, request_ids)

    # -- what is sent

    def items(self, keys: Sequence[str]) -> Sequence[Item]:
        """Return what is sent for these keys; those that may not be sent are noted as refused."""
        plain = self.action.mode is DeleteMode.HIDE or not self.bucket.creates_markers
        if not self.conditions and plain:
            return keys
        items: list[Item] = []
        for key in keys:
            item = item_of(key, self.conditions.get(key), self.action.mode, self.bucket)
            if isinstance(item, ItemOutcome):
                self.refused.append(Refused(key, item))
            else:
                items.append(item)
        return items

    def _shown(self, deleter: Deleter) -> Mapping[str, Presence]:
        """Return what is there of the keys that were not queued and may have gone.

        An outcome of no effect is written about such a key only once it was seen.
        """
        left = chain.from_iterable(self.left[len(self.phases) :])
        items = ((key, self._item(key)) for key in left)
        touched = {
            item: key
            for key, item in items
            if self.attempt_at(key) is not None or self.attempt_at(item) is not None
        }
        return {touched[item]: found for item, found in seen(list(touched), self.bucket, deleter).items()}

    def _item(self, key: str) -> Item:
        """Return what would be sent for a key; the key itself where that may not be sent."""
        item = item_of(key, self.conditions.get(key), self.action.mode, self.bucket)
        return key if isinstance(item, ItemOutcome) else item

    def _pause(self, sender: Sender) -> None:
        """Fix when the next phase may begin, once all before it is gone.

        Once only: counted anew at each attempt it would never come, and from before the acknowledgement it
        would come too early. It waits in the copy, and a replay that knows no copy lengthens it.
        """
        number = self.next_phase
        if self.gate is None or not self.gate.pause_s or not number:
            return
        if self.resumes_at is None or self.paused != number:
            self.resumes_at = self.gate.resumes_at(sender.now(self.bucket.name))
            self.paused = number

    def _queue(self, sender: Sender, keys: Sequence[str]) -> None:
        """Queue keys, those that nobody has queued before."""
        bucket = self.bucket
        # A dry run does not know what the store can check.
        items = keys if sender.dry else self.items(keys)
        self.phases.append(items)
        touched = self.touched(items)
        if touched:
            known = bucket.sent_before
            known.update((item, attempt.beside(known.get(item))) for item, attempt in touched.items())
        verify = bool(touched) and bucket.creates_markers
        if items is keys:
            new = bucket.unseen(keys)
            bucket.due.queue_plain(self, bucket.verify_first(new) if verify else new)
        else:
            others = bucket.unseen_items(items)
            bucket.due.queue(self, bucket.verify_first(others) if verify else others)

    # -- what became of it

    def touched(self, items: Iterable[Item]) -> dict[Item, Attempt]:
        """Return those items that an earlier attempt may have deleted."""
        if self.earlier is not None:
            return dict.fromkeys(items, self.earlier)
        if self.before is None or not self.before.unknown:
            return {}
        earlier = Attempt(self.before.sent_since)
        return {item: earlier for item in items if key_of(item) in self.before.unknown}

    def attempt_at(self, item: Item) -> Attempt | None:
        """Return the attempt, of this task or an earlier one, that may have deleted an item."""
        earlier = self.bucket.sent_before.get(item) or self.touched([item]).get(item)
        outcome = self.outcome(item)
        unknown = outcome is not None and outcome.unknown
        return earlier or (Attempt(self.bucket.started) if unknown else None)

    def outcome(self, item: Item) -> ItemOutcome | None:
        """Return a queued item's outcome, None for plainly gone."""
        return self.final_outcomes.get(item) or self.bucket.keys.outcome(item)

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
        bad = [refused.outcome for refused in self.refused]
        if self.bucket.keys or self.final_outcomes:
            met = map(self.outcome, chain.from_iterable(self.phases[self.clear :]))
            # What stands under a key of this phase may need what a later phase would delete.
            bad += [f for f in met if f is not None and (f.kind not in GONE or f.stands)]
        if not bad:
            self.clear = len(self.phases)
        return min(bad, key=_hold, default=None)


def _hold(outcome: ItemOutcome) -> int:
    """Return how an outcome stands before others that hold up a phase, the least first."""
    return 0 if outcome.kind is None else 2 if outcome.kind is OutcomeKind.DEAD_LETTERED else 1
