"""The steps of writers, collectors, reaper tasks and of the environment around them.

Each function yields a label and the world after it; between any two steps everybody else may take theirs. A
request to the store is one step, and so is what follows from its reply.
"""

from __future__ import annotations

from tests.model import sequenced_rules
from tests.model.rules import replaced
from tests.model.sequenced_rules import Told, Wanted
from tests.model.sequenced_world import (
    CANCELLED,
    DELETED,
    REFUSED,
    Intent,
    SequencedRules,
    SequencedWorld,
    Steps,
    Task,
    Writer,
)

from sexton.producers._sequenced_rules import Boundary

STALE, FALSE_CONFLICT, PAST_VANISHED = "stale success", "false conflict", "past a vanished boundary"
NEWEST_GONE, HELD_GONE, LATE = "the newest gone", "a held file gone", "begun late"
LOWERED, OVERWRITTEN, UNASKED, PAST_FLOOR = "lowered", "overwritten", "raised unasked", "past the floor"


def steps(world: SequencedWorld, rules: SequencedRules) -> Steps:
    """Yield every step that some participant can take."""
    for number, writer in enumerate(world.writers):
        if writer.at != "done":
            yield from _WRITER[writer.at](world, number, rules)
    for number in range(len(world.collectors)):
        yield from collect(world, number, rules)
    for number, task in enumerate(world.tasks):
        # Tasks are alike: of those that have nothing the first one begins.
        if task.at != "take" or task not in world.tasks[:number]:
            yield from _TASK[task.at](world, number, rules)
    yield from environment(world, rules)


# --- a writer -----------------------------------------------------------------------------------------------


def open_(world: SequencedWorld, number: int, rules: SequencedRules) -> Steps:
    """List, and prepare the id above the newest file's."""
    id = world.newest + 1
    yield f"open {world.writers[number].name} {id}", world.writer(number, at=_first(rules), id=id)


def put(world: SequencedWorld, number: int, rules: SequencedRules) -> Steps:
    """Create the file if there is none of its id; the answer comes, or is lost, or the put lands later."""
    writer = world.writers[number]
    free = not world.files[writer.id]
    landed = _landed(world, writer.id, writer.name) if free else world
    if free:
        yield f"put {writer.name} {writer.id}", _created(landed, number, rules)
    else:
        yield f"put_refused {writer.name} {writer.id}", _refused(world, number, rules)
    if not world.budget.unknown:
        return
    landed = landed.spend("unknown")
    if free:
        yield f"put_unheard {writer.name} {writer.id}", _unknown(landed, number, rules)
        # The client tries again by itself, and finds what its first request has created.
        yield f"put_twice {writer.name} {writer.id}", _refused(landed, number, rules)
    flown = world.spend("unknown")._replace(flights=world.flights | {(writer.id, writer.name)})
    yield f"put_in_flight {writer.name} {writer.id}", _unknown(flown, number, rules)


def read_back(world: SequencedWorld, number: int, rules: SequencedRules) -> Steps:
    """Read the file whose put is of unknown fate, or was refused."""
    writer = world.writers[number]
    nonce = world.files[writer.id]
    if not nonce:
        yield f"read_nothing {writer.name} {writer.id}", world.writer(number, at="missing")
        return
    said = sequenced_rules.found(nonce, writer.name)
    after = _created(world, number, rules) if said is Told.CHECK else _told(world, number, said, rules)
    yield f"read_back {writer.name} {writer.id}", after


def missing(world: SequencedWorld, number: int, rules: SequencedRules) -> Steps:
    """Read the boundary where no file was read back."""
    writer = world.writers[number]
    seen = sequenced_rules.seen(writer.known, world.boundary)
    said = sequenced_rules.missing(writer.id, seen)
    if said is Told.PUT_AGAIN:
        yield f"put_again {writer.name} {writer.id}", world.writer(number, at="put", known=seen)
    else:
        yield f"missing {writer.name} {writer.id} {said.value}", _told(world, number, said, rules)


def check(world: SequencedWorld, number: int, rules: SequencedRules) -> Steps:
    """Read the boundary, and be told by it."""
    writer = world.writers[number]
    seen = sequenced_rules.seen(writer.known, world.boundary)
    said = sequenced_rules.told(writer.id, seen)
    after = world
    if isinstance(seen, Boundary):
        below = world.stands is None or world.stands < writer.known.id
        gone = world.boundary is None and writer.known != Boundary()
        after = world.writer(number, known=seen).wrong(PAST_VANISHED, below or gone)
    if said is Told.SUCCESS and not rules.on("check-after"):
        after = after.writer(number, at="put")
    else:
        after = _told(after, number, said, rules)
    yield f"check {writer.name} {writer.id} {said.value}", after


def _first(rules: SequencedRules) -> str:
    return "put" if rules.on("check-after") else "check"


def _created(world: SequencedWorld, number: int, rules: SequencedRules) -> SequencedWorld:
    if rules.on("check-after"):
        return world.writer(number, at="check")
    return _told(world, number, Told.SUCCESS, rules)


