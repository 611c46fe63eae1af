"""The world of transactions: log, intents, a store, the handles of two nodes, collector and reaper.

One tenant, whose transaction 1 is committed, with an index that names `y`; everybody's transaction writes an
`x` of its own, and may drop `y`. Another tenant has objects with the same numbers. Nothing is shared between
handles but what the world holds: one that takes no step is paused, or out of reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.model.rules import replaced

from sexton.schemas.events import NumberPlace

TENANT, OTHER = "t", "u"
COMMITTED, REJECTED, PROMISED, FOREIGN = "committed", "rejected", "promised", "foreign"
ENDED = ("done", "acknowledged", "dead")

SAFEGUARDS = {
    "one-number": "a start counts only if its number follows the newest",
    "dooms": "a start rejects every other open transaction",
    "last-committed": "a start builds on what is the last committed one at its own event",
    "newest-commits": "only the newest transaction is committed, while it is open",
    "deadlist-closed": "a deadlist ends with the end offsets of the commit",
    "claimed-early": "what claims a transaction below its window is not believed",
    "ends-reached": "a commit waits until the end offsets have reached its deadlist",
    "acknowledged": "what a transaction wrote goes by its rejection only once that is acknowledged",
    "collected-passes": "what passes by a rejection passes once it is collected, too",
    "number-in-key": "a rejection speaks for keys with the transaction's number",
    "tenant-in-key": "a rejection speaks for keys under the tenant's prefix",
    "index-outcome": "a transaction with an index PUT of unknown outcome is not committed",
    "compare-and-set": "the state of a transaction is saved by compare-and-set",
    "put-under-way": "who resumes while an index PUT is under way only acknowledges",
    "commit-alone": "nothing but the commit follows the deadlist",
    "offsets-saved": "the state has the offset behind the deadlist",
    "discards-saved": "the state has the names that were discarded",
    "give-up-saved": "that a transaction is given up is saved before it is acknowledged",
    "listed-afterwards": "a transaction is collected by a listing that began after the acknowledgement",
}
TRUSTED = {
    "uploads-ceased": "who acknowledges uploads nothing more in the name of the transaction",
    "deadlist-right": "nobody emits a deadlist that the index it commits still names",
}


class Record(NamedTuple):
    """An intent for keys, or for a prefix; `owed` says that it is of the deadlist that a commit names.

    A foreign record is another client's; while its Kafka transaction is open it is not `stable`.
    """

    transaction: int
    wanted: str
    keys: tuple[str, ...] = ()
    prefix: bool = False
    owed: bool = False
    stable: bool = True


class Upload(NamedTuple):
    """An upload whose answer never came: it may land at any time, or never; an index has `names`."""

    transaction: int
    key: str
    names: frozenset[str] | None = None


class Handle(NamedTuple):
    """One handle in one process of a node, and the step that it takes next.

    `event` is the one that its call to the issuer is about to append, `names` what its index is to name,
    `drops` that it is to drop `y`, `discarded` that its own object was given up, `ends` the offset behind its
    deadlist, `version` that of its state.
    """

    node: str
    request: str
    at: str = "start"
    transaction: int = 0
    event: int | None = None
    names: frozenset[str] = frozenset()
    drops: bool = False
    discarded: bool = False
    ends: int = 0
    version: int = 0


class Saved(NamedTuple):
    """The state of a transaction in the service's own store: what is under way, what who resumes needs."""

    version: int = 0
    base: int = 0
    under_way: str = ""
    ends: int = 0
    discarded: bool = False


class Budget(NamedTuple):
    """How often the environment may still do its worst, and how often others may act."""

    barriers: int = 2
    unknown: int = 0
    losses: int = 0
    crashes: int = 0
    resumes: int = 0
    holds: int = 0
    strays: int = 0
    discards: int = 0
    give_ups: int = 0
    listings: int = 0


