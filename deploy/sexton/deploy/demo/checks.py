"""What every story is held to: pure functions over the evidence, one for each promise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sexton.consumers import fold
from sexton.deploy.demo.evidence import Evidence
from sexton.schemas import events
from sexton.schemas.events import OutcomeKind

__all__ = ["COMMON", "Check", "Result", "check", "keys_of", "named", "stayed", "went", "words"]


@dataclass(frozen=True, slots=True)
class Result:
    """One check: what was promised, and what is wrong with it (nothing when it held)."""

    promise: str
    faults: Sequence[str]

    @property
    def held(self) -> bool:
        """Return whether the promise held."""
        return not self.faults


Check = Callable[[Evidence], Iterable[str]]


def check(evidence: Evidence, checks: Mapping[str, Check]) -> list[Result]:
    """Return the result of every check."""
    return [Result(promise, tuple(rule(evidence))) for promise, rule in checks.items()]


def _buried_alive(evidence: Evidence) -> Iterable[str]:
    for tenant, keys in evidence.indexes.items():
        for key in sorted(keys - evidence.left):
            yield f"the newest index of {tenant} names an object that is gone: {key}"


def _nothing_lost(evidence: Evidence) -> Iterable[str]:
    counts = fold.count(evidence.intents, evidence.outcomes)
    if counts.submitted != counts.settled + counts.pending:
        yield f"submitted {counts.submitted}, final {counts.settled}, pending {counts.pending}"
    if counts.pending or evidence.deferred:
        yield f"still pending: {counts.pending}, deferred: {len(evidence.deferred)}"
    if counts.unmatched:
        yield f"outcomes of intents that nobody wrote: {counts.unmatched}"


def _no_number_twice(evidence: Evidence) -> Iterable[str]:
    newest: dict[str, int] = {}
    for tenant, number in evidence.granted:
        if number != newest.get(tenant, 0) + 1:
            yield f"{tenant}: {number} handed out after {newest.get(tenant, 0)}"
        newest[tenant] = max(number, newest.get(tenant, 0))


def _receipts(evidence: Evidence) -> Iterable[str]:
    said = words(evidence)
    receipted = {
        key
        for intent in evidence.intents
        if said.get(intent.intent_id) is OutcomeKind.DELETED
        for key in keys_of(intent, evidence)
    }
    for key in sorted(receipted & evidence.left):
        yield f"a receipt without its effect: {key}"
    for key in sorted(evidence.written - evidence.left - receipted):
        yield f"an effect without its receipt: {key}"


COMMON: dict[str, Check] = {
    "I1 nothing buried alive: the newest indexes are whole": _buried_alive,
    "I2 nothing lost: submitted = final outcomes, none pending": _nothing_lost,
    "I3 no number twice: they count up by one": _no_number_twice,
    "I7 receipts are true: gone if and only if receipted": _receipts,
}


def went(evidence: Evidence, ids: Sequence[str]) -> Iterable[str]:
    """Tell of each intent that is not `deleted`, and of each of its keys that is still there."""
    for intent in named(evidence, ids):
        kind = words(evidence).get(intent.intent_id)
        if kind is not OutcomeKind.DELETED:
            yield f"intent {intent.intent_id} is {kind or 'pending'}, not deleted"
        for key in keys_of(intent, evidence):
            if key in evidence.left:
                yield f"still in the bucket: {key}"
    yield from _missing(evidence, ids)


def stayed(evidence: Evidence, ids: Sequence[str], what: str) -> Iterable[str]:
    """Tell of each intent that is not `stale`, and of each of its keys that is gone."""
    for intent in named(evidence, ids):
        kind = words(evidence).get(intent.intent_id)
        if kind is not OutcomeKind.STALE:
            yield f"intent {intent.intent_id} is {kind or 'pending'}, not stale"
        for key in keys_of(intent, evidence):
            if key not in evidence.left:
                yield f"{what} took effect: {key}"
    yield from _missing(evidence, ids)


def _missing(evidence: Evidence, ids: Sequence[str]) -> Iterable[str]:
    known = {intent.intent_id for intent in evidence.intents}
    for intent_id in ids:
        if intent_id not in known:
            yield f"the intent is not on the topic: {intent_id}"
    if not ids:
        yield "nothing was asked for"


def named(evidence: Evidence, ids: Sequence[str]) -> list[events.DeletionIntent]:
    """Return the intents with these ids."""
    return [intent for intent in evidence.intents if intent.intent_id in ids]


def words(evidence: Evidence) -> dict[str, OutcomeKind]:
    """Return what became of each intent that has a final outcome."""
    by_id: dict[str, list[events.Outcome | events.DeadLetter]] = {}
    for outcome in evidence.outcomes:
        by_id.setdefault(outcome.intent_id, []).append(outcome)
    folded = {
        intent.intent_id: fold.fold(intent.intent_id, intent, by_id.get(intent.intent_id, ()))
        for intent in evidence.intents
    }
    return {intent_id: OutcomeKind(each.state) for intent_id, each in folded.items() if each.final}


def keys_of(intent: events.DeletionIntent, evidence: Evidence) -> list[str]:
    """Return the objects of the story that may go by an intent."""
    return [key for key in sorted(evidence.written) if intent.action.may_delete(key)]
