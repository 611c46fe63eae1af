"""The steps of an attempt at an intent of two phases, and those of clocks, store and crashes around it.

Each function yields a label and the world after it; between any two steps everybody else may take theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.model.phase_world import (
    ABSENT,
    CANCELLED,
    DELETED,
    PAUSE,
    Attempt,
    PhaseRules,
    PhaseWorld,
    Record,
)
from tests.model.rules import replaced

from sexton.streaming_jobs.reaper.execute.outcomes import Presence
from sexton.streaming_jobs.reaper.vetoes import Stop, Wait

Steps = Iterator[tuple[str, PhaseWorld]]
TOO_EARLY, VETOED, AFTER_END = "too early", "vetoed", "after its end"


def steps(world: PhaseWorld, rules: PhaseRules) -> Steps:
    """Yield every step that some participant can take."""
    yield from _ATTEMPT[world.attempt.at](world, rules)
    yield from environment(world)


# --- one attempt --------------------------------------------------------------------------------------------


def begin(world: PhaseWorld, rules: PhaseRules) -> Steps:
    """Read a record that is not done, whichever; one that is settled, or has a later copy, is passed over."""
    for number, record in enumerate(world.records):
        if record.done:
            continue
        # Outcomes are looked for where a record was begun before; of copies only the last one is executed.
        settled = record.begun and world.outcome is not None and rules.on("outcome-final")
        if settled or (number + 1 < len(world.records) and rules.on("last-copy")):
            yield f"pass_over {number}", _done(world, number)
            continue
        phase = int(record.gone)
        attempt = Attempt("ask", number, phase, record.touched, resumes_at=record.resumes_at)
        truth = world.truth._replace(there=world.other)
        yield f"begin {number}", world._replace(attempt=attempt, truth=truth)


def ask(world: PhaseWorld, rules: PhaseRules) -> Steps:
    """Ask the store what the phase hangs on; any reply tells its time."""
    attempt = world.attempt
    kept = attempt.asked is not None and not rules.on("asked-each-phase")
    if not rules.asks(attempt.phase) or kept:
        # A phase that waits for the store's clock hears of it by some reply, at the latest by a HEAD.
        yield "look_at_the_clock", _go(world, at="gate", date=world.store)
        return
    seen = Presence.PRESENT if world.other else Presence.ABSENT
    after = _go(world, at="gate", date=world.store, answer=seen, asked=attempt.phase)
    yield f"ask {attempt.phase} {seen}", after
    if world.budget.unknown:
        left = world.budget._replace(unknown=world.budget.unknown - 1)
        after = _go(world, at="gate", answer=Presence.UNKNOWN, asked=attempt.phase)
        yield f"ask {attempt.phase} unknown", after._replace(budget=left)


def gate(world: PhaseWorld, rules: PhaseRules) -> Steps:
    """Go by what the product's gate says of the phase, with what was asked and the time now."""
    attempt = world.attempt
    resumes_at = attempt.resumes_at if attempt.phase else None
    said = rules.said(attempt.phase, attempt.answer, resumes_at, world.reaper, attempt.date)
    if isinstance(said, Stop) and rules.on("veto-stops"):
        yield f"stop {attempt.phase}", _go(world, at="settle", cancelled=True)
    elif isinstance(said, Wait):
        yield f"wait {attempt.phase} {said.reason}", _go(world, at="defer")
    else:
        yield f"let {attempt.phase}", _go(world, at="send")


def send(world: PhaseWorld, rules: PhaseRules) -> Steps:
    """Send the phase's key: it goes at the store, and the reply comes, or is lost."""
    attempt = world.attempt
    wrong = set(world.truth.wrong)
    if attempt.phase and rules.setup.paused:
        since = world.truth.acknowledged
        if since is None or min(world.reaper - since[0], world.store - since[1]) < PAUSE:
            wrong.add(TOO_EARLY)
    if attempt.phase in rules.setup.veto and not world.truth.there:
        wrong.add(VETOED)
    if world.outcome is not None:
        wrong.add(AFTER_END)
    after = world._replace(truth=world.truth._replace(wrong=frozenset(wrong)))
    after = after._replace(b=False) if attempt.phase else after._replace(a=False)
    fixed: dict[str, Any] = {}
    if not attempt.phase and not rules.on("acknowledged-first"):
        fixed = {"resumes_at": rules.pause_ends(world.reaper, attempt.date)}
    yield f"send {'ab'[attempt.phase]}", _go(after, at="reply", touched=True, **fixed)