def _refused(world: SequencedWorld, number: int, rules: SequencedRules) -> SequencedWorld:
    if rules.on("read-back"):
        return world.writer(number, at="read_back")
    return _told(world, number, Told.CONFLICT, rules)


def _unknown(world: SequencedWorld, number: int, rules: SequencedRules) -> SequencedWorld:
    if rules.on("unknown-put"):
        return world.writer(number, at="read_back")
    return _told(world, number, Told.SUCCESS, rules)


def _told(world: SequencedWorld, number: int, said: Told, rules: SequencedRules) -> SequencedWorld:
    """Tell a writer: after a success it goes on with the next id, else another one has to open."""
    writer, truth = world.writers[number], world.truth
    first = truth.first[writer.id] == writer.name
    if said is Told.SUCCESS and writer.left > 1:
        after = world.writer(number, at=_first(rules), id=writer.id + 1, left=writer.left - 1)
    else:
        done = Writer(writer.name, 0, "done", told=said)
        after = world._replace(writers=replaced(world.writers, number, done))
    if said is not Told.SUCCESS:
        stands = first and writer.id not in truth.deleted and writer.id > (world.stands or 0)
        return after.wrong(FALSE_CONFLICT, said is Told.CONFLICT and stands)
    return after.wrong(STALE, not first or (writer.id, writer.name) in truth.again)


def _landed(world: SequencedWorld, id: int, nonce: str) -> SequencedWorld:
    truth = world.truth
    if id in truth.deleted:
        truth = truth._replace(again=truth.again | {(id, nonce)})
    if not truth.first[id]:
        truth = truth._replace(first=replaced(truth.first, id, nonce))
    return world._replace(files=replaced(world.files, id, nonce), truth=truth)


_WRITER = {"open": open_, "put": put, "read_back": read_back, "missing": missing, "check": check}


# --- a collector --------------------------------------------------------------------------------------------


def collect(world: SequencedWorld, number: int, rules: SequencedRules) -> Steps:
    """List; then read checkpoints and the boundary, and ask for what the plan says, once."""
    listed = world.collectors[number]
    if not listed:
        if world.budget.plans and () not in world.collectors[:number]:
            collectors = replaced(world.collectors, number, world.listed)
            yield f"list {number}", world.spend("plans")._replace(collectors=collectors)
        return
    after = world._replace(collectors=replaced(world.collectors, number, ()))
    plan = sequenced_rules.plan(listed, world.held, world.boundary)
    if plan is None:
        yield f"plan_nothing {number}", after
        return
    lasts = rules.setup.lasts
    expires = None if lasts is None else world.now + lasts
    held = world.held & set(plan.ids)
    intent = Intent(plan.ids, plan.id, plan.floor, expires=expires, held=held)
    if intent not in world.intents:
        after = after._replace(intents=(*world.intents, intent), outcomes=(*world.outcomes, ""))
    yield f"plan {number} {plan.ids}", after


# --- a task of the reaper -----------------------------------------------------------------------------------


def take(world: SequencedWorld, number: int, rules: SequencedRules) -> Steps:
    """Take the intents that are not done, and judge all of their guards but the boundary.

    Then list: refused is what names files above its own id, or is not shown to be behind the newest file.
    """
    undone = [each for each, outcome in enumerate(world.outcomes) if not outcome]
    passing = [each for each in undone if _passes_others(world, each, rules)]
    batch = passing if rules.on("judged-last") else undone
    if not batch:
        return
    refused = tuple(each for each in batch if not _may_raise(world, world.intents[each]))
    kept = tuple(each for each in batch if each not in refused)
    at = ("read" if rules.on("advance-first") else "begin") if kept else "settle"
    yield f"take {number} {batch}", world.task(number, at=at, batch=kept, going=kept, refused=refused)


def read(world: SequencedWorld, number: int, rules: SequencedRules) -> Steps:
    """Read the boundary, and leave out who knows that it was higher."""
    task = world.tasks[number]
    advance = _advance(world, task, world.boundary)
    going = tuple(
        each
        for place, each in enumerate(task.batch)
        if place not in advance.deferred and _passes_others(world, each, rules)
    )
    if advance.value is not None:
        after = world.task(number, at="write", going=going, text=world.boundary)
    else:
        after = world.task(number, at=_raised(going, rules), going=going)
    boundary = world.stands
    below = any(boundary is None or boundary < world.intents[each].floor for each in going)
    yield f"read {number}", after.wrong(PAST_FLOOR, below)


