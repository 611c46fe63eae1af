"""M-14, M-17: transactions whose process ends at any step, or is paused while another one resumes them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.support.resumed_transactions import INDEX, OLD, PREFIX, Crash, Steps, World

from sexton.issuer.state.transactions import Status
from sexton.producers import (
    HandleUnusable,
    IndexFateUnknown,
    IndexNotWritten,
    IssuerUnavailable,
    StateNotSaved,
    TransactionLost,
    UsageError,
)
from sexton.producers.testing import FakeIssuer, FakeSexton

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
