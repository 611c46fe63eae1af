"""What a replay of dead letters would write. Pure rules: nothing is read or written.

A replay is a new intent, for the keys that failed, with a link to the record that became a dead letter.
Unchanged content (the same guards and action, or fewer keys of it) keeps the position at which it first
stood; mended content does not, and is judged where it is written. A position is what an old generation's
rights hang on, so a dead letter's claim is not enough: the bytes must still stand there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from sexton.consumers.dead_letters import Letter, Place
from sexton.schemas import events
from sexton.schemas.errors import InvalidEvent
from sexton.schemas.intents import check_intent

__all__ = ["Evidence", "Step", "Way", "mend", "plan", "restrict"]

_NOT_OURS = frozenset({"unknown-schema", "no-registry", "bad-schema", "unknown-field"})
"""Why bytes that say nothing here may say something to the reaper: it has a registry, or is newer."""
_TOO_LARGE = "too-large"  # what the reaper says of a record by its size alone


@dataclass(frozen=True, slots=True)
class Evidence:
    """What `intents` and `deferred` say: letters whose bytes stand at their first position, and replays.

    `replays` has, for each letter, the ids of the intents that replay it, or where its raw copies stand.
    """

    standing: frozenset[Place] = frozenset()
    replays: Mapping[Place, Sequence[str]] = field(default_factory=dict)


class Way(StrEnum):
    """What a replay of one dead letter comes to."""

    UNCHANGED = "unchanged"
    RAW = "raw"
    MENDED = "mended"
    SKIPPED = "skipped"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, slots=True)
class Step:
    """What would be done about the dead letters of one record; `why` says it for people.

    `intent` is the new intent, None for a raw copy; `first` the position that it keeps, None for none.
    """

    letters: tuple[Letter, ...]
    way: Way
    why: str
    intent: events.DeletionIntent | None = None
    first: events.Position | None = None
    replays: tuple[str, ...] = ()

    @property
    def letter(self) -> Letter:
        """Return the latest of the letters."""
        return self.letters[-1]

    @property
    def writes(self) -> bool:
        """Return whether anything would be written."""
        return self.way in (Way.UNCHANGED, Way.RAW, Way.MENDED)

    @property
    def keys(self) -> int | None:
        """Return how many keys would be named again; None where nobody knows."""
        return (self.intent.action.key_count or None) if self.intent else self.letter.keys


def restrict(intent: events.DeletionIntent, keys: Sequence[str]) -> events.DeletionIntent | None:
    """Return the intent for these of its keys alone, for all if none is named; None if it has none of them.

    Phases keep their order and empty ones go; conditions go with their keys. A prefix is never cut: it is
    listed again, and what is gone is not found.
    """
    if not keys:
        return intent
    wanted = frozenset(keys)
    action = intent.action.for_keys(wanted)
    if action is None or action is intent.action:
        return None if action is None else intent
    return replace(intent, guards=tuple(guard.for_keys(wanted) for guard in intent.guards), action=action)


def plan(
    letters: Iterable[Letter],
    evidence: Evidence,
    *,
    again: bool,
    now: datetime,
    emitter: str,
    new_id: Callable[[], str],
) -> list[Step]:
    """Return what a replay of these letters comes to, one step for each record that became dead letters.

    A micro-batch that was processed twice has written its dead letters twice: they are one step, for every
    key that any of them names. Without `again` a record that was replayed already is skipped.
    """
    groups: dict[tuple[events.ReplayOf, bytes | None], list[Letter]] = {}
    for letter in sorted(letters, key=lambda letter: (letter.event.dead_at, letter.place)):
        groups.setdefault((letter.source, letter.value), []).append(letter)
    return [
        _step(tuple(group), evidence, again=again, now=now, emitter=emitter, new_id=new_id)
        for group in groups.values()
    ]


def mend(
    letter: Letter,
    intent: events.DeletionIntent,
    evidence: Evidence,
    *,
    again: bool,
    new_id: Callable[[], str],
) -> Step:
    """Return the step that writes mended content for one letter: a new intent that is judged where it stands.

    Raises InvalidEvent when the content breaks a rule of intents.
    """
    if intent.intent_id == letter.intent_id:
        intent = replace(intent, intent_id=new_id())
    intent = replace(intent, replay_of=letter.source)
    check_intent(intent)
    replays = tuple(evidence.replays.get(letter.place, ()))
    if replays and not again:
        return Step((letter,), Way.SKIPPED, "replayed already", replays=replays)
    why = "mended: a new intent, judged at the position at which it will stand"
    return Step((letter,), Way.MENDED, why, intent, replays=replays)


def _step(
    letters: tuple[Letter, ...],
    evidence: Evidence,
    *,
    again: bool,
    now: datetime,
    emitter: str,
    new_id: Callable[[], str],
) -> Step:
    letter = letters[-1]
    replays = tuple(evidence.replays.get(letter.place, ()))
    if replays and not again:
        return Step(letters, Way.SKIPPED, "replayed already", replays=replays)
    if (why := _impossible(letter, evidence)) is not None:
        return Step(letters, Way.IMPOSSIBLE, why, replays=replays)
    if letter.intent is None:
        reason = letter.trouble.reason if letter.trouble else "unknown"
        why = f"undecodable here ({reason}): its bytes as they are, at their first position"
        return Step(letters, Way.RAW, why, first=letter.first, replays=replays)
    intent = restrict(letter.intent, _failed(letters))
    if intent is None:
        return Step(
            letters, Way.IMPOSSIBLE, "the keys that failed are not keys of the intent", replays=replays
        )
    try:
        check_intent(intent)
    except InvalidEvent as error:
        return Step(letters, Way.IMPOSSIBLE, f"it breaks a rule, mend it: {error}", replays=replays)
    intent = replace(intent, intent_id=new_id(), emitted_at=now, emitter=emitter, replay_of=letter.source)
    return Step(letters, Way.UNCHANGED, "keeps its first position", intent, letter.first, replays)


def _impossible(letter: Letter, evidence: Evidence) -> str | None:
    """Return why a letter cannot be replayed as it is, None if it can."""
    if letter.event.raw_value is None:
        return "the record has no value"
    if letter.first is None or letter.value is None:
        return "a record of the deferred topic that cannot be read: nobody knows where it first stood"
    if (dies := _dies_again(letter)) is not None:
        return dies
    if letter.place not in evidence.standing:
        first = f"{letter.first.partition}/{letter.first.offset}"
        return f"its bytes no longer stand at {first} of the intents topic: that proves nothing, mend it"
    return None


def _dies_again(letter: Letter) -> str | None:
    """Return why no reaper can work on these bytes, None if one may."""
    if letter.event.reason == _TOO_LARGE:
        # A letter may hold the beginning of the bytes alone, and all of them are too many again.
        return f"{_TOO_LARGE} as it is, mend it: name fewer keys in an intent"
    if letter.trouble is not None and letter.trouble.reason not in _NOT_OURS:
        return f"{letter.trouble.reason}: it would die again, mend it"
    return None


def _failed(letters: Sequence[Letter]) -> Sequence[str]:
    """Return the keys that any of the letters names; none if one of them is about all."""
    if not all(letter.event.keys for letter in letters):
        return ()
    return tuple(dict.fromkeys(key for letter in letters for key in letter.event.keys))
