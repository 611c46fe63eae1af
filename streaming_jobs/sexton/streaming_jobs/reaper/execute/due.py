"""What is due for one bucket, and the next request made of it.

Four lines: plain keys by the thousand, items with a condition or a version, what met trouble and is sent
again, and keys that go alone, each by a job of its own. No request names a key twice that could meet itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sexton.storage import MAX_KEYS, Delete
from sexton.streaming_jobs.reaper.execute.items import EraseAll, Item, key_of

if TYPE_CHECKING:
    from sexton.streaming_jobs.reaper.execute.execution import Execution

__all__ = ["Batch", "Due", "Keys", "apart"]

_COMPACT_AT = 100_000


@dataclass(slots=True)
class Batch:
    """One request: up to 1,000 items of a bucket, for the intents of `users`; `again` when sent before.

    `due` is when it may be sent, seconds of the executor's clock. `probed` says whether the store had been
    tried when it was sent.
    """

    items: Sequence[str | Delete]
    users: Sequence[Execution] = ()
    due: float = 0.0
    again: bool = False
    probed: bool = False


@dataclass(slots=True)
class Keys:
    """A queue of keys that are taken by the thousand; taking costs what is taken, however many wait."""

    items: list[str] = field(default_factory=list)
    start: int = 0

    def __len__(self) -> int:
        return len(self.items) - self.start

    def take(self, most: int) -> list[str]:
        """Take up to so many from the front."""
        taken = self.items[self.start : self.start + most]
        self.start += len(taken)
        if self.start >= _COMPACT_AT:
            del self.items[: self.start]
            self.start = 0
        return taken


@dataclass(slots=True)
class _Users:
    """Whose keys stand in a queue, in its order: each with the count of all keys up to its last one."""

    queued: int = 0
    taken: int = 0
    ends: deque[tuple[int, Execution]] = field(default_factory=deque)

    def add(self, execution: Execution, keys: int) -> None:
        """Note that an execution's next keys were queued."""
        if keys:
            self.queued += keys
            self.ends.append((self.queued, execution))

    def take(self, keys: int) -> list[Execution]:
        """Return whose keys the next ones are; the last one may have keys left for the next request."""
        self.taken += keys
        found: list[Execution] = []
        while self.ends:
            end, execution = self.ends[0]
            found.append(execution)
            if end <= self.taken:
                self.ends.popleft()
            if end >= self.taken:
                break
        return found


@dataclass(slots=True)
class Due:
    """The lines of one bucket: `plain` keys, `bound` items (a condition or a version), `again`, `alone`."""

    plain: Keys = field(default_factory=Keys)
    bound: deque[tuple[Delete, Execution]] = field(default_factory=deque)
    again: list[Batch] = field(default_factory=list)
    alone: list[EraseAll] = field(default_factory=list)
    _users: _Users = field(default_factory=_Users)

    def __bool__(self) -> bool:
        return self.has_requests or bool(self.alone)

    @property
    def has_requests(self) -> bool:
        """Return whether there is something to send as soon as pace allows."""
        return bool(self.again or self.plain or self.bound)

    def queue_plain(self, execution: Execution, keys: Sequence[str]) -> None:
        """Queue an execution's plain keys."""
        self.plain.items += keys
        self._users.add(execution, len(keys))

    def queue(self, execution: Execution, items: Iterable[Item]) -> None:
        """Queue an execution's items, each by its kind."""
        plain = len(self.plain)
        for item in items:
            match item:
                case str():
                    self.plain.items.append(item)
                case Delete():
                    self.bound.append((item, execution))
                case EraseAll():
                    self.alone.append(item)
        self._users.add(execution, len(self.plain) - plain)

    def send_again(self, items: Sequence[str | Delete], due: float) -> None:
        """Queue what was sent before, for a request from `due` on."""
        if items:
            self.again.append(Batch(items, due=due, again=True))

    def at(self, now: float) -> float:
        """Return when something is due: now, unless all of it waits for its next try."""
        if self.plain or self.bound:
            return now
        return min((batch.due for batch in self.again), default=now)

    def next_size(self, now: float, most: int, *, flush: bool) -> int:
        """Return how many items the next request would carry, 0 while there is none to send.

        Without `flush` only full requests, of `most` items, are sent.
        """
        due = sum(len(batch.items) for batch in self.again if batch.due <= now)
        for size in (due, len(self.plain), len(self.bound)):
            if size >= most:
                return most
        if not flush:
            return 0
        return due or len(self.plain) or len(self.bound)

    def next_batch(self, now: float, most: int) -> Batch:
        """Take the next request's items: a full request first, then exactly those that met trouble."""
        due = sum(len(batch.items) for batch in self.again if batch.due <= now)
        full = len(self.plain) >= most or len(self.bound) >= most
        if due >= most or (due and not full):
            return self._next_again(now, most)
        if len(self.plain) >= most or (self.plain and len(self.bound) < most):
            keys = self.plain.take(most)
            return Batch(keys, self._users.take(len(keys)))
        return self._next_bound(most)

    def take_all(self) -> list[Item]:
        """Take everything: nothing of it was sent, or not since it met trouble."""
        taken: list[Item] = [*self.plain.take(len(self.plain)), *self.alone]
        taken += [item for item, _ in self.bound]
        taken += [item for batch in self.again for item in batch.items]
        self.bound, self.alone, self.again = deque(), [], []
        return taken

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
