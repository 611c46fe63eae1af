"""The steps around handles: collector, reaper, and an environment that does its worst."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.rules import replaced
from tests.model.transaction_rules import TransactionRules
from tests.model.transaction_world import (
    COMMITTED,
    ENDED,
    FOREIGN,
    REJECTED,
    Handle,
    Record,
    Steps,
    TransactionSetup,
    TransactionWorld,
    Upload,
)

from sexton.issuer.state.transactions import Status

# --- collector and reaper -----------------------------------------------------------------------------------


def collector(world: TransactionWorld, rules: TransactionRules) -> Steps:
    """List what carries a rejected transaction's number: ask for its deletion, or say that it is gone."""
    number = world.nothing_of
    if number:
        made = rules.collect(world.log, number, world.stable_end)
        if isinstance(made, int):
            after = world._replace(log=rules.append(world.log, made), nothing_of=0)
            yield f"collected {number}", after
        return
    if not world.budget.listings:
        return
    view = rules.view(world.log)
    for number in rules.setup.numbers:
        late = view.statuses[number] is Status.REJECT_ACKNOWLEDGED
        if not late and (rules.on("listed-afterwards") or view.statuses[number] is not Status.REJECT_PENDING):
            continue
        if not things(world, rules.setup, number):
            yield f"list {number}: nothing", world.spend("listings")._replace(nothing_of=number)
        elif late:
            record = rules.setup.rejection(number)
            if record not in world.records:
                yield f"emit_rejection {number}", world.spend("listings").emit(record)


def things(world: TransactionWorld, setup: TransactionSetup, number: int) -> list[str]:
    """Return what there is in the store with this number."""
    own = [setup.key(name, number) for name in ("x", "y")]
    found = [key for key in own if key in world.store]
    return found if world.indexes[number] is None else [*found, setup.key("index", number)]


def reaper(world: TransactionWorld, rules: TransactionRules) -> Steps:
    """Make a barrier, judge what lies below it, and execute what has passed: late, and again."""
    end, decided = world.stable_end, {offset for offset, _ in world.verdicts}
    waiting = [i for i in range(end) if i not in decided and world.records[i].wanted != FOREIGN]
    if waiting and world.budget.barriers:
        # What is judged some time after its barrier is judged as if behind a later one: one step for both.
        log = rules.append(world.log, rules.barrier(end))
        judged = ((i, rules.said(log, i, world.records[i])) for i in waiting)
        new = frozenset((i, said) for i, said in judged if said is not None)
        words = ", ".join(f"{i} {'passes' if said else 'never'}" for i, said in sorted(new))
        if new:
            after = world.spend("barriers")._replace(log=log, verdicts=world.verdicts | new)
            yield f"judge {words}", after
    for offset, passed in sorted(world.verdicts):
        if passed and (after := _deleted(world, rules, world.records[offset])) != world:
            yield f"execute {offset}", after


def _deleted(world: TransactionWorld, rules: TransactionRules, record: Record) -> TransactionWorld:
    def goes(key: str) -> bool:
        return rules.deletes(record, key)

    store = frozenset(key for key in world.store if not goes(key))
    indexes = tuple(
        None if names is None or goes(rules.setup.key("index", i)) else names
        for i, names in enumerate(world.indexes)
    )
    return world._replace(store=store, indexes=indexes)


# --- the environment ----------------------------------------------------------------------------------------


def environment(world: TransactionWorld, rules: TransactionRules) -> Steps:
    """Yield what network, machines, other clients and careless services may do at any moment."""
    for event in dict.fromkeys(world.flight):
        flight = list(world.flight)
        flight.remove(event)
        after = world._replace(log=rules.append(world.log, event), flight=tuple(flight))
        yield f"land {rules.text(event)}", after
    for upload in dict.fromkeys(world.uploads):
        uploads = list(world.uploads)
        uploads.remove(upload)
        over = world._replace(uploads=tuple(uploads))
        yield f"lost_upload {upload.key}", over
        yield f"late_upload {upload.key}", _landed(over, upload, rules.setup)
    yield from _machines(world, rules)
    yield from _foreign(world)
    if world.budget.strays:
        for record in _strays(world, rules):
            keys = " ".join(record.keys)
            yield f"stray {record.transaction} {record.wanted} {keys}", world.spend("strays").emit(record)


def _machines(world: TransactionWorld, rules: TransactionRules) -> Steps:
    """A process dies, or another one takes its transaction over, whether it is dead or not."""
    for number, handle in enumerate(world.handles):
        if world.budget.crashes and handle.transaction and handle.at not in ENDED:
            yield f"crash {handle.request}", world.spend("crashes").put(number, at="dead", event=None)
    if not world.budget.resumes:
        return
    for transaction in filter(world.saved.__getitem__, rules.setup.numbers):
        yield resume(world, transaction, rules)


def _foreign(world: TransactionWorld) -> Steps:
    """Another client's Kafka transaction holds the last stable offset back."""
    held = Record(0, FOREIGN, stable=False)
    if world.budget.holds:
        yield "hold", world.spend("holds").emit(held)
    if held in world.records:
        records = replaced(world.records, world.records.index(held), held._replace(stable=True))
        yield "release", world._replace(records=records)


def _strays(world: TransactionWorld, rules: TransactionRules) -> Iterator[Record]:
    """Yield intents that no rule of SDK or collector would let out: too early, too late, of foreign keys."""
    statuses, setup = rules.view(world.log).statuses, rules.setup
    for number in setup.numbers:
        index, status = world.indexes[number], statuses[number]
        if status not in (Status.NEVER_STARTED, Status.COMMITTED):
            yield setup.rejection(number)
            yield Record(number, REJECTED, (setup.y,))
            yield Record(number, REJECTED, (setup.foreign(number),))
        asked = any(
            each.transaction == number and each.at == "ask" and each.event is not None
            for each in world.handles
        )
        if asked or status is Status.COMMITTED or not rules.on("deadlist-right"):
            yield from (Record(number, COMMITTED, (key,)) for key in sorted(index or ()))


def resume(
    world: TransactionWorld, transaction: int, rules: TransactionRules
) -> tuple[str, TransactionWorld]:
    """Start a process that takes a transaction over from its state; whoever had it may only be paused."""
    earlier = [each for each in world.handles if each.transaction == transaction]
    saved = world.saved[transaction]
    assert saved is not None
    only = "put" if rules.setup.conditional else "give_up" if rules.on("put-under-way") else "run"
    at = {"": "run", "commit": "ask", "acknowledge": "acknowledge"}.get(saved.under_way, only)
    names, key = world.indexes[saved.base] or frozenset(), rules.setup.key("x", transaction)
    if key in world.store and not saved.discarded:
        names |= {key}
    again = Handle(
        earlier[0].node,
        earlier[0].request + len(earlier) * "'",
        at,
        transaction,
        names=names,
        discarded=saved.discarded,
        ends=saved.ends,
        version=saved.version + rules.on("compare-and-set"),
    )
    states = replaced(world.saved, transaction, saved._replace(version=again.version))
    after = world.spend("resumes")._replace(handles=(*world.handles, again), saved=states)
    return f"resume {again.request} to {at}", after


def _landed(world: TransactionWorld, upload: Upload, setup: TransactionSetup) -> TransactionWorld:
    if upload.names is None:
        return world._replace(store=world.store | {upload.key})
    if setup.conditional and world.indexes[upload.transaction] is not None:
        return world
    return world._replace(indexes=replaced(world.indexes, upload.transaction, upload.names))