def reply(world: PhaseWorld, rules: PhaseRules) -> Steps:
    """Hear that the key is gone, and fix when the next phase may begin; or hear nothing."""
    attempt = world.attempt
    if world.budget.losses:
        left = world.budget._replace(losses=world.budget.losses - 1)
        yield "lose_reply", _go(world, at="defer")._replace(budget=left)
    if attempt.phase:
        yield "acknowledge b", _go(world, at="settle", date=world.store)
        return
    truth, resumes_at = world.truth, attempt.resumes_at
    if rules.setup.paused and resumes_at is None:
        resumes_at = rules.pause_ends(world.reaper, world.store)
    since = truth.acknowledged or (world.reaper, world.store)
    fixed = resumes_at if truth.fixed is None else truth.fixed
    truth = truth._replace(acknowledged=since, fixed=fixed, there=world.other)
    after = _go(world, at="ask", phase=1, date=world.store, resumes_at=resumes_at)
    yield "acknowledge a", after._replace(truth=truth)


def defer(world: PhaseWorld, rules: PhaseRules) -> Steps:
    """Write a copy that says how far the intent is; it may be read again at any time."""
    attempt, budget = world.attempt, world.budget
    if not budget.copies:
        return
    kept = attempt.resumes_at if rules.on("pause-kept") else None
    gone = attempt.phase == 1
    copy = Record(gone, attempt.touched, kept if gone else None)
    # One that begins with the second phase and knows no instant counts its pause from now.
    if gone and rules.setup.paused and copy.resumes_at is None:
        copy = copy._replace(resumes_at=rules.pause_ends(world.reaper, world.store))
    after = world._replace(records=(*world.records, copy), budget=budget._replace(copies=budget.copies - 1))
    yield f"defer {attempt.phase}", _go(after, at="commit")


def settle(world: PhaseWorld, rules: PhaseRules) -> Steps:
    """Write the outcome of each key; of a cancelled one only once it was looked at, if it may have gone."""
    attempt = world.attempt
    words = (DELETED, DELETED)
    if attempt.cancelled:
        looked = attempt.touched and rules.on("cancelled-seen")
        first = DELETED if attempt.phase else ABSENT if looked and not world.a else CANCELLED
        second = ABSENT if looked and not world.b else CANCELLED
        words = (first, second)
    yield f"settle {' '.join(words)}", _go(world, at="commit")._replace(outcome=words)


def commit(world: PhaseWorld, rules: PhaseRules) -> Steps:
    """Be done with the record: it is not read again."""
    yield f"commit {world.attempt.number}", _done(world, world.attempt.number)


# --- the environment ----------------------------------------------------------------------------------------


def environment(world: PhaseWorld) -> Steps:
    """Yield what clocks, other writers and machines may do at any moment."""
    budget = world.budget
    if budget.reaper_ticks:
        left = budget._replace(reaper_ticks=budget.reaper_ticks - 1)
        yield "tick_reaper", world._replace(reaper=world.reaper + 1, budget=left)
    if budget.store_ticks:
        left = budget._replace(store_ticks=budget.store_ticks - 1)
        yield "tick_store", world._replace(store=world.store + 1, budget=left)
    if budget.turns:
        left = budget._replace(turns=budget.turns - 1)
        truth = world.truth._replace(there=world.truth.there or not world.other)
        name = "vanish" if world.other else "come_back"
        yield name, world._replace(other=not world.other, truth=truth, budget=left)
    if budget.crashes and world.attempt.at != "begin":
        left = budget._replace(crashes=budget.crashes - 1)
        truth = world.truth._replace(crashed=True)
        # Nobody else knows what this attempt knew: whether a request was sent stands in no record.
        number = world.attempt.number
        records = replaced(world.records, number, world.records[number]._replace(touched=True, begun=True))
        yield "crash", world._replace(attempt=Attempt("begin"), records=records, truth=truth, budget=left)


_ATTEMPT = {step.__name__: step for step in (begin, ask, gate, send, reply, defer, settle, commit)}


def _go(world: PhaseWorld, **changes: Any) -> PhaseWorld:
    return world._replace(attempt=world.attempt._replace(**changes))


def _done(world: PhaseWorld, number: int) -> PhaseWorld:
    records = replaced(world.records, number, world.records[number]._replace(done=True))
    return world._replace(records=records, attempt=Attempt("begin"))
