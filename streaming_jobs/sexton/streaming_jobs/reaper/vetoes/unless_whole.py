"""Judging whether a unit is whole: its commit object is there, and a listing shows every file that it names.

Decided by what stands in the bucket, never by what is believed sent: a replay cannot know that. A commit
object that came late, or that somebody has put back, has made a unit of what looked partial.
"""

from __future__ import annotations

from dataclasses import dataclass

from sexton.schemas.units import named_by
from sexton.schemas.vetoes import UnlessWhole
from sexton.storage import Deleter, Kind, NoReply, StoreRefused
from sexton.streaming_jobs.reaper.execute.outcomes import Presence
from sexton.streaming_jobs.reaper.execute.verification import state_of
from sexton.streaming_jobs.reaper.vetoes.presence import presence_of
from sexton.streaming_jobs.reaper.vetoes.room import First, Now, Said, Stop, Wait

__all__ = ["Unit", "ask", "verdict"]

_MOST_FILES = 100_000  # beside a commit object: what lists more is no unit, and would hold up its task


@dataclass(frozen=True, slots=True)
class Unit:
    """What was seen of a unit: its commit object, and what is `missing` of it (None: it is whole).

    `unknown` says why nobody can tell.
    """

    presence: Presence
    missing: str | None = None
    unknown: str = ""


def ask(veto: UnlessWhole, bucket: str, deleter: Deleter) -> Unit:
    """Return what the bucket shows of the unit; raises EnvironmentFault.

    The commit object is read before the listing: a file that is put between both is seen, and one that goes
    is missing at the worst, when the commit object is deleted first.
    """
    presence, why = presence_of(deleter, bucket, veto.key)
    if presence is not Presence.PRESENT:
        return Unit(presence, unknown=why)
    try:
        named = named_by(deleter.calls.get(bucket, veto.key))
        return Unit(Presence.PRESENT, named.missing(_listed(bucket, veto.key, deleter)))
    except (ValueError, StoreRefused, NoReply) as error:
        # What cannot be read of one unit (a body that is too long) is no fault of its bucket.
        if isinstance(error, NoReply) and state_of(error).kind is Kind.ENVIRONMENT:
            raise
        return Unit(Presence.UNKNOWN, unknown=str(error))


def verdict(veto: UnlessWhole, asked: Unit, now: Now) -> Said:
    """Return that it stops where the unit is whole, and that its commit object goes first where it is not."""
    if asked.presence is Presence.ABSENT:
        return None
    if asked.presence is Presence.UNKNOWN:
        return Wait(
            "veto-unknown", f"whether the unit of {veto.key!r} is whole cannot be told: {asked.unknown}"
        )
    if asked.missing is None:
        return Stop("whole", f"the unit of {veto.key!r} is whole")
    # Data that goes below a commit object leaves a unit that names what is gone.
    return First(veto.key)


def _listed(bucket: str, key: str, deleter: Deleter) -> dict[str, int]:
    """Return the files beside a commit object, by their path in the unit; ValueError if that is not exact."""
    folder = key[: key.rfind("/") + 1]
    known, found, after = deleter.abilities(bucket), {}, None
    while True:
        page = deleter.calls.list_slice(bucket, folder, after)
        keys = [entry.key for entry in page.objects]
        # A page that continues one out of order leaves files out: a whole unit would look like half of one.
        if (page.after or after) and (keys != sorted(keys) or (keys and keys[0] <= (after or ""))):
            raise ValueError("the listing goes in circles, or in no order")
        for entry in page.objects:
            if not (entry.exact and known.lists(entry.key) and entry.key.startswith(folder)):
                raise ValueError(f"the listing may show another key as {entry.key!r}")
            found[entry.key.removeprefix(folder)] = entry.size
        if len(found) > _MOST_FILES:
            raise ValueError(f"more than {_MOST_FILES} files lie beside it")
        if page.after is None:
            return found
        after = page.after
