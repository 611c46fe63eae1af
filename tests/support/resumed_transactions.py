"""Processes of a service that end at any step of a transaction, and their world: issuer, bucket and store."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sexton.issuer.state.transactions import Status
from sexton.producers import HandleUnusable, IndexNotWritten, KeyReused, Transaction
from sexton.producers.testing import FakeIssuer, FakeSexton, FakeTransport
from sexton.schemas.codec import Codec
from sexton.schemas.events import DeletionIntent, PromiseGuard

__all__ = ["INDEX", "OLD", "PREFIX", "Crash", "Process", "Steps", "World"]

PREFIX = "tenants/t/"
INDEX = "tenants/t/index.2"
OLD = ("tenants/t/x.1", "tenants/t/y.1")  # what the first transaction's index names


class Crash(BaseException):
    """The process is gone."""


@dataclass
class Steps:
    """Counts the steps of a process, and ends it at one of them."""

    last: int = 1_000
    names: list[str] = field(default_factory=list)
    at: dict[int, Callable[[], None]] = field(default_factory=dict)

    def take(self, name: str) -> None:
        """Take a step, or end before it; whatever others do at this moment comes first."""
        if len(self.names) >= self.last:
            raise Crash
        self.at.pop(len(self.names), lambda: None)()
        self.names.append(name)


class Store:
    """Where the service keeps states: compare-and-set by version."""

    def __init__(self) -> None:
        self.state: dict[str, Any] | None = None
        self.version = 0

    def save(self, state: dict[str, Any], version: int) -> bool:
        """Keep a state if it is of the next version."""
        if version != self.version + 1:
            return False
        self.state, self.version = json.loads(json.dumps(state)), version
        return True


class World:
    """An issuer, a topic, a bucket with indexes, and the service's store; processes come and go."""

    def __init__(self, *, conditional: bool) -> None:
        self.conditional = conditional
        self.issuer = FakeIssuer()
        self.store = Store()
        self.indexes: dict[str, frozenset[str]] = {}
        self.intents: list[tuple[int, DeletionIntent]] = []
        with FakeSexton("node-7", self.issuer) as sexton:
            first = sexton.transaction("t", prefix=PREFIX)
            first.commit(lambda: self.indexes.update({"tenants/t/index.1": frozenset(OLD)}))

    def process(self, steps: Steps) -> Process:
        """Return a process of the service."""
        return Process(self, steps)

    def status(self) -> Status:
        """The status of the transaction."""
        found = self.issuer.transactions("t")
        assert found is not None
        return found.transactions[0].status

    def killed(self) -> set[str]:
        """Return what a reaper deletes: what was promised, and the deadlist in a committed window."""
        found = self.issuer.transactions("t")
        assert found is not None
        two = found.transactions[0]
        gone: set[str] = set()
        for offset, intent in self.intents:
            (guard,) = intent.guards
            in_window = two.until is not None and two.start[0] <= offset < two.until[0]
            if isinstance(guard, PromiseGuard) or (two.status is Status.COMMITTED and in_window):
                gone |= set(intent.action.keys)
        return gone


class _Transport(FakeTransport):
    def __init__(self, world: World, steps: Steps) -> None:
        super().__init__()
        self._world, self._steps = world, steps

    def send(self, record: Any, report: Any, deadline: Any) -> None:
        """Send, as two steps: before it is in the log, and after."""
        self._steps.take("send")
        offset = self.issuer.written(0) - 1
        self._world.intents.append((offset, Codec().decode(record.value, DeletionIntent)))
        super().send(record, report, deadline)
        self._steps.take("sent")


class Process:
    """One process of the service, with what it does to a bucket."""

    def __init__(self, world: World, steps: Steps) -> None:
        self.world, self.steps = world, steps
        self.sexton = FakeSexton("node-7", world.issuer, _Transport(world, steps))
        ask = world.issuer.commit_transaction

        def commit_transaction(*given: Any, **named: Any) -> int:
            steps.take("ask")
            answer = ask(*given, **named)
            steps.take("asked")
            return answer

        self.sexton._issuer = _With(world.issuer, commit_transaction)

    def save(self, state: dict[str, Any], version: int) -> bool:
        """Keep a state, as two steps."""
        self.steps.take(f"save {state['phase']}")
        answer = self.world.store.save(state, version)
        self.steps.take("saved")
        return answer

    def put(self, names: frozenset[str]) -> None:
        """Write the index, on the condition that there is none where PUTs are conditional."""
        self.steps.take("put")
        if self.world.conditional and INDEX in self.world.indexes:
            raise IndexNotWritten("412")
        self.world.indexes[INDEX] = names
        self.steps.take("put returns")

    def stands(self, names: frozenset[str]) -> bool:
        """Read the index back."""
        found = self.world.indexes.get(INDEX)
        if found is not None and found != names:
            raise ValueError("another index")
        return found is not None

    def begin(self) -> Transaction:
        """Start the transaction, or resume it from what is kept."""
        if (state := self.world.store.state) is not None:
            return self.sexton.resume_transaction(state, persist=self.save)
        if self.world.status() is Status.COMMITTED:  # the first one's: this was never started
            return self.sexton.transaction("t", prefix=PREFIX, persist=self.save)
        return self.sexton.resume_transaction(None, tenant="t", transaction=2)

    def run(self, txn: Transaction, *, changes_its_mind: bool = False) -> None:
        """Write three objects, discard one of them, and commit an index that names the others and y.

        Or keep that one, and commit an index that names x, on which the first process has put an end.
        """
        a = self._written(txn, "a")
        dead, kept = OLD[::-1] if changes_its_mind else OLD
        if a is not None and not changes_its_mind:
            with suppress(HandleUnusable):
                txn.discard("bucket", [a])
            a = None
        names = frozenset({kept, "tenants/t/b.2", "tenants/t/c.2", *filter(None, [a])})
        with suppress(HandleUnusable):
            txn.delete("bucket", [dead])
        read = (lambda: self.stands(names)) if self.world.conditional else None
        txn.commit(lambda: self.put(names), read_index=read)

    def _written(self, txn: Transaction, name: str) -> str | None:
        try:
            return txn.key(name)
        except (HandleUnusable, KeyReused):
            return None


class _With:
    """The issuer with another way to commit."""

    def __init__(self, issuer: FakeIssuer, commit_transaction: Any) -> None:
        self._issuer, self.commit_transaction = issuer, commit_transaction

    def __getattr__(self, name: str) -> Any:
        return getattr(self._issuer, name)
