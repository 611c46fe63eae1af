"""Making boundary guards true: for all intents of a namespace at once, with one list, one read and one write.

Judged last: whoever is here may be executed but for this. The order is what makes it safe: the boundary is
durable before the first delete is sent. A writer that was about to create one of these files reads it after
its create and finds itself stale; deleted first, its create would have been told a success, and the state
that stands on it would fork. A crash in between leaves a boundary that is raised and files that stand: the
next try finds both and deletes.

Two mistakes have to be impossible, as a boundary is never lowered again. Raised to the newest file or above,
it would lock every writer out: so a higher file has to be seen first. Raised on what a restored backup holds,
it would hide that ids are alive which were dead: so whoever saw a higher one writes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sexton.schemas.errors import EnvironmentFault, InvalidFormat
from sexton.schemas.events import BoundaryGuard, OutcomeKind
from sexton.schemas.sequenced import MAX_BOUNDARY, Namespace, boundary_text, parse_boundary
from sexton.storage import (
    Ability,
    Absent,
    Found,
    Kind,
    ListingFault,
    NoReply,
    StoreRefused,
    Written,
    compare_and_put,
    create_if_absent,
    read_if_changed,
)
from sexton.storage.listing import checked
from sexton.storage.probing import is_about_more
from sexton.streaming_jobs.reaper.execute.paced import PacedDeleter
from sexton.streaming_jobs.reaper.execute.verification import state_of
from sexton.streaming_jobs.reaper.vetoes import Stop, Wait

__all__ = ["Advanced", "advance", "decide", "newest_refusals", "set_back"]

_SET_BACK = frozenset(["boundary-unreadable", "boundary-vanished", "boundary-lowered"])
"""Reasons of waiting for a person: somebody else has written or deleted the boundary object."""

_MOST_TRIES = 8  # of a write that others were ahead of, or whose fate nobody knows
_FEW, _PAGE = 10, 1000  # keys of a listing that is to show one file above those that go, and of the next ones


@dataclass(frozen=True, slots=True)
class Advanced:
    """What became of each guard: it holds (None), never will, or nobody can tell now; and writes tried."""

    told: Mapping[Any, Stop | Wait | None]
    writes: int = 0

    @property
    def set_back(self) -> Mapping[str, str]:
        """The namespaces whose boundary waits for a person."""
        waits = ((guard, said) for guard, said in self.told.items() if isinstance(said, Wait))
        return {guard.namespace: said.detail for guard, said in waits if said.reason in _SET_BACK}


@dataclass(frozen=True, slots=True)
class _Stands:
    """The boundary object as it was read; `etag` is None where there is none, which counts as 0."""

    value: int = 0
    etag: str | None = None


def advance(
    store: PacedDeleter, bucket: str, guards: Collection[BoundaryGuard], dry: bool = False
) -> Advanced:
    """Make guards of one namespace true, as far as they may be; a dry run only looks.

    What the store says of these objects alone is told as a reason to wait. Raises StoreRefused for what is
    about the bucket, EnvironmentFault for what is about everything; not in a dry run: who only looks may have
    no right at the store.
    """
    try:
        return _advance(store, bucket, guards, dry=dry)
    except ListingFault as fault:
        return _all_wait(guards, str(fault))
    except (StoreRefused, EnvironmentFault) as error:
        if not dry and (not isinstance(error, StoreRefused) or is_about_more(error)):
            raise
        return _all_wait(guards, str(error))


def _advance(store: PacedDeleter, bucket: str, guards: Collection[BoundaryGuard], *, dry: bool) -> Advanced:
    space = next(iter(guards)).space
    # A dry run tries nothing out: what the listing shows is what it goes by.
    shown = dry or _lists(store, bucket, space.folder)
    refused = newest_refusals(guards, _newest(store, bucket, space, guards) if shown else None)
    left = [guard for guard in guards if guard not in refused]
    if not left:
        return Advanced(refused)
    # Before anything is raised or deleted: with writers that are not refused no boundary is of use.
    unsafe = None if dry else _unsafe(store, bucket)
    if unsafe is not None:
        return Advanced({**refused, **dict.fromkeys(left, unsafe)})
    raised = _raise(store, bucket, space, left, dry=dry)
    return Advanced({**refused, **raised.told}, raised.writes)


def _all_wait(
    guards: Collection[BoundaryGuard], detail: str, writes: int = 0, *, reason: str = "boundary-unknown"
) -> Advanced:
    return Advanced(dict.fromkeys(guards, Wait(reason, detail)), writes)


# -- the newest file


def newest_refusals(guards: Collection[BoundaryGuard], newest: int | None) -> dict[BoundaryGuard, Stop]:
    """Return which guards cover the newest file, or ids above it; `newest` is None where none was seen."""
    seen = "no file above it is there" if newest is None else f"the newest file that was seen is {newest}"
    return {
        guard: Stop("newest-file", f"no boundary is raised to {guard.id}: {seen}", OutcomeKind.REFUSED)
        for guard in guards
        if newest is None or newest <= guard.id
    }


def _lists(store: PacedDeleter, bucket: str, folder: str) -> bool:
    """Return whether what a listing shows under this name is certain to be these files."""
    known = store.abilities(bucket)
    return known.lists(folder) or store.probe(bucket).lists(folder)


def _newest(
    store: PacedDeleter, bucket: str, space: Namespace, guards: Collection[BoundaryGuard]
) -> int | None:
    """Return an id above all guards if such a file is there, else the highest above the lowest guard.

    One request where nobody asks for too much, as then a file follows the highest guard at once.
    """
    ids = [guard.id for guard in guards]
    above = next(_ids_after(store, bucket, space, max(ids), _FEW), None)
    if above is not None or min(ids) == max(ids):
        return above
    return max(_ids_after(store, bucket, space, min(ids)), default=None)


def _ids_after(
    store: PacedDeleter, bucket: str, space: Namespace, id: int, limit: int = _PAGE
) -> Iterator[int]:
    """Yield the ids of the files above one; raises ListingFault rather than say that no more follow."""
    after: str | None = space.key(id)
    while after is not None and after < space.key(MAX_BOUNDARY):
        page = store.calls.list_slice(bucket, space.folder, after, limit)
        found = (space.id_of(listed.key) for listed in page.objects if listed.exact)
        yield from (each for each in found if each is not None and each > id)
        # A file that is shown is there, whatever the rest is. That none is refuses an intent for good: a page
        # that leaves some out, or begins anew and would be asked for without end, does not say it.
        after, limit = checked(page, space.folder, after).after, _PAGE


# -- the store


def _unsafe(store: PacedDeleter, bucket: str) -> Stop | Wait | None:
    known = store.probe_writes(bucket)
    if known.conditional_writes is Ability.YES:
        return None
    if known.conditional_writes is Ability.UNKNOWN:
        why = known.writes_detail or "it was not found out"
        return Wait("boundary-unknown", f"whether the store's conditional writes are real: {why}")
    detail = f"of writers that race several may win here: {known.writes_detail}"
    return Stop("conditional-writes-not-real", detail, OutcomeKind.REFUSED)


# -- the boundary


def set_back(guard: BoundaryGuard, value: int, *, exists: bool) -> Wait | None:
    """Return that the boundary is lower than the guard's collector saw it, None if it is not."""
    if guard.floor is None or guard.floor <= value:
        return None
    seen = f"the boundary of {guard.namespace!r} was {guard.floor} when its files were listed"
    if not exists:
        return Wait("boundary-vanished", f"{seen}, and is gone")
    return Wait("boundary-lowered", f"{seen}, and is {value}")