def write(world: SequencedWorld, number: int, rules: SequencedRules) -> Steps:
    """Write the boundary where it is still the one that was read; else read again.

    Its version is that of its content, as an ETag is.
    """
    task = world.tasks[number]
    if world.boundary != task.text and rules.on("never-lower"):
        yield f"lose_race {number}", world.task(number, at="read", text=None)
        return
    value = _advance(world, task, task.text).value
    assert value is not None
    boundary = world.stands
    asked = [world.intents[each] for each in task.batch if _passes_others(world, each, rules)]
    after = world._replace(boundary=str(value))
    after = after.wrong(LOWERED, boundary is not None and value < boundary)
    after = after.wrong(OVERWRITTEN, boundary is None)
    after = after.wrong(UNASKED, all(each.id < value for each in asked))
    yield f"raise {number} {value}", after.task(number, at=_raised(task.going, rules), text=None)
    if world.budget.unknown:
        yield f"raise_unheard {number} {value}", after.spend("unknown").task(number, at="read", text=None)


def begin(world: SequencedWorld, number: int, rules: SequencedRules) -> Steps:
    """Ask the gate of each intent before its first request; what is stopped is cancelled."""
    task = world.tasks[number]
    intents = [(each, world.intents[each]) for each in task.going]
    going = tuple(each for each, intent in intents if rules.begins(intent.expires, world.now))
    stopped = tuple(each for each in task.going if each not in going)
    left = sorted({id for each in going for id in world.intents[each].ids})
    late = any(each in going and _expired(intent, world.now) for each, intent in intents)
    at = "delete" if left else "settle"
    batch = () if rules.on("advance-first") else task.batch
    after = world.task(number, at=at, batch=batch, going=going, stopped=stopped, left=tuple(left))
    yield f"begin {number} {left}", after.wrong(LATE, late)


def delete(world: SequencedWorld, number: int, rules: SequencedRules) -> Steps:
    """Delete the next file: it goes at the store, if it is there."""
    task = world.tasks[number]
    id, left = task.left[0], task.left[1:]
    after = _without(world, id, any(id in world.intents[each].held for each in task.going))
    at = "delete" if left else "settle" if rules.on("advance-first") else "read"
    yield f"delete {number} {id}", after.task(number, at=at, left=left)


def settle(world: SequencedWorld, number: int, rules: SequencedRules) -> Steps:
    """Write the outcomes: what has one is not read again, but by who has taken it already."""
    task, outcomes = world.tasks[number], world.outcomes
    for outcome, intents in ((DELETED, task.going), (REFUSED, task.refused), (CANCELLED, task.stopped)):
        for each in intents:
            if outcomes[each] != DELETED:
                outcomes = replaced(outcomes, each, outcome)
    after = world._replace(outcomes=outcomes, tasks=replaced(world.tasks, number, Task()))
    yield f"settle {number}", after


def _passes_others(world: SequencedWorld, number: int, rules: SequencedRules) -> bool:
    return rules.passes_others(world.intents[number].not_before, world.now)


def _may_raise(world: SequencedWorld, intent: Intent) -> bool:
    own = sequenced_rules.named(intent.ids, intent.id)
    return own and sequenced_rules.behind_newest(intent.id, world.listed)


def _advance(world: SequencedWorld, task: Task, text: str | None) -> sequenced_rules.Advance:
    wanted = [Wanted(world.intents[each].id, world.intents[each].floor) for each in task.batch]
    return sequenced_rules.advance(text, tuple(wanted))


def _raised(going: tuple[int, ...], rules: SequencedRules) -> str:
    """Return the step after the boundary is high enough for those that go on."""
    if not rules.on("advance-first"):
        return "settle"
    return "begin" if going else "settle"


def _expired(intent: Intent, now: int) -> bool:
    return intent.expires is not None and now > intent.expires


def _without(world: SequencedWorld, id: int, held: bool) -> SequencedWorld:
    if not world.files[id]:
        return world
    truth = world.truth._replace(deleted=world.truth.deleted | {id})
    after = world._replace(files=replaced(world.files, id, ""), truth=truth)
    return after.wrong(NEWEST_GONE, id == world.newest).wrong(HELD_GONE, held)


_TASK = {
    "take": take,
    "read": read,
    "write": write,
    "begin": begin,
    "delete": delete,
    "settle": settle,
}


# --- the environment ----------------------------------------------------------------------------------------


def environment(world: SequencedWorld, rules: SequencedRules) -> Steps:
    """Yield what clocks, networks, machines and other people may do at any moment."""
    for id, nonce in sorted(world.flights):
        after = world if world.files[id] else _landed(world, id, nonce)
        yield f"land {nonce} {id}", after._replace(flights=world.flights - {(id, nonce)})
    if world.budget.crashes:
        for number, task in enumerate(world.tasks):
            if task.at != "take":
                tasks = replaced(world.tasks, number, Task())
                yield f"crash {number}", world.spend("crashes")._replace(tasks=tasks)
    if world.budget.ticks:
        yield "tick", world.spend("ticks")._replace(now=world.now + 1)
    if world.budget.checkpoints:
        for id in world.listed:
            yield f"checkpoint {id}", world.spend("checkpoints")._replace(held=world.held | {id})
    if world.budget.set_backs and world.boundary is not None:
        for text in rules.setup.texts:
            yield f"set_back {text}", world.spend("set_backs")._replace(boundary=text)
