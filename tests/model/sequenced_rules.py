"""The pure rules of boundary files: the boundary's text, what an advance writes, what a writer is told.

Each models a decision of one participant, with all that it has read passed in: of the judge `boundary_of`,
`named`, `behind_newest` and `advance`, of the writer `told`, `found` and
`missing`, of the collector `plan`. Nothing
here knows of the model's world: a rule of the product with the same arguments can stand in its place.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from enum import Enum
from typing import NamedTuple

LARGEST = 2**63 - 1
_TEXT = re.compile(r"[0-9]{1,20}\n?")


class Told(Enum):
    """What a writer is told of its create, or has to do to find out."""

    SUCCESS = "success"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"
    VANISHED = "vanished"
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
    if text is None:
        return 0
    if _TEXT.fullmatch(text) is None:
        return None
    value = int(text)
    return value if value < 2**64 else None


def named(ids: Collection[int], bound: int) -> bool:
    """Return whether an intent names only files that its own guard puts behind the boundary."""
    return bound <= LARGEST and all(id <= bound for id in ids)


def behind_newest(bound: int, listed: Collection[int]) -> bool:
    """Return whether a listing shows a file above the id to which the boundary is to be raised."""
    return any(id > bound for id in listed)


def set_back(boundary: int, floor: int) -> bool:
    """Return whether the boundary is lower than it was when an intent was planned."""
    return boundary < floor


def advance(text: str | None, wanted: Sequence[Wanted]) -> Advance:
    """Return what to write so that every intent which goes on has the boundary that it asks for."""
    boundary = boundary_of(text)
    if boundary is None:
        return Advance(None, tuple(range(len(wanted))))
    deferred = tuple(number for number, each in enumerate(wanted) if set_back(boundary, each.floor))
    highest = max((each.id for number, each in enumerate(wanted) if number not in deferred), default=0)
    return Advance(highest if highest > boundary else None, deferred)


def passed_by(id: int, boundary: int) -> bool:
    """Return whether a file of this id may have been deleted: the boundary is inclusive."""
    return id <= boundary


def vanished(text: str | None, seen: bool) -> bool:
    """Return whether a boundary is gone that was seen before."""
    return seen and text is None


def told(id: int, text: str | None, seen: bool) -> Told:
    """Return what a writer is told whose file stands, with the boundary that it has read after the create.

    `seen` is that it has seen a boundary before.
    """
    if vanished(text, seen):
        return Told.VANISHED
    boundary = boundary_of(text)
    if boundary is None:
        return Told.UNREADABLE
    return Told.CONFLICT if passed_by(id, boundary) else Told.SUCCESS


def is_own(nonce: str, own: str) -> bool:
    """Return whether the file that was read back is the writer's own."""
    return nonce == own


def found(nonce: str, own: str) -> Told:
    """Return what a put has come to whose fate is unknown, with the file that was read back."""
    return Told.CHECK if is_own(nonce, own) else Told.CONFLICT


def missing(id: int, text: str | None, seen: bool) -> Told:
    """Return what such a put has come to where no file was read back, with the boundary that was read then.

    Collected, whosever it was: nobody can tell. Else it has not landed yet.
    """
    said = told(id, text, seen)
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
