"""One bucket within a task: what is known of it, what is due for it, and in which state its keys are.

Buckets never wait for each other: each has its own lines, pace and circuit breaker. One whose circuit is open
is sent nothing more; its unsent keys are held, and their intents wait for the bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from sexton.schemas.events import OutcomeKind
from sexton.storage import MAX_KEYS, Abilities, Versioning
from sexton.streaming_jobs.reaper.execute.breaker import CircuitBreaker
from sexton.streaming_jobs.reaper.execute.due import Batch, Due
from sexton.streaming_jobs.reaper.execute.items import EraseAll, Item, is_permanent, key_of
from sexton.streaming_jobs.reaper.execute.key_states import KeyStates, State
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome
from sexton.streaming_jobs.reaper.execute.pace import Pace
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt

if TYPE_CHECKING:
    from sexton.streaming_jobs.reaper.execute.execution import Execution

__all__ = ["Bucket", "Denial", "Probe"]

T = TypeVar("T", bound=Item)


class Probe(Enum):
    """How much is known of what the store can do: what the bucket says of itself first, then by trial."""

    UNPROBED = auto()
    PROBING = auto()
    PROBED = auto()


class Denial(Enum):
    """Whether the bucket's policy denies every delete: asked where a single key was denied."""

    UNASKED = auto()
    ASKING = auto()
    DENIES_ALL = auto()
    ALLOWS = auto()


