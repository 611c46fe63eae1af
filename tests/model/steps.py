"""The steps of the protocol, named as in the code, and the steps of an environment that does its worst.

Each function yields what may happen next in one world: a label and the world after it. Nothing is shared
between processes but what the world holds; between any two steps everybody else may take theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.model.rules import replaced
from tests.model.world import TENANT, Call, Event, Presence, Reaper, Record, Redis, Rules, Setup, World

from sexton.issuer.operations import issuing
from sexton.issuer.redis.projection import MAX_AHEAD
from sexton.schemas.events import IssueOperation

Steps = Iterator[tuple[str, World]]


def steps(world: World, setup: Setup, rules: Rules) -> Steps:
    """Yield every step that some participant can take."""
    for call in dict.fromkeys(world.calls):
        yield from _ISSUE[call.at](world, call, rules)
    yield from handle_steps(world, setup, rules)
    yield from _REAP[world.reaper.at](world, rules)
    yield from environment(world, rules)


# --- the issuer ---------------------------------------------------------------------------------------------


def read_ends(world: World, call: Call, rules: Rules) -> Steps:
    """Read the end offsets, and the log to its end."""
    ends = _ends(world, rules)
    if ends is None:
        return
    if rules.on("ends-before-append"):
        after = _go(world, call, at="propose", ends=ends, floor=len(world.log))
        yield _say(world, call, "read_ends", ends), after
        return
    # Too late: the offsets are filled in when everybody can see the event already.
    log = replaced(world.log, call.offset, world.log[call.offset]._replace(ends=ends))
    after = _go(world, call, at="read_back", ends=ends)
    yield _say(world, call, "read_ends", ends), after._replace(log=log)


def propose(world: World, call: Call, rules: Rules) -> Steps:
    """Ask the pure rule what the call needs next, with any fold from `floor` on; then ask Redis."""
    for length in range(call.floor, len(world.log) + 1):
        state = rules.fold(world.log[:length])
        handle = world.handles[call.handle]
        tenants = (TENANT,) if handle.operation == "attach" else None
        operation = IssueOperation(handle.operation)
        asked = issuing.Call(handle.request, handle.node, operation, handle.node, tenants)
        step = issuing.next_step(state, asked)
        if isinstance(step, issuing.Granted):
            generation = step.generations.get(TENANT, 0)
            yield _say(world, call, "granted"), _go(world, call, at="answer", generation=generation)
            continue
        yield _from_redis(world, call, rules, state.newest(TENANT) or 0)


def _from_redis(world: World, call: Call, rules: Rules, newest: int) -> tuple[str, World]:
    if world.redis.newest != newest:
        # The witness catches up with the log's end and sets Redis to it; then the call proposes again.
        settled = Redis(rules.fold(world.log).newest(TENANT) or 0, 0)
        after = _go(world, call, floor=len(world.log))._replace(redis=settled)
        return _say(world, call, "agree"), after
    proposed = world.redis.proposed
    base = proposed if newest < proposed <= newest + MAX_AHEAD else newest
    after = _go(world, call, at="append", supersedes=base, generation=base + 1)
    return _say(world, call, "propose", base + 1), after._replace(redis=Redis(newest, base + 1))


def append(world: World, call: Call, rules: Rules) -> Steps:
    """Append the event: now, or some time after the caller gave up."""
    handle = world.handles[call.handle]
    ends = call.ends if rules.on("ends-before-append") else 0
    event = Event(handle.request, handle.operation, handle.node, call.supersedes, call.generation, ends)
    following = "read_back" if rules.on("ends-before-append") else "read_ends"
    if not rules.on("read-back"):
        following = "answer"
    after = _go(world, call, at=following, offset=len(world.log))
    yield _say(world, call, "append", call.generation), after._replace(log=(*world.log, event))
    if world.budget.losses:
        budget = world.budget._replace(losses=world.budget.losses - 1)
        late = _end(world, call)._replace(flight=tuple(sorted([*world.flight, event])), budget=budget)
        yield _say(world, call, "append_in_flight", call.generation), late


def read_back(world: World, call: Call, rules: Rules) -> Steps:
    """Read the log up to one's own event: only that says whether the number was issued."""
    for length in range(call.offset + 1, len(world.log) + 1):
        request = rules.fold(world.log[:length]).request(world.handles[call.handle].request)
        valid = request is not None and request.offsets.get(0) == call.offset
        at = "project" if valid else "withdraw"
        yield (
            _say(world, call, "read_back", "valid" if valid else "void"),
            _go(world, call, at=at, floor=length),
        )


