"""What became of an intent, from all records about it, whatever their order.

A topic may hold several records for one intent: replays, a deferred copy, a dead letter and its later replay.
They are folded per key by precedence, never by arrival:

    deleted = absent > changed > refused > stale > cancelled > dead-lettered

`deleted` and `absent` are equal for comparison; where both were said, `deleted` is shown. The outcome for the
intent is that of its worst key; while a key has no outcome the intent is pending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sexton.schemas.events import DeadLetter, DeletionIntent, Outcome, OutcomeKind, Position
from sexton.schemas.outcomes import rank

__all__ = ["PENDING", "Counts", "Folded", "better", "count", "fold"]

PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Folded:
    """The folded outcome on an intent: `state` is an outcome or `pending`.

    `keys` has each key whose outcome is known by name, `rest` the outcome on those that no record names,
    `pending` the intent's keys without an outcome. `records` is how many records were folded.
    """

    intent_id: str
    state: str
    keys: Mapping[str, OutcomeKind]
    rest: OutcomeKind | None
    pending: tuple[str, ...]
    records: int

    @property
    def final(self) -> bool:
        """Return whether the intent has its final outcome."""
        return self.state != PENDING


@dataclass(frozen=True, slots=True)
class Counts:
    """Intents by what became of them; submitted = the sum over `final` + pending.

    `unmatched` are ids that outcomes or dead letters name and no intent does (retention has passed the
    intent); `undecodable` are the records that dead letters are about and in which no intent id could be
    read, each once however often it has died. Neither is part of the sum.
    """

    submitted: int
    final: Mapping[OutcomeKind, int]
    pending: int
    unmatched: int
    undecodable: int

    @property
    def settled(self) -> int:
        """Return the number of final outcomes."""
        return sum(self.final.values())


def better(one: OutcomeKind | None, other: OutcomeKind | None) -> OutcomeKind | None:
    """Return the outcome that holds for a key when two records disagree; None is no outcome at all."""
    return max((one, other), key=_rank)


def fold(intent_id: str, intent: DeletionIntent | None, said: Iterable[Outcome | DeadLetter]) -> Folded:
    """Fold all records about one intent; without the intent itself only the named keys are known by name."""
    views = [_view(record) for record in said]
    names: set[str] = {key for named, _ in views for key in named}
    listed = _keys_of(intent)
    names.update(listed)
    words = {key: _best(named.get(key, rest) for named, rest in views) for key in names}
    rest = None if listed else _best(rest for _, rest in views)
    known = {key: kind for key, kind in words.items() if kind is not None}
    pending = tuple(key for key in listed if words[key] is None)
    everything = [*known.values(), *([rest] if rest is not None else [])]
    state = PENDING if pending or not everything else min(everything, key=_rank).value
    return Folded(intent_id, state, known, rest, pending, len(views))


def count(intents: Iterable[DeletionIntent], said: Iterable[Outcome | DeadLetter]) -> Counts:
    """Count what became of all intents; the same intent written several times counts once.

    What is said is read first and kept, of the intents their ids alone: their keys may be too many to keep.
    """
    records: dict[str, list[Outcome | DeadLetter]] = {}
    undecodable: set[tuple[str, Position]] = set()
    for record in said:
        if record.intent_id is not None:
            records.setdefault(record.intent_id, []).append(record)
        elif isinstance(record, DeadLetter):
            undecodable.add((record.topic, record.position))
    seen: set[str] = set()
    states: Counter[str] = Counter()
    for intent in intents:
        if intent.intent_id not in seen:
            seen.add(intent.intent_id)
            states[fold(intent.intent_id, intent, records.get(intent.intent_id, ())).state] += 1
    return Counts(
        submitted=len(seen),
        final={kind: states[kind.value] for kind in OutcomeKind if states[kind.value]},
        pending=states[PENDING],
        unmatched=sum(i not in seen for i in records),
        undecodable=len(undecodable),
    )


def _view(record: Outcome | DeadLetter) -> tuple[Mapping[str, OutcomeKind], OutcomeKind | None]:
    """Return the keys that a record names, each with its outcome, and its outcome on all others."""
    if isinstance(record, DeadLetter):
        dead = OutcomeKind.DEAD_LETTERED
        return dict.fromkeys(record.keys, dead), None if record.keys else dead
    named = {each.key: each.outcome for each in record.exceptions}
    return named, _rest(record, Counter(named.values()))


def _rest(outcome: Outcome, named: Mapping[OutcomeKind, int]) -> OutcomeKind | None:
    """Return the outcome on the keys that an outcome does not name.

    Its counts less the named keys leave one outcome. Should they leave several, the worst of them is
    accepted: nothing is shown as deleted that may not be.
    """
    if not outcome.counts:
        return outcome.outcome
    left = [kind for kind in OutcomeKind if outcome.counts.get(kind.value, 0) > named.get(kind, 0)]
    return min(left, key=_rank) if left else None


def _keys_of(intent: DeletionIntent | None) -> tuple[str, ...]:
    return () if intent is None else tuple(dict.fromkeys(intent.action.keys))


def _best(words: Iterable[OutcomeKind | None]) -> OutcomeKind | None:
    return max(words, key=_rank, default=None)


def _rank(kind: OutcomeKind | None) -> tuple[int, bool]:
    return (0, False) if kind is None else (rank(kind), kind is OutcomeKind.DELETED)
