"""What is done about each state that the store's reply gave a key: a pure rule, one step per state.

The four classes of errors (architecture, section 6) end here: a key is sent again, looked at, given up with a
word, or held with its bucket; what is wrong with everything stops the micro-batch. A word of no effect
(`changed`, `dead-lettered`) about a key that may have been sent before is only written after the object was
seen: a key that is gone is `absent`, whatever the store answered last.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sexton.schemas.events import OutcomeWord
from sexton.storage import KeyState, Kind
from sexton.storage.states import THROTTLING

__all__ = [
    "EARLIER_PHASE",
    "MOST_TRIES",
    "SLOW_BUCKET",
    "Fate",
    "Seen",
    "Step",
    "after_look",
    "is_denied",
    "is_throttled",
    "step_of",
]

MOST_TRIES = 6
"""How often a key is sent in one task before its intent waits: the next try comes seconds later."""


class Step(StrEnum):
    """What is done next about one key."""

    DONE = "done"
    AGAIN = "send again"
    LOOK = "look"
    DENIED = "denied"
    BUCKET = "hold the bucket"
    ENVIRONMENT = "hold the micro-batch"


class Seen(StrEnum):
    """What a look at an object showed; unknown is never a yes."""

    THERE = "there"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one key; without a word the key is held and its intent waits.

    `reason` is the store's code or ours, `effect` how the object went (hidden, erased, deleted),
    `request_id` of the reply that says so. `unknown`: it may have gone without a word. `stands`: an object
    was seen under the key, whatever the word says of the one that was meant.
    """

    word: OutcomeWord | None
    reason: str = ""
    detail: str = ""
    effect: str = ""
    request_id: str = ""
    unknown: bool = False
    stands: bool = False


EARLIER_PHASE = "earlier-phase"
"""The reason of what was never sent, as a key of an earlier phase is not gone."""
SLOW_BUCKET = "slow-bucket"
"""The reason of what waits because its bucket, which works, used up its slice of time."""
_DENIED = frozenset(["AccessDenied", "403", "AllAccessDisabled"])


def is_throttled(state: KeyState) -> bool:
    """Tell whether the store asked for fewer requests."""
    return state.code in THROTTLING or state.status in (429, 503)


def is_denied(state: KeyState) -> bool:
    """Tell whether a policy, not a lock, denied this key."""
    return state.code in _DENIED and state.retain_until is None and not state.legal_hold


def step_of(state: KeyState, *, may_be_gone: bool, repeat_marks: bool, tries: int) -> tuple[Step, Fate]:
    """Return what to do about a key with this state, and its fate so far.

    `may_be_gone`: an earlier attempt may have deleted it, or it names a version, of which a store may say
    that the id is invalid once it is gone. `repeat_marks`: sending it twice leaves a trace (a second delete
    marker), so it is looked at before any repeat. `tries` counts how often this task sent it.
    """
    unknown, code = state.effect_unknown, state.code or str(state.status or "")
    fate = Fate(None, code, str(state), unknown=unknown)
    match state.kind:
        case Kind.GONE:
            return Step.DONE, Fate(OutcomeWord.DELETED)
        case Kind.ABSENT:
            return Step.DONE, Fate(OutcomeWord.ABSENT, code)
        case Kind.CHANGED:
            return Step.LOOK, Fate(OutcomeWord.CHANGED, code, str(state))
        case Kind.REFUSED:
            return Step.DONE, Fate(OutcomeWord.REFUSED, code, str(state))
        case Kind.FINAL if state.retain_until is not None or state.legal_hold:
            return Step.DONE, Fate(OutcomeWord.REFUSED, "locked", str(state))
        case Kind.FINAL if is_denied(state):
            return Step.DENIED, Fate(OutcomeWord.DEAD_LETTERED, code, str(state))
        case Kind.FINAL:
            dead = Fate(OutcomeWord.DEAD_LETTERED, code, str(state))
            return (Step.LOOK if may_be_gone else Step.DONE), dead
        case Kind.ENVIRONMENT:
            return Step.ENVIRONMENT, fate
        case Kind.BUCKET if not is_throttled(state):
            return Step.BUCKET, fate
        case Kind.TRANSIENT | Kind.UNKNOWN | Kind.UNACCOUNTED if tries >= MOST_TRIES:
            # Without a word it is held; of what may be gone one look may still tell.
            return (Step.LOOK if unknown else Step.DONE), fate
    return (Step.LOOK if unknown and repeat_marks else Step.AGAIN), fate


@dataclass(frozen=True, slots=True)
class Earlier:
    """An attempt that may have deleted a key, and of which nobody knows what became.

    It was not made before `since`, seconds since 1970 (None: nobody knows). `was_changed`: a receipt says so
    (None: nobody knows).
    """

    since: float | None = None
    was_changed: bool | None = False

    def beside(self, other: Earlier | None) -> Earlier:
        """Return what is known of a key where an attempt of another intent was about it, too: the worst."""
        if other is None:
            return self
        known = [each.since for each in (self, other) if each.since is not None]
        said = {self.was_changed, other.was_changed}
        changed = None if None in said else True
        return Earlier(min(known) if len(known) == 2 else None, False if False in said else changed)


def after_look(fate: Fate, seen: Seen, earlier: Earlier | None, *, stood: bool = False) -> tuple[Step, Fate]:
    """Return what a look decides about a key whose fate hung on it.

    Where another object stands under the key, and an earlier attempt may have deleted the one that was meant,
    that one is gone: `absent`. `stood` tells that what stands there did so before that attempt: then the
    attempt did not meet the one that was meant, and `changed` is true (J-5: truly, whichever happened).
    """
    if seen is Seen.UNKNOWN and fate.word is OutcomeWord.DEAD_LETTERED and earlier is None:
        return Step.DONE, fate  # of a key that was never sent before: nothing can have happened to it
    if seen is Seen.UNKNOWN:
        unknown = fate.unknown or earlier is not None  # a condition that did not hold had no effect
        return Step.DONE, Fate(
            None, fate.reason, f"{fate.detail}; it could not be looked at", unknown=unknown
        )
    if seen is Seen.ABSENT:
        return Step.DONE, Fate(OutcomeWord.ABSENT, fate.reason)
    if fate.word is None:
        return Step.AGAIN, fate
    if fate.word is OutcomeWord.CHANGED and earlier and earlier.was_changed is False and not stood:
        told = "another object stands under the key"
        return Step.DONE, Fate(OutcomeWord.ABSENT, fate.reason, told, stands=True)
    return Step.DONE, fate