def project(world: World, call: Call, rules: Rules) -> Steps:
    """Bring Redis up to the fold, never backwards, and go round: the state now holds the answer."""
    newest = rules.fold(world.log[: call.floor]).newest(TENANT) or 0
    redis = world.redis
    if redis.newest < newest:
        redis = Redis(newest, redis.proposed if redis.proposed > newest else 0)
    yield _say(world, call, "project"), _again(world, call, rules)._replace(redis=redis)


def withdraw(world: World, call: Call, rules: Rules) -> Steps:
    """Forget the proposal of a void event and set Redis to the log; then propose again."""
    newest = rules.fold(world.log[: call.floor]).newest(TENANT) or 0
    redis = Redis(max(world.redis.newest, newest), 0)
    yield _say(world, call, "withdraw"), _again(world, call, rules)._replace(redis=redis)


def answer(world: World, call: Call, rules: Rules) -> Steps:
    """Answer; a node that has an answer already drops a later one."""
    handle = world.handles[call.handle]
    after = _end(world, call)
    if call.generation:
        after = after._replace(answers=world.answers | {(handle.request, call.generation)})
        if not handle.generation:
            after = _put(after, call.handle, generation=call.generation)
    yield _say(world, call, "answer", call.generation), after


def _again(world: World, call: Call, rules: Rules) -> World:
    at = "read_ends" if rules.on("ends-before-append") else "propose"
    return _go(world, call, at=at, supersedes=0, generation=0, offset=0, ends=0)


def _ends(world: World, rules: Rules) -> int | None:
    """Read end offsets; None: refused, as this is not the topic that Genesis names."""
    if not rules.is_right(world.topic):
        return None
    return world.stable_end if rules.on("last-stable-offsets") else len(world.records)


# --- nodes --------------------------------------------------------------------------------------------------


def handle_steps(world: World, setup: Setup, rules: Rules) -> Steps:
    """Attach, retry with the same request id, read the index, write it, emit."""
    for number, handle in enumerate(world.handles):
        if not handle.generation:
            if handle.tries and len(world.calls) < setup.most_calls:
                yield from _call(world, number, rules)
        elif not setup.store:
            continue
        elif handle.names_x is None:
            names_x = read_index(world, handle.generation)
            yield f"read_index {handle.node}{handle.generation}", _put(world, number, names_x=names_x)
        else:
            yield from _delete_x(world, number, setup, rules)


def _call(world: World, number: int, rules: Rules) -> Steps:
    handle = world.handles[number]
    at = "read_ends" if rules.on("ends-before-append") else "propose"
    call = Call(number, at, len(world.log), 0)
    after = _put(world, number, tries=handle.tries - 1)
    yield f"call {handle.request}", after._replace(calls=tuple(sorted([*world.calls, call])))


def _delete_x(world: World, number: int, setup: Setup, rules: Rules) -> Steps:
    """Write an index without `x`, then emit; a transactional emitter hands the record over before."""
    handle = world.handles[number]
    if handle.poisoned and rules.on("put-outcome"):
        return  # until the node has attached again, which is another handle
    name, own = f"{handle.node}{handle.generation}", world.indexes[handle.generation]
    if handle.names_x and world.budget.unknown_puts and not handle.poisoned:
        yield from _put_unknown(world, number)
    early = setup.transactional or not rules.on("index-first")
    if handle.names_x and own is None:
        yield f"put_index {name} with x", _write_index(world, number, names_x=True)
    if handle.names_x and (handle.emitted or not early):
        yield f"put_index {name} without x", _write_index(world, number, names_x=False)
    if not handle.emitted and (handle.names_x if early else own is False):
        record = Record(handle.generation, stable=not setup.transactional)
        after = _put(world, number, emitted=True)
        yield f"emit {name} at {len(world.records)}", after._replace(records=(*world.records, record))
    written = Record(handle.generation, stable=False)
    if own is False and written in world.records:
        records = replaced(world.records, world.records.index(written), written._replace(stable=True))
        yield f"commit_transaction {name}", world._replace(records=records)


