"""The steps of handles and their calls to the issuer; `transaction_environment` has all others.

Each function yields what may happen next in one world: a label and the world after it. What a handle may do
follows the SDK: index, then deadlist, then nothing but the commit, its state saved before each; `save` saves
what the commit needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.model.rules import replaced
from tests.model.transaction_environment import collector, environment, reaper
from tests.model.transaction_rules import Refused, TransactionRules
from tests.model.transaction_world import (
    COMMITTED,
    ENDED,
    PROMISED,
    Handle,
    Record,
    Saved,
    Steps,
    TransactionSetup,
    TransactionWorld,
    Upload,
)

from sexton.issuer.operations.base import Done
from sexton.issuer.state.transactions import Status

Change = Mapping[str, Any]
DOOMED = (Status.REJECT_PENDING, Status.REJECT_ACKNOWLEDGED, Status.COLLECTED)


def steps(world: TransactionWorld, setup: TransactionSetup, rules: TransactionRules) -> Steps:
    """Yield every step that some participant can take."""
    handles = list(enumerate(world.handles))
    for number, handle in handles:
        if _unseen(world, handle, setup, rules):
            yield from _HANDLE[handle.at](world, number, rules)
            return
    for number, handle in handles:
        if handle.event is not None:
            yield from append(world, number, rules)
        elif handle.at in _HANDLE and not _waits(world, number):
            yield from _HANDLE[handle.at](world, number, rules)
    yield from collector(world, rules)
    yield from reaper(world, rules)
    yield from environment(world, rules)


def _waits(world: TransactionWorld, number: int) -> bool:
    """Return whether a handle begins later: a node has one transaction at a time, and nodes are alike."""
    handle, before = world.handles[number], world.handles[:number]
    if handle != Handle(handle.node, handle.request):
        return False
    own = [each for each in before if each.node == handle.node]
    if own:
        return own[-1].at not in ENDED
    return any(each == Handle(each.node, each.request) for each in before)


def _unseen(
    world: TransactionWorld, handle: Handle, setup: TransactionSetup, rules: TransactionRules
) -> bool:
    """Return whether nobody can see or stop the handle's next step: it need not be tried in every order."""
    budget = world.budget
    others = len(world.handles) > len(setup.nodes) or budget.unknown or budget.crashes or budget.resumes
    if others or handle.event is not None or handle.at not in _HANDLE or handle.at == "start":
        return False
    match handle.at:
        case "put" | "deadlist" | "save" | "give_up":
            return True
        case "run":
            return _is_to_write(handle, setup)
        case "acknowledge":
            return not (budget.listings or budget.strays or budget.losses)
    doomed = rules.view(world.log).statuses[handle.transaction] in DOOMED
    return doomed and handle.at == "ask" and rules.on("newest-commits") and rules.on("commit-alone")


# --- calls to the issuer ------------------------------------------------------------------------------------


def start(world: TransactionWorld, number: int, rules: TransactionRules) -> Steps:
    """Ask for the next transaction, or hear which one it is: then read the index that it builds on."""
    handle = world.handles[number]
    transaction = rules.known(world.log, handle.request)
    if transaction is None:
        made = rules.start(world.log, handle, world.stable_end)
        yield from _made(world, number, made, "ask_start")
        return
    base = rules.base(world.log, transaction)
    names = world.indexes[base] or frozenset()
    after = world.put(number, at="run", transaction=transaction, names=names)
    saved = replaced(world.saved, transaction, Saved(base=base))
    answers = world.answers | {(handle.request, transaction)}
    yield f"started {handle.request} {transaction} on {base}", after._replace(saved=saved, answers=answers)


def append(world: TransactionWorld, number: int, rules: TransactionRules) -> Steps:
    """Append the event and hear whether it counts; or hear nothing, and it lands some time after."""
    handle = world.handles[number]
    assert handle.event is not None
    after = world.put(number, event=None)
    log = rules.append(world.log, handle.event)
    if handle.at == "ask" and rules.known(log, f"{handle.request}-commit") is not None:
        yield f"append_commit of {handle.request}: granted", after.put(number, at="done")._replace(log=log)
    else:
        yield (
            f"append_{'commit' if handle.at == 'ask' else 'start'} of {handle.request}",
            after._replace(log=log),
        )
    yield from _in_flight(after, handle.event, handle.request)


