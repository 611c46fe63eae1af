"""The pure rules of boundary files: the boundary's text, what an advance writes, what a writer is told.

Each is a decision of one participant, with all that it has read passed in, and asks the product: the judge's
`named`, `behind_newest`, `set_back` and `advance` the reaper's guard; a writer's `seen`, `told`, `found` and
`missing` the SDK's `observed`, `whose` and `Boundary.is_dead`; a boundary's text `parse_boundary`. The
collector's `plan` is the model's own. Nothing here knows of the model's world.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from sexton.producers import _sequenced_rules
from sexton.producers._errors import BoundaryLowered, BoundaryUnreadable, BoundaryVanished
from sexton.producers._sequenced_rules import Boundary, Whose
from sexton.producers._sequenced_store import NoObject, StoredObject
from sexton.schemas import sequenced
from sexton.schemas.actions import DeleteObjects
from sexton.schemas.errors import InvalidFormat
from sexton.schemas.guards import BoundaryGuard
from sexton.schemas.sequenced import MAX_FILE_ID, Namespace
from sexton.streaming_jobs.reaper.execute import boundaries
from sexton.streaming_jobs.reaper.guards import Met
from sexton.streaming_jobs.reaper.guards import boundary as guard

_SPACE = Namespace("db", "manifest")


class Told(Enum):
    """What a writer is told of its create, or has to do to find out."""

    SUCCESS = "success"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"
    VANISHED = "vanished"
    LOWERED = "lowered"
    UNREADABLE = "unreadable"
    CHECK = "check"
    PUT_AGAIN = "put again"


class Wanted(NamedTuple):
    """What an intent asks of the boundary: to be at least `id`, and not below what its collector saw."""

    id: int
    floor: int


class Advance(NamedTuple):
    """What the judge does about the boundary that it has read.

    `value` is what it writes, None where that is high enough; `deferred` are the numbers of the intents that
    get no further: the boundary cannot be read, or is not what their collectors saw.
    """

    value: int | None
    deferred: tuple[int, ...]


class Plan(NamedTuple):
    """What one run of the collector asks for: the files that go, and the guard's id and floor."""

    ids: tuple[int, ...]
    id: int
    floor: int


def boundary_of(text: str | None) -> int | None:
    """Return the boundary that stands in the object, 0 without one; None where the text is no id."""
    try:
        return 0 if text is None else sequenced.parse_boundary(text.encode())
    except InvalidFormat:
        return None


def named(ids: Collection[int], bound: int) -> bool:
    """Return whether an intent names only files that its own guard puts behind the boundary."""
    case: Any = SimpleNamespace(action=DeleteObjects("b", (tuple(map(_SPACE.key, ids)),)))
    return bound <= MAX_FILE_ID and isinstance(guard.verdict(_guard(bound), case), Met)


def behind_newest(bound: int, listed: Collection[int]) -> bool:
    """Return whether a listing shows a file above the id to which the boundary is to be raised."""
    return not boundaries.newest_refusals([_guard(bound)], max(listed, default=None))


def set_back(boundary: int, floor: int) -> bool:
    """Return whether the boundary is lower than it was when an intent was planned."""
    return boundaries.set_back(_guard(1, floor), boundary, exists=True) is not None


def advance(text: str | None, wanted: Sequence[Wanted]) -> Advance:
    """Return what to write so that every intent which goes on has the boundary that it asks for."""
    boundary = boundary_of(text)
    if boundary is None:
        return Advance(None, tuple(range(len(wanted))))
    if not wanted:
        return Advance(None, ())
    guards = [_guard(*each) for each in wanted]
    told, value = boundaries.decide(guards, boundary, exists=text is not None)
    return Advance(value, tuple(number for number, each in enumerate(guards) if told[each] is not None))


@cache
def _guard(id: int, floor: int | None = None) -> BoundaryGuard:
    return BoundaryGuard(_SPACE.text, id, floor)


_STOPS = {
    BoundaryVanished: Told.VANISHED,
    BoundaryLowered: Told.LOWERED,
    BoundaryUnreadable: Told.UNREADABLE,
}
_BODY = b"what every writer writes"


def seen(known: Boundary, text: str | None) -> Boundary | Told:
    """Return what a writer knows of the boundary after it has read it, or what stops the writer."""
    answer = NoObject.ABSENT if text is None else StoredObject(text.encode(), "", None)
    try:
        return _sequenced_rules.observed(known, "the boundary", answer)
    except tuple(_STOPS) as error:
        return _STOPS[type(error)]


def told(id: int, boundary: Boundary | Told) -> Told:
    """Return what a writer is told whose file stands, with what it has seen of the boundary since."""
    if isinstance(boundary, Told):
        return boundary
    return Told.CONFLICT if boundary.is_dead(id) else Told.SUCCESS


def found(nonce: str, own: str) -> Told:
    """Return what a put has come to whose fate is unknown, with the nonce of the file that was read back."""
    whose = _sequenced_rules.whose(StoredObject(_BODY, "", nonce), own, _BODY)
    return {Whose.OWN: Told.CHECK, Whose.ANOTHERS: Told.CONFLICT}[whose]


def missing(id: int, boundary: Boundary | Told) -> Told:
    """Return what such a put has come to where no file was read back, with the boundary seen after that.

    Collected, whosever it was: nobody can tell. Else it has not landed yet.
    """
    said = told(id, boundary)
    return {Told.SUCCESS: Told.PUT_AGAIN, Told.CONFLICT: Told.UNKNOWN}.get(said, said)


def released(ids: Collection[int], held: Collection[int]) -> tuple[int, ...]:
    """Return the files that no active checkpoint holds."""
    return tuple(sorted(set(ids) - set(held)))


def plan(listed: Collection[int], held: Collection[int], text: str | None) -> Plan | None:
    """Return what the collector asks for: all but the newest file and those that a checkpoint holds.

    None where nothing goes, or the boundary cannot be read.
    """
    floor = boundary_of(text)
    ids = released([id for id in listed if id != max(listed)], held)
    return Plan(ids, max(ids), floor) if ids and floor is not None else None