class TransactionWorld(NamedTuple):
    """One state; `log` and `flight` hold events by their number in the rules' table.

    `indexes` and `saved` are by transaction, `verdicts` by the offset of the intent: what has passed may be
    executed late, and again. `answers` says which request was answered which number, `nothing_of` of which
    transaction the collector's listing has found nothing.
    """

    log: tuple[int, ...]
    flight: tuple[int, ...]
    records: tuple[Record, ...]
    store: frozenset[str]
    indexes: tuple[frozenset[str] | None, ...]
    uploads: tuple[Upload, ...]
    handles: tuple[Handle, ...]
    saved: tuple[Saved | None, ...]
    answers: frozenset[tuple[str, int]]
    nothing_of: int
    verdicts: frozenset[tuple[int, bool]]
    budget: Budget

    @property
    def stable_end(self) -> int:
        """The last stable offset: below it nothing changes any more."""
        return next((i for i, record in enumerate(self.records) if not record.stable), len(self.records))

    def put(self, number: int, **changes: Any) -> TransactionWorld:
        """Return the world with a handle changed."""
        handle = self.handles[number]._replace(**changes)
        return self._replace(handles=replaced(self.handles, number, handle))

    def emit(self, record: Record) -> TransactionWorld:
        """Return the world with one more record of the intents topic."""
        return self._replace(records=(*self.records, record))

    def spend(self, what: str) -> TransactionWorld:
        """Return the world in which the environment may do this once less."""
        return self._replace(budget=self.budget._replace(**{what: getattr(self.budget, what) - 1}))


Steps = Iterator[tuple[str, TransactionWorld]]


@dataclass(frozen=True, slots=True)
class TransactionSetup:
    """A small world: which nodes start transactions, what may go wrong, where keys carry the number.

    `drops` are the choices that each has for `y`; `writes` whether they write objects of their own,
    `conditional` whether an index is never replaced: one of unknown outcome is read back.
    """

    nodes: str
    budget: Budget
    records: tuple[Record, ...] = ()
    place: NumberPlace = NumberPlace.FIRST
    drops: tuple[bool, ...] = (False, True)
    writes: bool = True
    conditional: bool = False

    @property
    def numbers(self) -> range:
        """The numbers of transactions that the nodes may start."""
        return range(2, 2 + len(self.nodes))

    def key(self, name: str, number: int, tenant: str = TENANT) -> str:
        """Return the key of an object, which carries the number of the transaction that wrote it."""
        if self.place is NumberPlace.FIRST:
            return f"tenants/{tenant}/{number}/{name}"
        return f"tenants/{tenant}/{name}.{number}"

    @property
    def y(self) -> str:
        """The object that transaction 1 has written and its index names."""
        return self.key("y", 1)

    def foreign(self, number: int) -> str:
        """Return an object of another tenant, of its transaction of this number."""
        return self.key("z", number, OTHER)

    def rejection(self, number: int) -> Record:
        """Return the collector's intent for all that carries the number of a rejected transaction."""
        place = f"tenants/{TENANT}/{number}/" if self.place is NumberPlace.FIRST else f"tenants/{TENANT}/"
        return Record(number, REJECTED, (place,), prefix=True)

    def start(self, event: Callable[..., int]) -> TransactionWorld:
        """Return the first state; `event` makes the events that the log begins with."""
        numbers = [f"{node}{i}" for i, node in enumerate(self.nodes)]
        most = len(self.nodes) + 2
        return TransactionWorld(
            log=(event("genesis"), event("started", self.place), event("committed")),
            flight=(),
            records=self.records,
            store=frozenset([self.y, *map(self.foreign, self.numbers)]),
            indexes=(None, frozenset([self.y]), *(None for _ in range(2, most))),
            uploads=(),
            handles=tuple(Handle(name[0], name) for name in numbers),
            saved=tuple(None for _ in range(most)),
            answers=frozenset(),
            nothing_of=0,
            verdicts=frozenset(),
            budget=self.budget,
        )
