"""Hold what clients were told of transactions against the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tests.chaos.journal import Call, Judged, Step, Stepped
from tests.chaos.transaction_oracle import REJECTED, Told, Transactions, reached

from sexton.schemas import events

__all__ = ["both_ways", "facts", "open_at_once", "steps"]


def facts(told: Transactions, reported: Judged) -> list[str]:
    """As of its log offset an answer about a transaction is what the log says."""
    found = []
    for asked in reported.questions:
        fact = reported.facts.get(asked)
        if (asked.tenant in told.tenants) != (fact is not None):
            found.append(f"known or not: {asked} as of {reported.log_offset}")
        elif fact is not None:
            due = told.fact(asked.tenant, asked.transaction, asked.partition)
            span = None if fact.window is None else (fact.window.start, fact.window.until)
            if (fact.status.value, fact.changed, span) != due:
                found.append(f"verdict: {asked} {fact}, the log: {due}")
    return found


def open_at_once(reported: Judged) -> list[str]:
    """At most one transaction of a tenant is open."""
    names = Counter(asked.tenant for asked, fact in reported.facts.items() if fact.status == "open")
    return [f"open at once: {count} of {name}" for name, count in names.items() if count > 1]


def both_ways(stepped: Iterable[Stepped], judged: Iterable[Judged]) -> list[str]:
    """Nothing that anybody was told to be committed is rejected to anybody, and the other way round."""
    committed: set[tuple[str, int]] = set()
    rejected: set[tuple[str, int]] = set()
    for answer in stepped:
        one = (answer.step.tenant, answer.number)
        if answer.refused == "transaction-committed" or (answer.step.call is Call.COMMIT and answer.was_done):
            committed.add(one)
        elif answer.refused == "transaction-rejected" or (
            answer.step.call in (Call.ACKNOWLEDGE, Call.COLLECT) and answer.was_done
        ):
            rejected.add(one)
    for reported in judged:
        for asked, fact in reported.facts.items():
            if fact.status in ("committed", *REJECTED):
                kept = committed if fact.status == "committed" else rejected
                kept.add((asked.tenant, asked.transaction))
    return [f"committed and rejected: {one}" for one in sorted(committed & rejected)]


def steps(
    told: Transactions, log: Sequence[events.GenerationEvent], stepped: Iterable[Stepped]
) -> Iterable[str]:
    """Each number for one request, each request one number, each answer as the log has it."""
    owner: dict[tuple[str, int], str] = {}
    first: dict[str, tuple[int, int | None, int]] = {}
    for answer in stepped:
        step = answer.step
        if answer.refused is not None:
            yield from _refused(told, answer)
        elif step.call is Call.START:
            given = (answer.number, answer.base, answer.log_offset)
            if first.setdefault(step.request_id, given) != given:
                yield f"two answers: {step} {first[step.request_id]} and {given}"
            number = (step.tenant, answer.number)
            if owner.setdefault(number, step.request_id) != step.request_id:
                yield f"given twice: {number} to {owner[number]} and {step.request_id}"
            yield from _started(told, answer)
        elif answer.log_offset not in _proofs(told, step):
            yield f"not in the log: {step} at {answer.log_offset}"
        if answer.was_done and answer.log_offset < len(log):
            yield from _event(log[answer.log_offset], answer)


def _started(told: Transactions, answer: Stepped) -> Iterable[str]:
    """One grant: the event that gave the number is this request's, on top of the last committed one."""
    step, found = answer.step, told.find(answer.step.tenant, answer.number)
    is_its = found is not None and found.since["open"] == told.requests.get(step.request_id)
    if found is None or not is_its or found.since["open"] != answer.log_offset or found.node != step.node:
        yield f"not in the log: {step} {answer.number} at {answer.log_offset}"
    elif found.base != answer.base:
        yield f"another base: {step} {answer.number} on {answer.base}, the log: {found.base}"


def _proofs(told: Transactions, step: Step) -> set[int]:
    """Where the log may prove an answer; asked under another id, it is where another call has led to it."""
    if step.call is Call.DECOMMISSION:
        return {told.gone.get(step.node, -1)}
    found = told.find(step.tenant, step.transaction)
    since = {} if found is None else found.since
    proofs = {
        Call.COMMIT: ("committed",),
        Call.ACKNOWLEDGE: ("reject-acknowledged", "collected"),
        Call.COLLECT: ("collected",),
    }
    return {since[status] for status in proofs[step.call] if status in since}


def _event(event: events.GenerationEvent, answer: Stepped) -> Iterable[str]:
    """A commit has reached its deadlist; end offsets are from between the call and its answer."""
    step = answer.step
    if isinstance(event, events.TransactionCommitted) and not reached(event):
        yield f"a deadlist that is not reached: {event.deadlist}, {event.ends}"
    if isinstance(event, events.TransactionStarted | events.TransactionCommitted):
        mine = event.request_id == step.request_id
        bounds = zip(step.written, event.ends.offsets, answer.sent, strict=True)
        if mine and not all(low <= end <= high for low, end, high in bounds):
            yield f"end offsets of another moment: {step}: {event.ends.offsets}, sent {answer.sent}"


def _refused(told: Transactions, answer: Stepped) -> Iterable[str]:
    """A refusal is right for ever, or was right after what everybody knew when the call began."""
    step, why = answer.step, answer.refused
    found = told.find(step.tenant, step.transaction)
    if why == "node-decommissioned":
        right = step.node in told.gone
    elif found is None:
        right = False
    elif why == "transaction-rejected":
        right = found.status in REJECTED
    elif why == "transaction-committed":
        right = found.status == "committed"
    else:
        over = ("reject-acknowledged",) if why == "transaction-not-acknowledged" else ("committed", *REJECTED)
        right = not _known(found, over, answer.seen)
    if not right or told.requests.get(step.request_id, answer.seen + 1) <= answer.seen:
        yield f"refused: {why} {step}, the log: {found}"


def _known(found: Told, statuses: Sequence[str], seen: int) -> bool:
    return any(found.since.get(status, seen + 1) <= seen for status in statuses)