@dataclass(slots=True)
class Bucket:
    """One bucket's work.

    `started` is when its task began, seconds since 1970; `sent_before` are the items of which an attempt is
    known whose effect is not. `abilities` is None until the bucket has answered; `unstarted` are the
    executions that wait for that, and `probe_due` is when it is asked again. `out` requests and `jobs` are
    under way; `done` counts the keys that are gone. `bound` are the keys of `seen` items that are not
    plain.
    """

    name: str
    bypass: bool
    started: float = 0.0
    abilities: Abilities | None = None
    seen: set[Item] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    due: Due = field(default_factory=Due)
    keys: KeyStates = field(default_factory=KeyStates)
    sent_before: dict[Item, Attempt] = field(default_factory=dict)
    unstarted: list[Execution] = field(default_factory=list)
    pace: Pace = field(default_factory=Pace)
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    probe: Probe = Probe.UNPROBED
    probe_due: float | None = None
    denial: Denial = Denial.UNASKED
    out: int = 0
    jobs: int = 0
    done: int = 0

    # -- what is known of it

    @property
    def creates_markers(self) -> bool:
        """Return whether a plain delete leaves a delete marker, or may: then no repeat goes unverified."""
        return self.abilities is None or self.abilities.versioning is not Versioning.OFF

    @property
    def has_versions(self) -> bool:
        """Return whether the bucket is known to keep versions, so that an id names one of them."""
        known = self.abilities.versioning if self.abilities else Versioning.UNKNOWN
        return known in (Versioning.ON, Versioning.SUSPENDED)

    def may_create_marker(self, item: Item) -> bool:
        """Return whether sending the item twice may leave a second marker."""
        return self.creates_markers and not is_permanent(item)

    def effect(self, item: Item) -> str:
        """Return how the item's object goes: hidden by a marker, erased for good, or plainly deleted."""
        if not self.has_versions:
            return "deleted"
        return "erased" if is_permanent(item) else "hidden"

    def effects(self, items: Sequence[Item]) -> dict[str, int]:
        """Return how many of these items go in which way; those that are none are left out."""
        erased = sum(map(is_permanent, items)) if self.effect("") == "hidden" else 0
        counts = {"erased": erased, self.effect(""): len(items) - erased}
        return {effect: count for effect, count in counts.items() if count}

    @property
    def is_open(self) -> bool:
        """Return whether its circuit is open: nothing more is sent."""
        return self.breaker.opened is not None

    @property
    def idle(self) -> bool:
        """Return whether nothing is due or under way."""
        return (
            self.keys.at_rest
            and not (self.due or self.unstarted or self.out or self.jobs)
            and self.denial is not Denial.ASKING
            and self.probe_due is None
        )

    # -- its keys

    def unseen(self, keys: Sequence[str]) -> Sequence[str]:
        """Return those plain keys that nobody has queued yet, each once, and count them as seen."""
        own = set(keys)
        # Their hashes are at hand now: looking them up and adding them all touches no key again.
        if len(own) == len(keys) and self.seen.isdisjoint(own):
            self.seen |= own
            return keys
        new = [key for key in dict.fromkeys(keys) if key not in self.seen]
        self.seen |= own
        return new

    def unseen_items(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return those items that nobody has queued yet, each once, and count them as seen."""
        new = [item for item in dict.fromkeys(items) if item not in self.seen]
        self.seen.update(new)
        self.bound.update(item.key for item in new if not isinstance(item, str))
        return new

    def queued(self, key: str) -> bool:
        """Return whether a delete of this key, in whatever form, was queued in this task."""
        return key in self.seen or key in self.bound

    def verify_first(self, items: Sequence[T]) -> list[T]:
        """Put off those items whose repeat may leave a second marker until they were verified."""
        others: list[T] = []
        for item in items:
            if isinstance(item, EraseAll) or item not in self.sent_before or not self.may_create_marker(item):
                others.append(item)
            else:
                put_off = ItemOutcome(None, "repeat", "sent before")
                self.keys.move(item, State.TO_VERIFY, put_off, was=State.WAITING)
        return others

    def next_due_at(self, now: float) -> float:
        """Return when the next request may be sent, at the earliest."""
        return max(self.pace.not_before, self.due.at(now))

    def next_batch(self, now: float) -> Batch:
        """Take the next request's items."""
        batch = self.due.next_batch(now, self.pace.most)
        batch.probed = self.probe is Probe.PROBED
        if batch.again:
            self._send(batch.items)
        return batch

    def next_alone(self) -> EraseAll:
        """Take a key that goes by a job of its own."""
        item = self.due.alone.pop()
        self._send([item])
        return item

    def next_to_verify(self) -> dict[Item, ItemOutcome]:
        """Take some items to be verified, with their outcomes so far; no key twice."""
        items = self.keys.first_to_verify()
        self._send(items)
        return {item: self.keys.entries[item].outcome for item in items}

    def _send(self, items: Sequence[Item]) -> None:
        for item in items:
            if (outcome := self.keys.outcome(item)) is not None:
                self.keys.move(item, State.IN_FLIGHT, outcome)

    def needs_probe(self) -> bool:
        """Return whether a key waits for what a trial shows, or might be taken for another by the store."""
        if self.keys.all_in(State.TO_PROBE):
            return True
        if self.abilities is None:
            return False
        keys = map(key_of, islice(self.keys.all_in(State.TO_VERIFY), MAX_KEYS))
        return any(self.abilities.aliasing_of(key, batch=False) is not None for key in keys)

    # -- its circuit

    def works(self, most: int) -> None:
        """Note a reply in which something was done; `most` requests may be out at a time."""
        self.pace.good(most)
        self.breaker.works()

    def open_circuit(self, why: ItemOutcome) -> None:
        """Send nothing more; what is unsent is held for this reason, and nothing has happened to it."""
        self._close(ItemOutcome(None, why.reason, why.detail))

    def give_up(self, why: ItemOutcome) -> None:
        """Send nothing more, now or later: what is unsent is dead for this reason, as no waiting mends it."""
        self._close(ItemOutcome(OutcomeKind.DEAD_LETTERED, why.reason, why.detail))

    def _close(self, why: ItemOutcome) -> None:
        self.breaker.opened = why
        for execution in self.unstarted:
            execution.held = why
        self.unstarted, self.probe_due = [], None
        if self.denial is Denial.ASKING:
            self.denial = Denial.UNASKED
        self.sweep()

    def sweep(self) -> None:
        """Hold all that is at rest unsent once the circuit is open; what is in flight comes back first."""
        why = self.breaker.opened
        if why is None:
            return
        # A denied key keeps its own outcome where others were allowed: that is decided at the end.
        held = [*self.due.take_all(), *self.keys.all_in(State.TO_VERIFY), *self.keys.all_in(State.TO_PROBE)]
        for item in held:
            known = self.keys.outcome(item)
            unknown = known is not None and known.unknown
            # Of what may be gone no dead letter says that it stays: that waits, also in a bucket given up.
            kind = None if unknown or item in self.sent_before else why.kind
            outcome = ItemOutcome(kind, why.reason, why.detail, unknown=unknown)
            self.keys.move(item, State.SETTLED, outcome, was=State.DUE)
