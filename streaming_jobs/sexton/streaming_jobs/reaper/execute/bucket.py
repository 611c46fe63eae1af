"""The state of one bucket within a task: what waits, what is out, what became of the keys that met trouble.

Buckets never wait for each other: each has its own queue, pace and failure threshold. A bucket that is closed
sends nothing more; its unsent keys are held, and their intents wait for the bucket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from sexton.storage import MAX_KEYS, Abilities, Delete, Versioning
from sexton.streaming_jobs.reaper.execute.breaker import CircuitBreaker
from sexton.streaming_jobs.reaper.execute.items import EraseAll, Item, is_permanent, key_of
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome
from sexton.streaming_jobs.reaper.execute.pace import Pace
from sexton.streaming_jobs.reaper.execute.queues import Keys, Users
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt

if TYPE_CHECKING:
    from sexton.streaming_jobs.reaper.execute.execution import Execution

__all__ = ["Batch", "Bucket", "apart"]


@dataclass(slots=True)
class Batch:
    """One request: up to 1,000 items of a bucket, for the intents of `users`; `again` when sent before.

    `probed` says whether the store had been tried when it was sent.
    """

    items: Sequence[str | Delete]
    users: Sequence[Execution] = ()
    due: float = 0.0
    again: bool = False
    probed: bool = False


@dataclass(slots=True)
class Bucket:
    """One bucket's work; `outcomes` names the keys that are not plainly gone, and those that met trouble
    first.

    `started` is when its task began, seconds since 1970; `sent_before` are the items of which an attempt is
    known whose effect is not. `abilities` is None until the bucket was probed; `unprobed` are the executions
    that wait for it.
    """

    name: str
    bypass: bool
    started: float = 0.0
    abilities: Abilities | None = None
    seen: set[Item] = field(default_factory=set)
    waiting: Keys = field(default_factory=Keys)
    bound: deque[tuple[Delete, Execution]] = field(default_factory=deque)
    erasing: list[EraseAll] = field(default_factory=list)
    again: list[Batch] = field(default_factory=list)
    to_verify: dict[str | Delete, ItemOutcome] = field(default_factory=dict)
    denied: dict[str | Delete, ItemOutcome] = field(default_factory=dict)
    outcomes: dict[Item, ItemOutcome] = field(default_factory=dict)
    tries: dict[Item, int] = field(default_factory=dict)
    sent_before: dict[Item, Attempt] = field(default_factory=dict)
    users: Users = field(default_factory=Users)
    unprobed: list[Execution] = field(default_factory=list)
    pace: Pace = field(default_factory=Pace)
    out: int = 0
    jobs: int = 0
    done: int = 0
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    probe_due: float | None = None
    denies_all: bool | None = None
    asking: bool = False
    probing: bool = False
    probed: bool = False
    untried: dict[str | Delete, ItemOutcome] = field(default_factory=dict)

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
    def idle(self) -> bool:
        """Return whether nothing is queued or under way."""
        return not (
            self.has_unsent
            or self.to_verify
            or self.erasing
            or self.unprobed
            or self.out
            or self.jobs
            or self.untried
            or self.asking
            or self.probe_due is not None
        )

    @property
    def has_unsent(self) -> bool:
        """Return whether there is something to send as soon as pace allows."""
        return bool(self.again or self.waiting or self.bound)

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
        return new

    def queue(self, execution: Execution, items: Iterable[Item]) -> None:
        """Put an execution's items where they are sent from, each by its kind."""
        plain = len(self.waiting)
        for item in items:
            match item:
                case str():
                    self.waiting.items.append(item)
                case Delete():
                    self.bound.append((item, execution))
                case EraseAll():
                    self.erasing.append(item)
        self.users.add(execution, len(self.waiting) - plain)

    def due(self, now: float) -> float:
        """Return when the next request may be sent, at the earliest."""
        if self.waiting or self.bound:
            return max(self.pace.not_before, now)
        return max(self.pace.not_before, min((batch.due for batch in self.again), default=now))

    def next_size(self, now: float, *, flush: bool) -> int:
        """Return how many items the next request would carry, 0 while there is none to send."""
        due = sum(len(batch.items) for batch in self.again if batch.due <= now)
        for size in (due, len(self.waiting), len(self.bound)):
            if size >= self.pace.most:
                return self.pace.most
        if not flush:
            return 0
        return due or len(self.waiting) or len(self.bound)

    def next_batch(self, now: float) -> Batch:
        """Take the next request's items: a full request first, then exactly those that met trouble."""
        due = sum(len(batch.items) for batch in self.again if batch.due <= now)
        most = self.pace.most
        full = len(self.waiting) >= most or len(self.bound) >= most
        if due >= most or (due and not full):
            return self._next_again(now, most)
        if len(self.waiting) >= most or (self.waiting and len(self.bound) < most):
            keys = self.waiting.take(most)
            return Batch(keys, self.users.take(len(keys)))
        return self._next_bound(most)

    def _next_again(self, now: float, most: int) -> Batch:
        """Take what met trouble and is due, of several requests together, but no key twice."""
        taken: list[str | Delete] = []
        left: list[Batch] = []
        keys: set[str] = set()
        for batch in self.again:
            if batch.due <= now and not taken:
                rest = batch.items[most:]
                taken += batch.items[:most]
                if rest:
                    left.append(Batch(rest, due=batch.due, again=True))
                keys.update(map(key_of, taken))
            elif (
                batch.due <= now
                and len(taken) + len(batch.items) <= most
                # A condition or a version may be about a key that another batch names plainly.
                and keys.isdisjoint(map(key_of, batch.items))
            ):
                taken += batch.items
                keys.update(map(key_of, batch.items))
            else:
                left.append(batch)
        self.again = left
        return Batch(taken, again=True)

    def verify_first(self, items: Sequence[Item]) -> list[Item]:
        """Put off those items whose repeat may leave a second marker until they were verified."""
        others: list[Item] = []
        for item in items:
            if isinstance(item, EraseAll) or item not in self.sent_before or not self.may_create_marker(item):
                others.append(item)
            else:
                self.to_verify[item] = ItemOutcome(None, "repeat", "sent before")
        return others

    def needs_probe(self) -> bool:
        """Return whether a key to be verified is one that the store might take for another."""
        if self.probed or not self.to_verify or self.abilities is None:
            return False
        keys = (key_of(item) for item in islice(self.to_verify, MAX_KEYS))
        return any(self.abilities.aliasing_of(key, batch=False) is not None for key in keys)

    def next_to_verify(self) -> dict[str | Delete, ItemOutcome]:
        """Take those of the first 1,000 items to be verified that name no key twice."""
        taken: dict[str | Delete, ItemOutcome] = {}
        keys: set[str] = set()
        for item, outcome in islice(self.to_verify.items(), MAX_KEYS):
            key = key_of(item)
            if key not in keys:
                keys.add(key)
                taken[item] = outcome
        for item in taken:
            del self.to_verify[item]
        return taken

    def _next_bound(self, most: int) -> Batch:
        """Take some items with a condition or version, no key and version twice."""
        taken: list[str | Delete] = []
        users: list[Execution] = []
        left: list[tuple[Delete, Execution]] = []
        names: set[tuple[str, str | None]] = set()
        while self.bound and len(taken) < most and len(left) < MAX_KEYS:
            item, user = self.bound.popleft()
            name = (item.key, item.version_id)
            if name in names:
                left.append((item, user))
                continue
            names.add(name)
            taken.append(item)
            if not users or users[-1] is not user:
                users.append(user)
        self.bound.extendleft(reversed(left))
        return Batch(taken, users)

    def sweep(self) -> None:
        """Hold what came back after the bucket was closed."""
        if self.breaker.opened is not None:
            self.hold(self.breaker.opened)

    def works(self, most: int) -> None:
        """Note a reply in which something was done; `most` requests may be out at a time."""
        self.pace.good(most)
        self.breaker.works()

    def hold(self, why: ItemOutcome) -> None:
        """Send nothing more; what is unsent is held for the given reason."""
        self.breaker.opened = why
        held: list[Item] = [*self.waiting.take(len(self.waiting)), *self.erasing, *self.to_verify]
        held += [item for item, _ in self.bound]
        held += [item for batch in self.again for item in batch.items]
        held += self.untried
        self.bound, self.erasing, self.again = deque(), [], []
        for item in held:
            unknown = self.outcomes.get(item, why).unknown
            self.outcomes[item] = ItemOutcome(None, why.reason, why.detail, unknown=unknown)
        self.to_verify, self.untried, self.probe_due, self.asking = {}, {}, None, False
        for execution in self.unprobed:
            execution.held = why
        self.unprobed = []


def apart(items: Iterable[str | Delete]) -> list[list[str | Delete]]:
    """Divide items into requests: up to 1,000 in each, and no key twice."""
    rounds: list[list[str | Delete]] = []
    times: dict[str, int] = {}
    for item in items:
        key = key_of(item)
        number = times[key] = times.get(key, -1) + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(item)
    return [each[i : i + MAX_KEYS] for each in rounds for i in range(0, len(each), MAX_KEYS)]
