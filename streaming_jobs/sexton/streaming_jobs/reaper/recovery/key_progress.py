"""What earlier attempts settled of an intent that waited, key by key.

A key that is gone is not sent again when its neighbours come back, and keeps its outcome; one whose effect is
unknown is verified before it is sent again; of all others it is known that nothing happened to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, pairwise

from sexton.schemas import events
from sexton.schemas.actions import ActionRoom
from sexton.schemas.events import OutcomeKind
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt

__all__ = ["GONE", "Before", "before_of", "progress_of"]

GONE = (OutcomeKind.DELETED, OutcomeKind.ABSENT)
"""Outcomes of keys that are gone."""

_MOST_RANGES = 50_000  # in one record of the deferred topic; beyond, all keys go again
_MOST_REQUEST_IDS = 100


@dataclass(frozen=True, slots=True)
class Before:
    """What is known from earlier attempts; keys are numbered from 0 through all phases.

    `done` has the outcome and the effect of each key that is gone; `unknown` are those of unknown effect,
    which were not sent before `sent_since` (seconds since 1970, None: nobody knows), `left` those that have
    no final outcome, phase by phase.
    """

    left: Sequence[Sequence[str]]
    done: Mapping[int, tuple[OutcomeKind, str]] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    sent_since: float | None = None
    request_ids: Sequence[str] = ()

    def again(self, number: int) -> Before:
        """Return the same without the outcome of one key: it has come back, and is not among those left."""
        return replace(self, done={each: said for each, said in self.done.items() if each != number})


def before_of(action: ActionRoom, progress: events.KeyProgress) -> Before:
    """Return what a deferred copy says of the keys of its intent.

    Raises ValueError when it does not fit the intent.
    """
    keys = action.keys
    if not action.key_phases:
        raise ValueError("it names no keys")
    done: dict[int, tuple[OutcomeKind, str]] = {}
    for each in progress.done:
        if each.outcome not in GONE:
            raise ValueError(f"{each.outcome} is not the outcome of a key that is gone")
        for number in _numbers(each.ranges, len(keys)):
            if number in done:
                raise ValueError("a key is done twice")
            done[number] = each.outcome, each.effect
    unknown = frozenset(keys[number] for number in _numbers(progress.unknown, len(keys)))
    left: list[list[str]] = []
    first = 0
    for phase in action.key_phases:
        left.append([key for number, key in enumerate(phase, first) if number not in done])
        first += len(phase)
    since = progress.sent_since.timestamp() if progress.sent_since else None
    return Before(left, done, unknown, since, progress.request_ids)


def progress_of(
    done: Mapping[int, tuple[OutcomeKind, str]], unknown: Mapping[int, Attempt], request_ids: Sequence[str]
) -> events.KeyProgress | None:
    """Return what is written of the keys of an intent that waits; None where it would be too much."""
    by_outcome: dict[tuple[OutcomeKind, str], list[int]] = {}
    for number in sorted(done):
        by_outcome.setdefault(done[number], []).append(number)
    found = [events.DoneKeys(*named, _ranges(numbers)) for named, numbers in by_outcome.items()]
    uncertain = _ranges(sorted(unknown))
    since = [earlier.since for earlier in unknown.values()]
    known = [each for each in since if each is not None]
    first = datetime.fromtimestamp(min(known), UTC) if known and len(known) == len(since) else None
    if sum(len(each.ranges) for each in found) + len(uncertain) > 2 * _MOST_RANGES:
        return None
    return events.KeyProgress(found, uncertain, first, list(request_ids)[-_MOST_REQUEST_IDS:])


def _ranges(numbers: Iterable[int]) -> list[int]:
    """Return ascending numbers as ranges: first, end, first, end …"""
    found: list[int] = []
    for number in numbers:
        if found and found[-1] == number:
            found[-1] += 1
        else:
            found += (number, number + 1)
    return found


def _numbers(ranges: Sequence[int], keys: int) -> Iterable[int]:
    inside = not ranges or (ranges[0] >= 0 and ranges[-1] <= keys)
    if len(ranges) % 2 or not inside or any(a >= b for a, b in pairwise(ranges)):
        raise ValueError("its ranges of keys do not fit the intent")
    return chain.from_iterable(map(range, ranges[::2], ranges[1::2]))
