"""M-14, M-17: transactions of processes that end or pause, on the real issuer and Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NoReturn, get_args

import pytest
from tests.support.producing import Losing, Real
from tests.support.stacks import WORKER

from sexton.consumers.topics import read
from sexton.deploy.local import Installation, LocalStack
from sexton.issuer.state.transactions import Status
from sexton.producers import (
    CommitBegun,
    HandleUnusable,
    IndexFateUnknown,
    KeyReused,
    RequestRefused,
    Sexton,
    StateNotSaved,
    Transaction,
    TransactionLost,
)
from sexton.schemas.codec import Codec
from sexton.schemas.events import (
    GenerationEvent,
    PromiseGuard,
    TransactionAcknowledged,
    TransactionCommitted,
    TransactionGuard,
    TransactionStarted,
    TransactionState,
)

pytestmark = pytest.mark.real

NODE, PREFIX = "node-7", "tenants/t/"
OLD, OTHER, OWN = "tenants/t/old.0", "tenants/t/other.0", "tenants/t/gone.1"
START, COMMIT, GIVEN_UP = TransactionStarted, TransactionCommitted, TransactionAcknowledged


class Crash(BaseException):
    """The process is gone."""


class Store:
    """Where the service keeps the state of one transaction: compare-and-set by version."""

    def __init__(self) -> None:
        self.state: dict[str, Any] | None = None
        self.dies: Callable[[str], bool] = lambda phase: False

    def save(self, state: dict[str, Any], version: int) -> bool:
        """Keep a state if it is of the next version; whoever saves may not live to see it."""
        if version != 1 + (0 if self.state is None else self.state["version"]):
            return False
        self.state = state
        if self.dies(state["phase"]):
            raise Crash
        return True


class World:
    """One tenant: processes of its node, what they have written to Kafka, and what the issuer has logged."""

    def __init__(self, real: Real, tenant: str, stack: ExitStack) -> None:
        self.tenant, self.store, self._real, self._stack = tenant, Store(), real, stack

    def process(self, *, answer_is_lost: bool = False) -> Sexton:
        """Connect another process; one that crashed stays as it is, it gets to no orderly end."""
        issuer = Losing(self._real.issuer(), Crash(), commit_transaction=1) if answer_is_lost else None
        return self._stack.enter_context(self._real.connect(NODE, issuer=issuer))

    def begin(self, **given: Any) -> Transaction:
        """A first process starts the transaction, and puts an object on its deadlist."""
        txn = self.process(**given).transaction(self.tenant, prefix=PREFIX, persist=self.store.save)
        txn.delete("bucket", [OLD])
        return txn

    def resume(self) -> Transaction:
        """Another process takes up what is stored."""
        self.store.dies = lambda phase: False
        return self.process().resume_transaction(self.store.state, persist=self.store.save)

    def lost(self) -> Transaction:
        """Another process has nothing but the number."""
        return self.process().resume_transaction(None, tenant=self.tenant, transaction=1)

    def intents(self) -> list[tuple[str, bool]]:
        """Key of each intent in Kafka, and whether it is a promise; all else waits for the commit."""
        self._stack.close()  # whatever still is in a buffer is there now
        found = []
        for intent in self._real.emitted(self.process()):
            if intent.tenant == self.tenant:
                (guard,), (key,) = intent.guards, intent.action.keys
                assert isinstance(guard, PromiseGuard) or guard == TransactionGuard(
                    self.tenant, 1, TransactionState.COMMITTED
                )
                found.append((key, isinstance(guard, PromiseGuard)))
        return sorted(found)

    def log(self) -> list[type[GenerationEvent]]:
        """What kinds of events of this tenant stand in the issuer's log, void ones among them."""
        codec, kinds = Codec(), get_args(GenerationEvent)
        events = [codec.decode(r.value, *kinds) for r in read(self._real.settings, "generations", timeout=10)]
        return [type(each) for each in events if getattr(each, "tenant", None) == self.tenant]

    def status(self) -> Status:
        """What the issuer says of the transaction."""
        found = self._real.issuer().transactions(self.tenant)
        assert found is not None
        (transaction,) = found.transactions
        return transaction.status


@pytest.fixture(scope="module")
def real(stack: LocalStack) -> Iterator[Real]:
    """An installation with an issuer; each test has a tenant of its own."""
    made = Installation.start(stack, f"restarted-{WORKER}")
    connections = Real(made)
    yield connections
    connections.close()
    made.stop()


