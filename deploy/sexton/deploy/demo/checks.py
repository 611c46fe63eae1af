"""The demo's checks: pure functions over the evidence, one for each thing that the story promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sexton.consumers import fold
from sexton.deploy.demo.evidence import Evidence
from sexton.schemas import events
from sexton.schemas.events import OutcomeKind

__all__ = ["CHECKS", "Expected", "Result", "check"]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the story asked for: intent ids, and the garbage that it wrote."""

    compaction: Sequence[str]
    before_move: Sequence[str]
    after_move: Sequence[str]
    garbage: bytes


@dataclass(frozen=True, slots=True)
class Result:
    """One check: what was promised, and what is wrong with it (nothing when it held)."""

    promise: str
    faults: Sequence[str]

    @property
    def held(self) -> bool:
        """Return whether the promise held."""
        return not self.faults


Check = Callable[[Evidence, Expected], Iterable[str]]


def check(evidence: Evidence, expected: Expected) -> list[Result]:
    """Return the result of every check."""
    return [Result(promise, tuple(rule(evidence, expected))) for promise, rule in CHECKS.items()]


def _compaction(evidence: Evidence, expected: Expected) -> Iterable[str]:
    return _went(evidence, expected.compaction)


def _before_move(evidence: Evidence, expected: Expected) -> Iterable[str]:
    return _went(evidence, expected.before_move)


def _after_move(evidence: Evidence, expected: Expected) -> Iterable[str]:
    for intent in _named(evidence, expected.after_move):
        kind = _words(evidence).get(intent.intent_id)
        if kind is not OutcomeKind.STALE:
            yield f"intent {intent.intent_id} is {kind or 'pending'}, not stale"
        for key in _keys(intent):
            if key not in evidence.left:
                yield f"a stale owner's delete took effect: {key}"
    yield from _missing(evidence, expected.after_move)


def _garbage(evidence: Evidence, expected: Expected) -> Iterable[str]:
    letters = [letter for letter in evidence.dead_letters if letter.raw_value == expected.garbage]
    if len(letters) != 1:
        yield f"dead letters that hold the garbage byte for byte: {len(letters)}, not 1"
    if others := len(evidence.dead_letters) - len(letters):
        yield f"other dead letters: {others}"


def _buried_alive(evidence: Evidence, _: Expected) -> Iterable[str]:
    for tenant, keys in evidence.indexes.items():
        for key in sorted(keys - evidence.left):
            yield f"the newest index of {tenant} names an object that is gone: {key}"


def _nothing_lost(evidence: Evidence, _: Expected) -> Iterable[str]:
    counts = fold.count(evidence.intents, evidence.outcomes)
    if counts.submitted != counts.settled + counts.pending:
        yield f"submitted {counts.submitted}, final {counts.settled}, pending {counts.pending}"
    if counts.pending or evidence.deferred:
        yield f"still pending: {counts.pending}, deferred: {len(evidence.deferred)}"
    if counts.unmatched:
        yield f"outcomes of intents that nobody wrote: {counts.unmatched}"


def _no_number_twice(evidence: Evidence, _: Expected) -> Iterable[str]:
    newest: dict[str, int] = {}
    for tenant, generation in evidence.granted:
        if generation != newest.get(tenant, 0) + 1:
            yield f"{tenant}: generation {generation} handed out after {newest.get(tenant, 0)}"
        newest[tenant] = max(generation, newest.get(tenant, 0))


def _receipts(evidence: Evidence, _: Expected) -> Iterable[str]:
    words = _words(evidence)
    receipted = {
        key
        for intent in evidence.intents
        if words.get(intent.intent_id) is OutcomeKind.DELETED
        for key in _keys(intent)
    }
    for key in sorted(receipted & evidence.left):
        yield f"a receipt without its effect: {key}"
    for key in sorted(evidence.written - evidence.left - receipted):
        yield f"an effect without its receipt: {key}"


CHECKS: dict[str, Check] = {
    "what the compaction replaced is gone": _compaction,
    "what node A asked for before the move is gone": _before_move,
    "what stale node A asked for after the move stays": _after_move,
    "garbage became one dead letter with its raw bytes": _garbage,
    "I1 nothing buried alive: the newest indexes are whole": _buried_alive,
    "I2 nothing lost: submitted = final outcomes, none pending": _nothing_lost,
    "I3 no number twice: generations count up by one": _no_number_twice,
    "I7 receipts are true: gone if and only if receipted": _receipts,
}


def _went(evidence: Evidence, ids: Sequence[str]) -> Iterable[str]:
    for intent in _named(evidence, ids):
        kind = _words(evidence).get(intent.intent_id)
        if kind is not OutcomeKind.DELETED:
            yield f"intent {intent.intent_id} is {kind or 'pending'}, not deleted"
        for key in _keys(intent):
            if key in evidence.left:
                yield f"still in the bucket: {key}"
    yield from _missing(evidence, ids)


def _missing(evidence: Evidence, ids: Sequence[str]) -> Iterable[str]:
    known = {intent.intent_id for intent in evidence.intents}
    for intent_id in ids:
        if intent_id not in known:
            yield f"the intent is not on the topic: {intent_id}"
    if not ids:
        yield "nothing was asked for"


def _named(evidence: Evidence, ids: Sequence[str]) -> list[events.DeletionIntent]:
    return [intent for intent in evidence.intents if intent.intent_id in ids]


def _words(evidence: Evidence) -> dict[str, OutcomeKind]:
    by_id: dict[str, list[events.Outcome | events.DeadLetter]] = {}
    for outcome in evidence.outcomes:
        by_id.setdefault(outcome.intent_id, []).append(outcome)
    folded = {
        intent.intent_id: fold.fold(intent.intent_id, intent, by_id.get(intent.intent_id, ()))
        for intent in evidence.intents
    }
    return {intent_id: OutcomeKind(each.state) for intent_id, each in folded.items() if each.final}


def _keys(intent: events.DeletionIntent) -> list[str]:
    return list(intent.action.keys)
