"""What a run is checked by: every intent of a backlog has its one outcome, and the keys behind it are gone.

Rates count keys that the store was asked to delete and that have an outcome which says so; a stale key that
was only judged is none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sexton.consumers.topics import read
from sexton.schemas import records
from sexton.schemas.codec import Codec
from sexton.schemas.events import Outcome, OutcomeKind
from sexton.schemas.settings import Settings

__all__ = ["Tally", "outcomes", "tally"]


@dataclass(frozen=True, slots=True)
class Tally:
    """Outcomes beside the intents that were submitted.

    `intents` and `keys` are by outcome, each intent once. `missing` intents have no outcome, `repeated`
    more than one, `wrong` another one than they should (or one that leaves keys out).
    """

    submitted: int
    intents: Mapping[str, int]
    keys: Mapping[str, int]
    missing: int
    repeated: int
    wrong: int

    @property
    def exact(self) -> bool:
        """True when every intent has exactly the one outcome that it should have: the counters add up."""
        return not (self.missing or self.repeated or self.wrong)


def tally(due: Mapping[str, bool], reported: Iterable[Outcome], keys_per_intent: int) -> Tally:
    """Compare outcomes with intents, by id: those that are due have to be deleted, all others stale.

    Outcomes of other intents are left out.
    """
    seen: Counter[str] = Counter()
    intents: Counter[str] = Counter()
    keys: Counter[str] = Counter()
    wrong = 0
    for outcome in reported:
        is_due = due.get(outcome.intent_id)
        if is_due is None:
            continue
        seen[outcome.intent_id] += 1
        if seen[outcome.intent_id] > 1:
            continue
        intents[outcome.outcome.value] += 1
        keys.update(outcome.counts)
        kind = OutcomeKind.DELETED if is_due else OutcomeKind.STALE
        wrong += outcome.outcome is not kind or dict(outcome.counts) != {kind.value: keys_per_intent}
    repeated = sum(number > 1 for number in seen.values())
    return Tally(len(due), dict(intents), dict(keys), len(due) - len(seen), repeated, wrong)


def outcomes(settings: Settings, run_id: str) -> Iterator[Outcome]:
    """Yield the outcomes of a run's intents, whose ids start with its own, from the whole topic."""
    codec, start = Codec(), f"{run_id}-".encode()
    for record in read(settings, records.OUTCOMES):
        if record.key is not None and record.key.startswith(start):
            yield codec.decode(record.value, Outcome)
