"""What has to hold in every state of transactions, and the search for one in which it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tests.model.search import Found, search
from tests.model.transaction_environment import things
from tests.model.transaction_rules import TransactionRules
from tests.model.transaction_steps import steps
from tests.model.transaction_world import REJECTED, TransactionSetup, TransactionWorld

from sexton.issuer.state.transactions import Status

Property = Callable[[TransactionWorld, TransactionRules], bool]
WHOLE = "what the visible index names is whole"
CEASED = "nothing passes by a rejection while an upload may still come"
ONE_GRANT = "one number, one grant"
TOLD = "what a handle was told of its commit is so"
STABLE = "a verdict once given stays"
OWED = "a committed deadlist is executed"
ONE_OPEN = "what can never be committed is rejected"
GONE = "of what is collected nothing is left"


def explore(
    setup: TransactionSetup, off: str | None = None, properties: Mapping[str, Property] | None = None
) -> Found:
    """Search all states; `off` switches one safeguard off, or one thing that is trusted."""
    rules = TransactionRules(setup, off)
    asked = PROPERTIES if properties is None else properties
    holds = {name: partial(_holds, each, rules) for name, each in asked.items()}
    with rules.in_force():
        return search(setup.start(rules.first), lambda world: steps(world, setup, rules), holds)


def _holds(holds: Property, rules: TransactionRules, world: TransactionWorld) -> bool:
    return holds(world, rules)


def _whole(world: TransactionWorld, rules: TransactionRules) -> bool:
    """The visible index and all that it names; that of the newest, once it may be committed as it is, too."""
    view, setup = rules.view(world.log), rules.setup
    if not all(setup.foreign(number) in world.store for number in setup.numbers):
        return False
    visible = [view.committed]
    saved = world.saved[view.newest] if view.newest < len(world.saved) else None
    if view.statuses[view.newest] is Status.OPEN and saved is not None and saved.under_way == "commit":
        visible.append(view.newest)
    indexes = [world.indexes[number] for number in visible]
    return all(index is not None and index <= world.store for index in indexes)


def _ceased(world: TransactionWorld, rules: TransactionRules) -> bool:
    passed = {
        world.records[offset].transaction
        for offset, passes in world.verdicts
        if passes and world.records[offset].wanted == REJECTED
    }
    writing = {each.transaction for each in world.handles if each.at in ("run", "put")}
    return passed.isdisjoint(writing | {each.transaction for each in world.uploads})


def _one_grant(world: TransactionWorld, rules: TransactionRules) -> bool:
    numbers = [number for _, number in world.answers]
    return len(set(numbers)) == len(numbers)


def _told(world: TransactionWorld, rules: TransactionRules) -> bool:
    statuses = rules.view(world.log).statuses
    return all(statuses[each.transaction] is Status.COMMITTED for each in world.handles if each.at == "done")


def _stable(world: TransactionWorld, rules: TransactionRules) -> bool:
    """Whoever judges the same record now, behind a barrier of his own, decides the same."""
    return all(
        rules.said(world.log, offset, world.records[offset]) == passed for offset, passed in world.verdicts
    )


def _owed(world: TransactionWorld, rules: TransactionRules) -> bool:
    """What a deadlist names passes once its commit is granted; a twin may name it once more, too late."""
    view = rules.view(world.log)
    owed = {
        (record.transaction, record.keys)
        for record in world.records
        if record.owed and view.statuses[record.transaction] is Status.COMMITTED
    }
    covered = {
        (record.transaction, record.keys)
        for offset, record in enumerate(world.records)
        if record.owed and offset < (view.until[record.transaction] or 0)
    }
    return owed <= covered


def _one_open(world: TransactionWorld, rules: TransactionRules) -> bool:
    view = rules.view(world.log)
    return all(number == view.newest for number, each in enumerate(view.statuses) if each is Status.OPEN)


def _gone(world: TransactionWorld, rules: TransactionRules) -> bool:
    collected = [i for i, each in enumerate(rules.view(world.log).statuses) if each is Status.COLLECTED]
    return not any(things(world, rules.setup, number) for number in collected)


PROPERTIES: dict[str, Property] = {
    WHOLE: _whole,
    CEASED: _ceased,
    ONE_GRANT: _one_grant,
    TOLD: _told,
    STABLE: _stable,
    OWED: _owed,
    ONE_OPEN: _one_open,
    GONE: _gone,
}
