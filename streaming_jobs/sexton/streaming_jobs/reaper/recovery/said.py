"""What outcomes, dead letters and copies say of records that may have been processed before this start.

Which of them ask for nothing any more is decided here, from what the topics hold; `receipts` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sexton.schemas import events
from sexton.streaming_jobs.reaper.deferred.pending import Copy, digest_of, named, place_of, position_at
from sexton.streaming_jobs.reaper.recovery.offsets import Offsets

__all__ = ["Ranges", "Said"]

Ranges = Mapping[int, tuple[int, int]]
_Intent = tuple[int, int]  # where it first stood, and the digest of its id
_DEAD_LETTERED = events.OutcomeKind.DEAD_LETTERED.value


@dataclass(slots=True)
class Said:
    """Takes in what topics say of two ranges, of first records and of waiting ones.

    `intents` and `deferred` are (first, end) by partition. `anew` tells that nothing before this start was
    looked at: then of several copies of an intent only the last one continues, as a checkpoint would say.
    Without it that is so for copies of the waiting range. `copies` are in order within each partition.
    """

    topic_id: str
    deferred_topic_id: str
    intents: Ranges
    deferred: Ranges
    copies: Iterable[Copy]
    anew: bool
    changed: set[tuple[int, int]] = field(default_factory=set)
    _topic: int = field(init=False)
    _first: Offsets = field(init=False)
    _waiting: Offsets = field(init=False)
    _copied: set[int] = field(init=False)
    _final: set[_Intent] = field(default_factory=set)
    _halves: dict[_Intent, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._first, self._waiting = Offsets(self.intents), Offsets(self.deferred)
        self._copied = {copy.place for copy in self.copies}
        self._topic = digest_of(self.topic_id)

    def outcome(self, outcome: events.Outcome, *, letters_kept: bool = True) -> None:
        """Take in an outcome; `letters_kept` says whether a dead letter of its time is still there."""
        at = outcome.position
        if at.topic_id != self.topic_id:
            return
        if outcome.counts.get(events.OutcomeKind.CHANGED.value):
            self.changed.add((at.partition, at.offset))
        intent = (place_of(at.partition, at.offset), named(at.topic_id, outcome.intent_id))
        if letters_kept and outcome.counts.get(_DEAD_LETTERED) and intent not in self._halves:
            # It ends with its dead letter, which is written beside it and not at once: where a reaper ended
            # between the two, keys that cannot be deleted would be named nowhere.
            return
        self._ended(at, intent)

    def dead_letter(self, letter: events.DeadLetter, at_s: float = 0.0) -> None:
        """Take in a dead letter, before any outcome: what it is of is not executed by itself again.

        One that names keys ends nothing without its outcome: the others would have none. `at_s` is when it
        was written, in seconds since 1970.
        """
        at = letter.position
        if at.topic_id == self.deferred_topic_id:
            self._waiting.add(at.partition, at.offset)
        elif at.topic_id == self.topic_id:
            intent_id = letter.intent_id
            # Without an id nothing of it was executed, and all of its copies say the same.
            name = named(at.topic_id, intent_id) if intent_id else 0
            intent = (place_of(at.partition, at.offset), name)
            if letter.keys:
                self._halves[intent] = at_s
            else:
                self._ended(at, intent)

    def outcomes_kept_since(self, since_s: float) -> None:
        """Take in from when on all outcomes are there: a dead letter from before has had one."""
        for intent, at_s in self._halves.items():
            if at_s < since_s:
                self._ended(events.Position(self.topic_id, *position_at(intent[0])), intent)

    def _ended(self, at: events.Position, intent: _Intent) -> None:
        self._first.add(at.partition, at.offset)
        if intent[0] in self._copied:
            self._final.add(intent)

    def settled(self) -> tuple[Offsets, Offsets, dict[int, frozenset[int]]]:
        """Return which first records and which waiting ones ask for nothing any more, and uncertain copies.

        A first record of which a copy waits continues as that copy. A copy that is uncertain took the place
        of others, whose attempts it may know nothing of.
        """
        copies = list(_in_time(self.copies))
        newest: dict[_Intent, int] = {}
        for copy in copies:
            if copy.topic == self._topic:
                self._first.add(*position_at(copy.place))
            intent = (copy.place, copy.named)
            newest[intent] = max(copy.at_ms, newest.get(intent, 0))
        replaced: set[_Intent] = set()
        for copy in copies:
            intent = (copy.place, copy.named)
            if copy.named and intent in self._final:
                self._waiting.add(copy.partition, copy.offset)
            elif copy.named and self._may_be_replaced(copy) and copy.at_ms < newest[intent]:
                self._waiting.add(copy.partition, copy.offset)
                replaced.add(intent)
        uncertain: dict[int, set[int]] = {}
        for copy in copies:
            intent = (copy.place, copy.named)
            if intent in replaced and copy.at_ms == newest[intent]:
                uncertain.setdefault(copy.partition, set()).add(copy.offset)
        return self._first, self._waiting, {p: frozenset(found) for p, found in uncertain.items()}

    def _may_be_replaced(self, copy: Copy) -> bool:
        """Return whether a newer copy may have come of this one: it was begun, or nothing is known."""
        first, end = self.deferred.get(copy.partition, (0, 0))
        return self.anew or first <= copy.offset < end


def _in_time(copies: Iterable[Copy]) -> Iterator[Copy]:
    """Yield copies with times that never go back within a partition, as brokers' clocks may.

    The delay queue drops all but the last of a partition: what is the newest here must not be dropped there.
    """
    reached: dict[int, int] = {}
    for copy in copies:
        at_ms = reached[copy.partition] = max(copy.at_ms, reached.get(copy.partition, 0))
        yield copy if at_ms == copy.at_ms else replace(copy, at_ms=at_ms)
