"""What is done about each state that the store's reply gave a key: a pure rule, one step per state.

The four classes of errors (architecture, section 6) end here: a key is sent again, verified, given up with a
outcome, or held with its bucket; what is wrong with everything stops the micro-batch. An outcome of no effect
(`changed`, `dead-lettered`) about a key that may have been sent before is only written after the object was
seen: a key that is gone is `absent`, whatever the store answered last.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sexton.schemas.events import OutcomeKind
from sexton.storage import KeyState, Kind
from sexton.storage.states import THROTTLING
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt

__all__ = [
    "EARLIER_PHASE",
    "MOST_TRIES",
    "SLOW_BUCKET",
    "ItemOutcome",
    "Presence",
    "Step",
    "after_verification",
    "is_denied",
    "is_throttled",
    "step_of",
]

MOST_TRIES = 6
"""How often a key is sent in one task before its intent waits: the next try comes seconds later."""


class Step(StrEnum):
    """What is done next about one key."""

    DONE = "done"
    RETRY = "retry"
    VERIFY = "verify"
    DENIED = "denied"
    BUCKET = "hold the bucket"
    UNUSABLE = "give the bucket up"
    ENVIRONMENT = "hold the micro-batch"


class Presence(StrEnum):
    """What the verification of an object showed; unknown is never a yes."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ItemOutcome:
    """What became of one key; without an outcome the key is held and its intent waits.

    `reason` is the store's code or ours, `effect` how the object went (hidden, erased, deleted),
    `request_id` of the reply that says so. `unknown`: it may have gone without an outcome. `stands`: an
    object was seen under the key, whatever the outcome says of the one that was meant.
    """

    kind: OutcomeKind | None
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
    """Return whether the store asked for fewer requests."""
    return state.code in THROTTLING or state.status in (429, 503)


def is_denied(state: KeyState) -> bool:
    """Return whether a policy, not a lock, denied this key."""
    return state.code in _DENIED and state.retain_until is None and not state.legal_hold


def step_of(
    state: KeyState, *, may_be_gone: bool, repeat_creates_marker: bool, tries: int
) -> tuple[Step, ItemOutcome]:
    """Return what to do about a key with this state, and its outcome so far.

    `may_be_gone`: an earlier attempt may have deleted it, or it names a version, of which a store may say
    that the id is invalid once it is gone. `repeat_creates_marker`: sending it twice leaves a second delete
    marker, so it is verified before any repeat. `tries` counts how often this task sent it.
    """
    unknown, code = state.effect_unknown, state.code or str(state.status or "")
    outcome = ItemOutcome(None, code, str(state), unknown=unknown)
    match state.kind:
        case Kind.GONE:
            return Step.DONE, ItemOutcome(OutcomeKind.DELETED)
        case Kind.ABSENT:
            return Step.DONE, ItemOutcome(OutcomeKind.ABSENT, code)
        case Kind.CHANGED:
            return Step.VERIFY, ItemOutcome(OutcomeKind.CHANGED, code, str(state))
        case Kind.REFUSED:
            return Step.DONE, ItemOutcome(OutcomeKind.REFUSED, code, str(state))
        case Kind.FINAL if state.retain_until is not None or state.legal_hold:
            return Step.DONE, ItemOutcome(OutcomeKind.REFUSED, "locked", str(state))
        case Kind.FINAL if is_denied(state):
            return Step.DENIED, ItemOutcome(OutcomeKind.DEAD_LETTERED, code, str(state))
        case Kind.FINAL | Kind.UNUSABLE:
            dead = ItemOutcome(OutcomeKind.DEAD_LETTERED, code, str(state))
            return (Step.VERIFY if may_be_gone else Step.DONE), dead
        case Kind.ENVIRONMENT:
            return Step.ENVIRONMENT, outcome
        case Kind.BUCKET if not is_throttled(state):
            return Step.BUCKET, outcome
        case Kind.TRANSIENT | Kind.UNKNOWN | Kind.UNACCOUNTED if tries >= MOST_TRIES:
            # Without an outcome it is held; of what may be gone one verification may still tell.
            return (Step.VERIFY if unknown else Step.DONE), outcome
    return (Step.VERIFY if unknown and repeat_creates_marker else Step.RETRY), outcome


def after_verification(
    outcome: ItemOutcome, presence: Presence, earlier: Attempt | None, *, stood: bool = False
) -> tuple[Step, ItemOutcome]:
    """Return what verification decides about a key whose outcome hung on it.

    Where another object stands under the key, and an earlier attempt may have deleted the one that was meant,
    that one is gone: `absent`. `stood` says that what stands there did so before that attempt: then the
    attempt did not meet the one that was meant, and `changed` is true (J-5: truly, whichever happened).
    """
    if presence is Presence.UNKNOWN and outcome.kind is OutcomeKind.DEAD_LETTERED and earlier is None:
        return Step.DONE, outcome  # of a key that was never sent before: nothing can have happened to it
    if presence is Presence.UNKNOWN:
        unknown = outcome.unknown or earlier is not None  # a condition that did not hold had no effect
        return Step.DONE, ItemOutcome(
            None, outcome.reason, f"{outcome.detail}; it could not be verified", unknown=unknown
        )
    if presence is Presence.ABSENT:
        return Step.DONE, ItemOutcome(OutcomeKind.ABSENT, outcome.reason)
    if outcome.kind is None:
        return Step.RETRY, outcome
    if outcome.kind is OutcomeKind.CHANGED and earlier and earlier.was_changed is False and not stood:
        message = "another object stands under the key"
        return Step.DONE, ItemOutcome(OutcomeKind.ABSENT, outcome.reason, message, stands=True)
    return Step.DONE, outcome