def _put_unknown(world: World, number: int) -> Steps:
    """The PUT of an index, with `x` or without it, gets no answer: it may land late, or never."""
    handle = world.handles[number]
    budget = world.budget._replace(unknown_puts=world.budget.unknown_puts - 1)
    for names_x in (True, False):
        late = tuple(sorted([*world.late, (handle.generation, names_x)]))
        after = _put(world, number, poisoned=True)._replace(late=late, budget=budget)
        yield f"put_unknown {handle.node}{handle.generation} {_named(names_x)}", after


def _named(names_x: bool) -> str:
    return "with x" if names_x else "without x"


def _write_index(world: World, number: int, *, names_x: bool) -> World:
    indexes = replaced(world.indexes, world.handles[number].generation, names_x)
    return _put(world, number, names_x=names_x)._replace(indexes=indexes)


def read_index(world: World, generation: int) -> bool:
    """Return whether the index that a reader of this generation takes, the newest up to it, names `x`."""
    return next(names_x for names_x in world.indexes[generation::-1] if names_x is not None)


# --- the reaper ---------------------------------------------------------------------------------------------


def fix_range(world: World, rules: Rules) -> Steps:
    """Fix the micro-batch's offsets: from here on a crash replays this very range."""
    until = world.stable_end
    if until > world.reaper.committed:
        after = _reap(world, at=rules.after("fix_range"), until=until)
        yield f"fix_range {world.reaper.committed} to {until}", after


def barrier_ends(world: World, rules: Rules) -> Steps:
    """The issuer reads the end offsets for a barrier."""
    ends = _ends(world, rules)
    if ends is not None and world.budget.barriers:
        left = world.budget._replace(barriers=world.budget.barriers - 1)
        after = _reap(world, at=rules.after("barrier_ends"), ends=ends, topic=world.topic)
        yield f"barrier_ends {ends}", after._replace(budget=left)


def barrier(world: World, rules: Rules) -> Steps:
    """The issuer appends the barrier and answers with where it stands."""
    log = (*world.log, Event("barrier", "barrier", "", 0, 0, world.reaper.ends))
    yield "barrier", _reap(world, at=rules.after("barrier"), barrier=len(world.log))._replace(log=log)


def judge(world: World, rules: Rules) -> Steps:
    """Read the range's records and judge them, with any fold that has read the barrier."""
    reaper = world.reaper
    if reaper.until > world.stable_end:
        return  # the records are gone: reported as data loss, never skipped
    if rules.on("barrier") and not rules.lies_below(reaper.until - 1, reaper.ends):
        return  # held
    if rules.on("topic-kept") and world.topic != reaper.topic:
        return  # does not happen
    batch = [(i, world.records[i]) for i in range(reaper.committed, reaper.until)]
    for length in range(reaper.barrier + 1, len(world.log) + 1):
        log = world.log[:length]
        seen = [
            Presence(world.topic, offset, record.generation, rules.passes(log, offset, record.generation))
            for offset, record in batch
        ]
        passes = any(s.passed and world.records[s.offset].object == "x" for s in seen)
        words = ", ".join(f"{s.offset} {'passes' if s.passed else 'never'}" for s in seen)
        after = _reap(world, at="delete" if passes else rules.done[0])
        yield (
            f"judge {words}, the log read up to {length - 1}",
            after._replace(verdicts=world.verdicts.union(seen)),
        )


def delete(world: World, rules: Rules) -> Steps:
    """Delete what passed; this may be long after the verdict."""
    yield "delete x", _reap(world, at=rules.done[0])._replace(deleted=True)