@pytest.fixture
def world(real: Real, request: pytest.FixtureRequest) -> Iterator[World]:
    """The test's own tenant."""
    with ExitStack() as stack:
        yield World(real, request.node.name, stack)


def never() -> NoReturn:
    """An index that is not to be written."""
    raise AssertionError("the index is not written by this process")


def crash() -> NoReturn:
    """The process ends while its index PUT is under way."""
    raise Crash


def refuses(txn: Transaction, why: type[HandleUnusable], *calls: str) -> None:
    """Assert that a handle refuses some calls."""
    made: dict[str, Callable[[], object]] = {
        "key": lambda: txn.key("more"),
        "delete": lambda: txn.delete("bucket", [OTHER]),
        "discard": lambda: txn.discard("bucket", ["tenants/t/more.1"]),
        "commit": lambda: txn.commit(never),
        "acknowledge": txn.acknowledge,
    }
    for call in calls:
        with pytest.raises(why):
            made[call]()


def test_m_14_a_crash_before_the_index_is_written(world: World) -> None:
    """M-14: nothing was under way: it goes on; a deadlist that was not sent went with its process."""
    world.begin().key("layer")
    txn = world.resume()
    assert txn.key("layer") == "tenants/t/layer.1"
    txn.delete("bucket", [OTHER])
    puts: list[int] = []
    txn.commit(lambda: puts.append(1))

    assert puts == [1]
    assert world.intents() == [(OTHER, False)]
    assert world.log() == [START, COMMIT]
    assert world.status() is Status.COMMITTED


def test_m_14_a_crash_after_a_discard(world: World) -> None:
    """M-14: whether or not its promise was sent, the name is never handed out again; the rest goes on."""
    first = world.begin()
    first.discard("bucket", [OWN]).wait(20)
    world.store.dies = lambda phase: True
    with pytest.raises(Crash):
        first.discard("bucket", ["tenants/t/unsent.1"])
    txn = world.resume()
    for name in ("gone", "unsent"):
        with pytest.raises(KeyReused):
            txn.key(name)
    assert txn.key("layer") == "tenants/t/layer.1"
    txn.commit(lambda: None)

    assert world.intents() == [(OWN, True)]
    assert world.log() == [START, COMMIT]


def test_m_14_a_crash_with_an_index_put_under_way(world: World) -> None:
    """M-14: nobody knows whether it lands: nothing but an acknowledgement, and nothing was sent."""
    with pytest.raises(Crash):
        world.begin().commit(crash)
    txn = world.resume()
    refuses(txn, IndexFateUnknown, "commit", "discard")
    assert world.status() is Status.OPEN
    txn.acknowledge()

    assert world.intents() == []
    assert world.log() == [START, GIVEN_UP]
    assert world.status() is Status.REJECT_ACKNOWLEDGED


@pytest.mark.parametrize("landed", [False, True])
def test_m_14_a_crash_with_a_conditional_index_put_under_way(world: World, landed: bool) -> None:
    """M-14: it is read back, written where it did not land, and the commit goes on with its deadlist."""
    with pytest.raises(Crash):
        world.begin().commit(crash)
    txn = world.resume()
    txn.delete("bucket", [OTHER])
    puts: list[int] = []
    txn.commit(lambda: puts.append(1), read_index=lambda: landed)

    assert puts == ([] if landed else [1])
    assert world.intents() == [(OTHER, False)]
    assert world.log() == [START, COMMIT]


