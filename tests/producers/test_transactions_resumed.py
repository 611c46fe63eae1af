"""M-14, M-17: transactions whose process ends at any step, or is paused while another one resumes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from sexton.issuer.state.transactions import Status
from sexton.producers import (
    HandleUnusable,
    IndexFateUnknown,
    IndexNotWritten,
    IssuerUnavailable,
    KeyReused,
    StateNotSaved,
    Transaction,
    TransactionLost,
    UsageError,
)
from sexton.producers.testing import FakeIssuer, FakeSexton, FakeTransport
from sexton.schemas.codec import Codec
from sexton.schemas.events import DeletionIntent, PromiseGuard

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


STEPS = [
    "save open", "saved", "save open", "saved", "send", "sent", "save put", "saved", "put", "put returns",
    "save deadlist", "saved", "send", "sent", "save commit", "saved", "ask", "asked",
]  # fmt: skip
_SAVED_FOR = {3: ["send"], 7: ["put"], 11: ["send"], 15: ["ask"]}
STATE, PUT, INDEX_LANDS, COMMIT = 1, 7, 9, 15
"""How many steps a process has taken once these are in the world."""


def test_the_steps_of_a_process() -> None:
    """Those after which a process ends below are all that it takes."""
    steps = Steps()
    world = World(conditional=False)
    process = world.process(steps)
    process.run(process.begin())

    assert steps.names == STEPS
    assert world.status() is Status.COMMITTED


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("crash", range(len(STEPS) + 1))
def test_m_14_a_crash_at_any_step_kills_nothing_that_the_visible_index_names(
    crash: int, conditional: bool, other: bool
) -> None:
    """M-14: the next process wants the same, or another index with another deadlist; one commit, or none.

    It ends committed or acknowledged, and no object that the visible index names is ever deleted.
    """
    world = World(conditional=conditional)
    process = world.process(Steps(crash))
    with suppress(Crash):
        process.run(process.begin())
    again = world.process(Steps())
    txn = again.begin()
    try:
        again.run(txn, changes_its_mind=other)
    except (HandleUnusable, IndexNotWritten):
        txn.acknowledge()
    found = world.issuer.transactions("t")
    assert found is not None
    index = world.indexes[f"tenants/t/index.{found.last_committed}"]

    assert not index & world.killed()
    goes_on = STATE <= crash < PUT or crash >= COMMIT
    goes_on |= conditional and PUT <= crash < (INDEX_LANDS if other else COMMIT)
    assert world.status() is (Status.COMMITTED if goes_on else Status.REJECT_ACKNOWLEDGED)


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("pause", range(STATE, len(STEPS)))
def test_m_17_a_paused_twin_sends_nothing_after_a_resume(pause: int, conditional: bool) -> None:
    """M-17: paused before any of its steps, it loses its next save; what was saved for is all that it sends.

    Another process resumes the transaction meanwhile, wants another index, and ends it.
    """
    world, steps = World(conditional=conditional), Steps()
    process = world.process(steps)

    def meanwhile() -> None:
        again = world.process(Steps())
        txn = again.begin()
        try:
            again.run(txn, changes_its_mind=True)
        except (HandleUnusable, IndexNotWritten):
            txn.acknowledge()

    steps.at[pause] = meanwhile
    with suppress(HandleUnusable, IndexNotWritten):
        process.run(process.begin())
    sent = [name for name in steps.names[pause:] if name in ("send", "put", "ask")]
    found = world.issuer.transactions("t")
    assert found is not None

    assert not world.indexes[f"tenants/t/index.{found.last_committed}"] & world.killed()
    assert sent == ([STEPS[pause]] if STEPS[pause] in ("send", "put", "ask") else _SAVED_FOR.get(pause, []))


def test_m_17_a_twin_is_told_that_its_state_is_another_ones() -> None:
    """M-17: each call but the first says so, an acknowledgement too: another process may be writing."""
    world = World(conditional=False)
    twin, again = world.process(Steps()), world.process(Steps())
    paused = twin.begin()
    resumed = again.begin()
    paused.delete("bucket", [OLD[0]])
    for call in (lambda: paused.commit(lambda: None), paused.acknowledge, lambda: paused.key("a")):
        with pytest.raises(StateNotSaved):
            call()
    assert world.intents == []
    assert world.status() is Status.OPEN
    again.run(resumed)
    assert world.status() is Status.COMMITTED
    with pytest.raises(StateNotSaved):
        again.sexton.resume_transaction(paused._state.to_dict(), persist=world.store.save)


def test_m_14_another_index_is_not_written_over_a_deadlist_that_went_out() -> None:
    """M-14: the index that was acknowledged is gone from where it stood; no other one takes its place."""
    world = World(conditional=True)
    process = world.process(Steps(13))
    with suppress(Crash):
        process.run(process.begin())
    assert [set(intent.action.keys) for _, intent in world.intents][-1:] == [{OLD[0]}]
    del world.indexes[INDEX]
    again = world.process(Steps())
    txn = again.begin()
    with pytest.raises(IndexFateUnknown, match="not the one that stands"):
        again.run(txn, changes_its_mind=True)
    txn.acknowledge()

    assert INDEX not in world.indexes


def _raises(state: Any, version: int) -> bool:
    raise OSError("the store is away")


async def _later(state: Any, version: int) -> bool:
    return True


@pytest.mark.parametrize("save", [lambda *_: False, lambda *_: 0, _raises, _later])
def test_a_state_that_may_not_be_kept_closes_the_handle(save: Any) -> None:
    """Returned False, no row updated, raised, or not awaited: nothing is sent, the index is not written."""
    with FakeSexton("n") as sexton:
        with pytest.raises(StateNotSaved):
            sexton.transaction("t", prefix=PREFIX, persist=save)
        answers = iter([None])

        def later(state: Any, version: int) -> Any:
            return next(answers, None) if version == 1 else save(state, version)

        txn = sexton.transaction("t", prefix=PREFIX, persist=later)
        txn.delete("bucket", ["tenants/t/a.0"])
        puts: list[int] = []
        with pytest.raises(StateNotSaved):
            txn.commit(lambda: puts.append(1))
        assert (puts, sexton.intents) == ([], [])
        with pytest.raises(StateNotSaved):
            txn.acknowledge()


def test_m_14_without_its_state_a_transaction_is_only_acknowledged() -> None:
    """M-14: its number is what the issuer lists; it is never committed by who has lost sight of it."""
    with FakeSexton("n") as sexton:
        sexton.transaction("t", prefix=PREFIX)
        (left,) = sexton.issuer.unfinished_transactions("n")
        txn = sexton.resume_transaction(None, tenant=left.tenant, transaction=left.transaction)
        for call in (
            lambda: txn.key("a"),
            lambda: txn.delete("bucket", ["a"]),
            lambda: txn.discard("bucket", ["tenants/t/a.1"]),
            lambda: txn.commit(lambda: None, read_index=lambda: True),
        ):
            with pytest.raises(TransactionLost):
                call()
        txn.acknowledge()

        assert sexton.issuer.unfinished_transactions()[0].status is Status.REJECT_ACKNOWLEDGED
        assert sexton.intents == []


def test_a_resume_needs_its_state_or_its_number() -> None:
    """And somebody who saves, under the name of the node that started it."""
    kept: list[dict[str, Any]] = []
    issuer = FakeIssuer()
    with FakeSexton("n", issuer) as sexton, FakeSexton("m", issuer) as other:
        sexton.transaction("t", persist=lambda state, _: kept.append(state))

        def save(state: dict[str, Any], version: int) -> None:
            """Keep nothing."""

        wrongs: list[Callable[[], object]] = [
            lambda: sexton.resume_transaction(None, tenant="t"),
            lambda: sexton.resume_transaction(kept[0]),
            lambda: sexton.resume_transaction(kept[0], persist=save, tenant="t"),
            lambda: other.resume_transaction(kept[0], persist=save),
            lambda: sexton.resume_transaction({}, persist=save),
        ]
        for wrong in wrongs:
            with pytest.raises(UsageError):
                wrong()
        assert sexton.resume_transaction(kept[0], persist=save).id == 1


def test_an_index_that_cannot_be_read_back_leaves_its_fate_unknown() -> None:
    """It may be asked again: conditional PUTs stay conditional."""
    world = World(conditional=True)
    process = world.process(Steps())
    txn = process.begin()

    def put() -> None:
        raise TimeoutError

    def read() -> bool:
        raise IssuerUnavailable("the bucket is away")

    wrong: list[Any] = [read, lambda: None, lambda: "yes"]
    for each in wrong:
        with pytest.raises(IndexFateUnknown):
            txn.commit(put, read_index=each)
    assert world.status() is Status.OPEN
    txn.commit(read_index=lambda: True)
    assert world.status() is Status.COMMITTED