def settle(world: World, rules: Rules) -> Steps:
    """Write the outcomes; Kafka acknowledges them before the offsets are committed."""
    after = _reap(world, settled=world.reaper.until)
    yield "settle", _reap(after, at="commit") if rules.done[0] == "settle" else _next_range(after, rules)


def commit(world: World, rules: Rules) -> Steps:
    """Commit the offsets: the next micro-batch begins where this one ends."""
    after = _reap(world, committed=world.reaper.until)
    after = _next_range(after, rules) if rules.done[1] == "commit" else _reap(after, at="settle")
    yield f"commit {world.reaper.until}", after


def _next_range(world: World, rules: Rules) -> World:
    done = Reaper(rules.first, committed=world.reaper.committed, settled=world.reaper.settled)
    return world._replace(reaper=done)


# --- the environment ----------------------------------------------------------------------------------------


def environment(world: World, rules: Rules) -> Steps:
    """Yield what Redis, the network, the processes and a hurried operator may do at any moment."""
    budget = world.budget
    for event in dict.fromkeys(world.flight):
        flight = list(world.flight)
        flight.remove(event)
        log = (*world.log, event)
        yield f"land {event.generation} of {event.request}", world._replace(log=log, flight=tuple(flight))
    if budget.losses:
        left = budget._replace(losses=budget.losses - 1)
        for call in dict.fromkeys(world.calls):
            yield _say(world, call, "crash"), _end(world, call)._replace(budget=left)
    for put in world.late:
        generation, names_x = put
        late = list(world.late)
        late.remove(put)
        indexes = replaced(world.indexes, generation, names_x)
        after = world._replace(indexes=indexes, late=tuple(late))
        yield f"late_put {generation} {_named(names_x)}", after
    if budget.lies:
        left = budget._replace(lies=budget.lies - 1)
        newest = world.redis.newest
        lies = (Redis(0, 0), Redis(max(newest - 1, 0), 0), Redis(newest, 0), Redis(newest, newest + 2))
        for redis in dict.fromkeys(lies):
            if redis != world.redis:
                yield f"redis says {redis.newest}/{redis.proposed}", world._replace(redis=redis, budget=left)
    if budget.crashes and world.reaper.at not in ("fix_range", rules.replays):
        left = budget._replace(crashes=budget.crashes - 1)
        yield "crash reaper", _reap(world, at=rules.replays, ends=0, barrier=0)._replace(budget=left)
    if budget.recreations:
        left = budget._replace(recreations=budget.recreations - 1)
        yield "recreate_topic", world._replace(topic=world.topic + 1, records=(), budget=left)
    yield from _distrusted(world, rules)


def _distrusted(world: World, rules: Rules) -> Steps:
    """Yield what is ruled out while what is trusted holds."""
    if not rules.on("log-kept") and len(world.log) > 1:
        yield "lose_event", world._replace(log=world.log[:-1])
    if not rules.on("claims-answered") and not world.records:
        record = Record((rules.fold(world.log).newest(TENANT) or 0) + 1)
        yield f"claim {record.generation} at 0", world._replace(records=(record,))


# --- small parts --------------------------------------------------------------------------------------------


def _say(world: World, call: Call, step: str, detail: object = "") -> str:
    """Name the process's call by its request id: two calls of one request are two processes."""
    return f"{step} {detail} for {world.handles[call.handle].request}".replace("  ", " ")


def _go(world: World, call: Call, **changes: Any) -> World:
    left = list(world.calls)
    left.remove(call)
    return world._replace(calls=tuple(sorted([*left, call._replace(**changes)])))


def _end(world: World, call: Call) -> World:
    left = list(world.calls)
    left.remove(call)
    return world._replace(calls=tuple(left))


def _put(world: World, number: int, **changes: Any) -> World:
    handle = world.handles[number]._replace(**changes)
    return world._replace(handles=replaced(world.handles, number, handle))


def _reap(world: World, **changes: Any) -> World:
    return world._replace(reaper=world.reaper._replace(**changes))


_ISSUE = {step.__name__: step for step in (read_ends, propose, append, read_back, project, withdraw, answer)}
_REAP = {step.__name__: step for step in (fix_range, barrier_ends, barrier, judge, delete, settle, commit)}