@pytest.mark.parametrize("conditional", [False, True])
def test_m_14_a_crash_between_the_deadlist_and_the_commit(world: World, conditional: bool) -> None:
    """M-14: what is out names what this index does not: with that index it goes on, else it is given up."""
    first = world.begin()
    stored: list[Any] = []

    def dies(phase: str) -> bool:
        if phase == "deadlist":
            stored.append(world.store.state)
        return phase == "commit"

    world.store.dies = dies
    with pytest.raises(Crash):
        first.commit(lambda: None)
    (world.store.state,) = stored  # it ended before the answer of Kafka was stored
    txn = world.resume()
    refuses(txn, CommitBegun, "key", "commit", "discard")
    if conditional:
        txn.delete("bucket", [OLD])
        txn.commit(never, read_index=lambda: True)
    else:
        txn.acknowledge()

    assert world.intents() == [(OLD, False)] * (1 + conditional)
    assert world.log() == [START, COMMIT if conditional else GIVEN_UP]


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("end", ["commit", "acknowledge"])
def test_m_14_a_crash_with_a_commit_under_way(world: World, asked: bool, end: str) -> None:
    """M-14: not asked for, or granted with the answer lost: that commit again, or an acknowledgement."""
    first = world.begin(answer_is_lost=asked)
    world.store.dies = lambda phase: phase == "commit" and not asked
    with pytest.raises(Crash):
        first.commit(lambda: None)
    assert world.status() is (Status.COMMITTED if asked else Status.OPEN)
    txn = world.resume()
    refuses(txn, CommitBegun, "key", "delete", "discard")
    if end == "commit":
        assert txn.commit(never) == txn.commit(never)
    elif asked:
        with pytest.raises(RequestRefused) as caught:
            txn.acknowledge()
        assert caught.value.type == "transaction-committed"
    else:
        txn.acknowledge()

    committed = asked or end == "commit"
    assert world.intents() == [(OLD, False)]
    assert world.log() == [START, COMMIT if committed else GIVEN_UP]
    assert world.status() is (Status.COMMITTED if committed else Status.REJECT_ACKNOWLEDGED)


@pytest.mark.parametrize("asked", [False, True])
def test_m_14_a_crash_with_a_commit_under_way_and_its_state_is_gone(world: World, asked: bool) -> None:
    """M-14: only an acknowledgement, which a commit that was granted refuses."""
    first = world.begin(answer_is_lost=asked)
    world.store.dies = lambda phase: phase == "commit" and not asked
    with pytest.raises(Crash):
        first.commit(lambda: None)
    txn = world.lost()
    refuses(txn, TransactionLost, "key", "delete", "discard", "commit")
    if asked:
        with pytest.raises(RequestRefused) as caught:
            txn.acknowledge()
        assert caught.value.type == "transaction-committed"
    else:
        txn.acknowledge()

    assert world.intents() == [(OLD, False)]
    assert world.log() == [START, COMMIT if asked else GIVEN_UP]


@pytest.mark.parametrize("wakes_up_to", ["discard", "commit", "acknowledge"])
@pytest.mark.parametrize("ended", [False, True])
def test_m_17_a_twin_wakes_up(world: World, wakes_up_to: str, ended: bool) -> None:
    """M-17: resumed meanwhile, and ended or not: its next save fails, nothing of it is sent or asked."""
    twin = world.begin()
    txn = world.resume()
    txn.delete("bucket", [OTHER])
    stored = world.store.state
    if ended:
        txn.commit(lambda: None)
        stored = world.store.state
    refuses(twin, StateNotSaved, wakes_up_to)
    refuses(twin, StateNotSaved, "key", "delete", "discard", "commit", "acknowledge")
    assert world.store.state == stored
    if not ended:
        assert world.status() is Status.OPEN
        txn.commit(lambda: None)

    assert world.intents() == [(OTHER, False)]
    assert world.log() == [START, COMMIT]


def test_m_17_a_twin_wakes_up_with_its_index_put_under_way(world: World) -> None:
    """M-17: the PUT lands, in a transaction that is given up: neither deadlist nor question follow it."""
    twin, puts = world.begin(), []

    def put_index() -> None:
        world.resume().acknowledge()
        puts.append(1)

    with pytest.raises(StateNotSaved):
        twin.commit(put_index)
    refuses(twin, StateNotSaved, "commit", "acknowledge")

    assert puts == [1]
    assert world.intents() == []
    assert world.log() == [START, GIVEN_UP]


def test_m_17_a_twin_wakes_up_with_its_deadlist_under_way(world: World) -> None:
    """M-17: it had saved for the deadlist, which is all that it sends: the question is not asked."""
    twin = world.begin()
    resumed: list[Transaction] = []

    def pauses(phase: str) -> bool:
        if phase == "deadlist":
            resumed.append(world.resume())
        return False

    world.store.dies = pauses
    with pytest.raises(StateNotSaved):
        twin.commit(lambda: None)
    assert world.status() is Status.OPEN
    (txn,) = resumed
    refuses(txn, CommitBegun, "key", "commit", "discard")
    txn.acknowledge()

    assert world.intents() == [(OLD, False)]
    assert world.log() == [START, GIVEN_UP]