def decide(
    guards: Collection[BoundaryGuard], value: int, *, exists: bool
) -> tuple[dict[BoundaryGuard, Stop | Wait | None], int | None]:
    """Return what each guard comes to with the boundary that stands, and what has to be written for that.

    None is to be written where it is high enough, and where one of them knows that it was set back: ids are
    alive again which were dead, and nobody writes on top of that.
    """
    target = max(guard.id for guard in guards)
    alarms = {guard: set_back(guard, value, exists=exists) for guard in guards}
    told: dict[BoundaryGuard, Stop | Wait | None] = dict(alarms)
    if target <= value:
        return told, None
    if alarm := next(filter(None, alarms.values()), None):
        return told | dict.fromkeys((guard for guard in guards if guard.id > value), alarm), None
    return told, target


def _raise(
    store: PacedDeleter, bucket: str, space: Namespace, guards: Collection[BoundaryGuard], *, dry: bool
) -> Advanced:
    """Raise the boundary to the highest of the guards unless it is there; never lower it."""
    for writes in range(_MOST_TRIES):
        try:
            stands = _read(store, bucket, space)
        except InvalidFormat as error:
            why = f"{space.boundary_key!r}: {error}"
            return _all_wait(guards, why, writes, reason="boundary-unreadable")
        except NoReply as error:
            if state_of(error).kind is Kind.ENVIRONMENT:
                raise
            # What cannot be read of one object (a body that is too long) is no fault of its bucket.
            return _all_wait(guards, str(error), writes)
        told, target = decide(guards, stands.value, exists=stands.etag is not None)
        if target is None or dry:
            return Advanced(told, writes)
        if _put(store, bucket, space, stands, target):
            return Advanced(told, writes + 1)
        # Others were ahead, or nobody knows: what stands there now decides.
    why = f"{space.boundary_key!r} could not be raised: others were ahead each time"
    return _all_wait(guards, why, _MOST_TRIES)


def _read(store: PacedDeleter, bucket: str, space: Namespace) -> _Stands:
    found = read_if_changed(store.calls, bucket, space.boundary_key)
    if isinstance(found, Absent):
        return _Stands()
    assert isinstance(found, Found)  # nothing was named that could be unmodified
    return _Stands(parse_boundary(found.body), found.etag)


def _put(store: PacedDeleter, bucket: str, space: Namespace, stands: _Stands, id: int) -> bool:
    """Write the boundary unless it was changed since; return whether it is certain that it stands."""
    store.wait(bucket, 1)
    key, body = space.boundary_key, boundary_text(id)
    if stands.etag is None:
        put = create_if_absent(store.calls, bucket, key, body)
    else:
        put = compare_and_put(store.calls, bucket, key, body, stands.etag)
    return isinstance(put, Written)
