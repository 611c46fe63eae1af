"""The end of waiting: what a bucket held past the age limit is verified once more and gets its final outcome.

What is gone is `absent`, what was seen is a dead letter that says why it waited. While a key may have been
deleted by an earlier attempt and cannot be verified, its intent continues waiting: no outcome says that
nothing happened to it.
"""

from __future__ import annotations

from collections.abc import Callable

from sexton.schemas.errors import EnvironmentFault
from sexton.schemas.events import OutcomeKind
from sexton.streaming_jobs.reaper.execute.jobs import fault_of_call
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome, Presence, Step

__all__ = ["EXPIRED", "expired", "listed"]

EXPIRED = "expired"
"""The reason of dead letters that waited longer than the age limit."""


def expired(outcome: ItemOutcome, presence: Presence, *, maybe_sent: bool) -> ItemOutcome:
    """Return the final outcome of what was held past the age limit; none while it may be gone unseen."""
    if presence is Presence.ABSENT:
        return ItemOutcome(OutcomeKind.ABSENT, outcome.reason)
    if presence is Presence.UNKNOWN and maybe_sent:
        return ItemOutcome(
            None, outcome.reason, f"{outcome.detail}; past the age limit, and not to be seen", unknown=True
        )
    return ItemOutcome(
        OutcomeKind.DEAD_LETTERED, EXPIRED, f"held past the age limit: {outcome.detail or outcome.reason}"
    )


def listed(found: Callable[[], bool]) -> Presence:
    """Return what a listing shows, unknown where none comes; raises EnvironmentFault."""
    try:
        return Presence.PRESENT if found() else Presence.ABSENT
    except Exception as error:
        step, outcome = fault_of_call(error)
        if step is Step.ENVIRONMENT:
            raise EnvironmentFault(f"what waited too long cannot be verified: {outcome.detail}") from error
        return Presence.UNKNOWN