def _in_flight(world: TransactionWorld, event: int, request: str) -> Steps:
    if world.budget.losses:
        flight = tuple(sorted([*world.flight, event]))
        yield f"append_in_flight of {request}", world._replace(flight=flight).spend("losses")


def ask(world: TransactionWorld, number: int, rules: TransactionRules) -> Steps:
    """Ask for the commit, with the end offsets as they are now; asked again, the answer is the same."""
    handle = world.handles[number]
    if rules.known(world.log, f"{handle.request}-commit") is not None:
        yield f"granted {handle.request}", world.put(number, at="done")
        return
    made = rules.commit(world.log, handle, world.stable_end)
    if isinstance(made, Done):
        yield f"granted {handle.request}", world.put(number, at="done")
    elif isinstance(made, Refused):
        yield f"refused {handle.request} {made.reason}", world.put(number, at="give_up")
    else:
        yield from _made(world, number, made, "ask_commit")
    if not rules.on("commit-alone"):
        yield f"write_on {handle.request}", world.put(number, at="run")
    yield from _give_up(world, number)


def acknowledge(world: TransactionWorld, number: int, rules: TransactionRules) -> Steps:
    """Say that every upload in its name has ceased: those of earlier processes of the node, too."""
    handle = world.handles[number]
    if rules.on("uploads-ceased") and _may_come(world, number):
        return
    made = rules.acknowledge(world.log, handle, world.stable_end)
    after = world.put(number, at="acknowledged", names=frozenset(), drops=False, ends=0)
    if isinstance(made, int):
        yield f"acknowledge {handle.transaction}", after._replace(log=rules.append(world.log, made))
        yield from _in_flight(world, made, handle.request)
    else:
        yield f"acknowledged {handle.transaction}", after


def _made(world: TransactionWorld, number: int, made: object, label: str) -> Steps:
    if isinstance(made, int):
        yield f"{label} of {world.handles[number].request}", world.put(number, event=made)


def _may_come(world: TransactionWorld, number: int) -> bool:
    """Return whether an upload in the name of the handle's transaction is under way, or may be begun."""
    transaction = world.handles[number].transaction
    others = (each for i, each in enumerate(world.handles) if i != number)
    return any(upload.transaction == transaction for upload in world.uploads) or any(
        each.transaction == transaction and each.at not in (*ENDED, "acknowledge") for each in others
    )


# --- a handle -----------------------------------------------------------------------------------------------


def run(world: TransactionWorld, number: int, rules: TransactionRules) -> Steps:
    """Write an own object, discard it, or begin to commit: an index that keeps `y` or drops it."""
    handle, setup = world.handles[number], rules.setup
    key = setup.key("x", handle.transaction)
    if _is_to_write(handle, setup):
        after = world.put(number, names=handle.names | {key})
        yield f"write {key}", after._replace(store=world.store | {key})
        if world.budget.unknown:
            yield f"write_unknown {key}", _uploading(world, Upload(handle.transaction, key))
        yield from _give_up(world, number)
        return
    if world.budget.discards and key in handle.names:
        then: Change = {"at": "discard", "names": handle.names - {key}, "discarded": True}
        left, kept = world.spend("discards"), rules.on("discards-saved")
        yield _save(left, number, rules, "save_discard", then, discarded=kept)
    for drops in sorted({each and setup.y in handle.names for each in setup.drops}):
        label = f"save_put_{'without' if drops else 'with'}_y"
        yield _save(world, number, rules, label, {"at": "put", "drops": drops}, under_way="put")
    yield from _give_up(world, number)


def _is_to_write(handle: Handle, setup: TransactionSetup) -> bool:
    key = setup.key("x", handle.transaction)
    return setup.writes and key not in handle.names and not handle.discarded


def discard(world: TransactionWorld, number: int, rules: TransactionRules) -> Steps:
    """Give an own object up that no index names."""
    handle = world.handles[number]
    record = Record(handle.transaction, PROMISED, (rules.setup.key("x", handle.transaction),))
    yield f"emit_discard of {handle.request}", world.put(number, at="run").emit(record)


def put(world: TransactionWorld, number: int, rules: TransactionRules) -> Steps:
    """Put the index and hear that it is there, or hear nothing; one that is never replaced is read back."""
    handle, setup = world.handles[number], rules.setup
    found = world.indexes[handle.transaction]
    if setup.conditional and found is not None:
        drops = setup.y not in found and setup.y in handle.names
        following = "deadlist" if drops else "save"
        yield f"read_back of {handle.request}", world.put(number, at=following, drops=drops)
        return
    names = handle.names - {setup.y} if handle.drops else handle.names
    following = "deadlist" if handle.drops else "save"
    indexes = replaced(world.indexes, handle.transaction, names)
    yield f"put_index of {handle.request}", world.put(number, at=following)._replace(indexes=indexes)
    if world.budget.unknown:
        # Nobody knows what it will name: what was put may land after all that follows.
        at = "put" if setup.conditional else "give_up" if rules.on("index-outcome") else following
        upload = Upload(handle.transaction, setup.key("index", handle.transaction), names)
        yield f"put_unknown of {handle.request}", _uploading(world, upload).put(number, at=at)


def deadlist(world: TransactionWorld, number: int, rules: TransactionRules) -> Steps:
    """Save that the deadlist may be out: from here on nothing but the commit follows."""
    yield _save(world, number, rules, "save_deadlist", {"at": "emit"}, under_way="deadlist")


def emit(world: TransactionWorld, number: int, rules: TransactionRules) -> Steps:
    """Emit the deadlist and hear that Kafka has it."""
    handle = world.handles[number]
    record = Record(handle.transaction, COMMITTED, (rules.setup.y,), owed=True)
    after = world.put(number, at="save", ends=len(world.records) + 1)
    yield f"emit_deadlist of {handle.request} at {len(world.records)}", after.emit(record)


def save(world: TransactionWorld, number: int, rules: TransactionRules) -> Steps:
    """Save that the commit is under way, with the offset behind the deadlist."""
    ends = world.handles[number].ends if rules.on("offsets-saved") else 0
    yield _save(world, number, rules, "save_commit", {"at": "ask"}, under_way="commit", ends=ends)


def give_up(world: TransactionWorld, number: int, rules: TransactionRules) -> Steps:
    """Save that it is given up: who resumes it acknowledges, too."""
    under_way = {"under_way": "acknowledge"} if rules.on("give-up-saved") else {}
    yield _save(world, number, rules, "save_give_up", {"at": "acknowledge"}, **under_way)


def _give_up(world: TransactionWorld, number: int) -> Steps:
    if world.budget.give_ups:
        after = world.spend("give_ups").put(number, at="give_up")
        yield f"give_up {world.handles[number].request}", after


def _save(
    world: TransactionWorld, number: int, rules: TransactionRules, label: str, then: Change, **changes: Any
) -> tuple[str, TransactionWorld]:
    """Save the state, and go on as `then` says; where another one has saved since, nothing follows."""
    handle = world.handles[number]
    saved = world.saved[handle.transaction]
    assert saved is not None
    if saved.version != handle.version and rules.on("compare-and-set"):
        return f"save_refused {handle.request}", world.put(number, at="dead")
    states = replaced(world.saved, handle.transaction, saved._replace(**changes))
    return f"{label} of {handle.request}", world._replace(saved=states).put(number, **then)


def _uploading(world: TransactionWorld, upload: Upload) -> TransactionWorld:
    uploads = tuple(sorted([*world.uploads, upload], key=repr))
    return world._replace(uploads=uploads).spend("unknown")


_HANDLE = {
    each.__name__: each
    for each in (start, run, discard, put, deadlist, emit, save, ask, give_up, acknowledge)
}
