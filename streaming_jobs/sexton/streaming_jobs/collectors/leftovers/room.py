"""The collector `leftovers`: what lies where nobody may have anything any more.

Objects of dropped tenants, each a whole segment below the prefix, and what was written under a promised
prefix after the instant of the promise. Both are asked for by promise, as `DeletePrefix`, up to the Date of
the listing: what comes later is for the next run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from sexton.schemas.actions import DeleteMode, DeletePrefix
from sexton.schemas.checks import check_tenant
from sexton.schemas.errors import InvalidEvent
from sexton.schemas.guards import Guard, PromiseGuard
from sexton.schemas.vetoes import ExpiresAt, Veto
from sexton.storage import Listed
from sexton.streaming_jobs.collectors.leftovers.promises import find_promises
from sexton.streaming_jobs.collectors.room import Body, Found, Gone, PlainRoom, Scope, Sources, Unresolved

__all__ = ["ROOM", "Counted", "Leftovers", "LeftoversPlan", "Promise"]

TENANT = "dropped-tenant"
PROMISE = "written-after-promise"
_ASK_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Promise:
    """A `DeletePrefix` by whose outcome objects were written later and stay."""

    intent_id: str
    tenant: str
    guards: Sequence[Guard]
    action: DeletePrefix
    vetoes: Sequence[Veto]
    written_later: int


@dataclass(frozen=True, slots=True)
class Counted:
    """Objects under one prefix, of one cause; parts of the same prefix and cause add up."""

    cause: str
    name: str
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LeftoversPlan:
    """Promises within the scope, by prefix, and those whose intent cannot be read any more."""

    prefix: str
    promises: Sequence[Promise]
    unresolved: Sequence[Unresolved] = field(default_factory=list)

    def fold(self) -> LeftoversFold:
        """Return a new fold."""
        return LeftoversFold(self.prefix, frozenset(each.action.prefix for each in self.promises))


class LeftoversFold:
    """Counts objects by first segment, and by promised prefix."""

    def __init__(self, prefix: str, promised: frozenset[str]) -> None:
        self._prefix = prefix
        self._promised = promised
        self._segment: str | None = None
        self._objects = self._bytes = 0
        self._later: dict[str, tuple[int, int]] = {}

    def add(self, entry: Listed) -> Iterable[Counted]:
        """Count an object; a tenant's part is whole once another segment begins."""
        segment = segment_of(entry.key, self._prefix)
        closed: Iterable[Counted] = ()
        if segment != self._segment:
            closed = list(self._close())
            self._segment = segment
        self._objects += 1
        self._bytes += entry.size
        if self._promised:
            self._count_promised(entry)
        return closed

    def end(self) -> Iterable[Counted]:
        """Return what is left."""
        parts = list(self._close())
        parts += [Counted(PROMISE, name, *counts) for name, counts in self._later.items()]
        self._segment, self._later = None, {}
        return parts

    def _close(self) -> Iterator[Counted]:
        if self._segment is not None:
            yield Counted(TENANT, self._segment, self._objects, self._bytes)
        self._objects = self._bytes = 0

    def _count_promised(self, entry: Listed) -> None:
        at = entry.key.find("/")
        while at >= 0:
            name = entry.key[: at + 1]
            if name in self._promised:
                objects, size = self._later.get(name, (0, 0))
                self._later[name] = (objects + 1, size + entry.size)
            at = entry.key.find("/", at + 1)


def segment_of(key: str, prefix: str) -> str | None:
    """Return the whole segment that follows the prefix, None for an object that lies in none."""
    segment, slash, _ = key[len(prefix) :].partition("/")
    return segment if slash and segment else None


class Leftovers(PlainRoom):
    """The room."""

    name = "leftovers"
    summary = "objects of dropped tenants, and what was written after a promise"
    prefix_help = "prefix that is listed, ends in /"
    prefix_example = "p/"
    plan_type = LeftoversPlan
    part_type = Counted

    def listed(self, scope: Scope) -> str:
        """Return the prefix."""
        return scope.prefix

    def plan(self, scope: Scope, sources: Sources) -> LeftoversPlan:
        """Read from the outcomes which promises left something behind."""
        promises: dict[Sequence[str], Promise] = {}
        unresolved = []
        for found in find_promises(scope, sources.settings):
            if isinstance(found, Unresolved):
                unresolved.append(found)
                continue
            intent, action, later = found.intent, found.action, found.written_later
            one = Promise(intent.intent_id, intent.tenant, intent.guards, action, intent.vetoes, later)
            promises[_identity(one)] = one
        return LeftoversPlan(scope.prefix, list(promises.values()), unresolved)

    def sift(self, parts: Sequence[Counted], sources: Sources) -> list[Counted]:
        """Ask the issuer about all tenants and keep the dropped ones; of the others it forgets everything."""
        names = sorted({part.name for part in parts if part.cause == TENANT and _may_be_tenant(part.name)})

        def is_dropped(name: str) -> bool:
            state = sources.issuer.tenant(name)
            return state is not None and state.dropped

        with ThreadPoolExecutor(_ASK_AT_ONCE) as pool:
            dropped = {name for name, is_so in zip(names, pool.map(is_dropped, names), strict=True) if is_so}
        return [part for part in parts if part.cause == PROMISE or part.name in dropped]

    def decide(self, plan: LeftoversPlan, scope: Scope, parts: Sequence[Counted]) -> list[Found]:
        """Return a finding for each dropped tenant and each promise that has objects; pure."""
        sums: dict[tuple[str, str], tuple[int, int]] = {}
        for part in parts:
            objects, size = sums.get((part.cause, part.name), (0, 0))
            sums[part.cause, part.name] = (objects + part.objects, size + part.bytes)
        found = [
            _of_tenant(scope, name, *counts) for (cause, name), counts in sums.items() if cause == TENANT
        ]
        for promise in plan.promises:
            objects, size = sums.get((PROMISE, promise.action.prefix), (0, 0))
            if objects:
                found.append(_of_promise(promise, objects, size))
        return found

    def gone(self, plan: LeftoversPlan, scope: Scope, parts: Sequence[Counted]) -> list[Gone]:
        """Return nothing: neither what was dropped nor a promise ends with its last object."""
        return []


def _may_be_tenant(name: str) -> bool:
    try:
        check_tenant(name)
    except InvalidEvent:
        return False
    return True


def _of_tenant(scope: Scope, tenant: str, objects: int, size: int) -> Found:
    covers = f"{scope.prefix}{tenant}/"

    def body(date: datetime) -> Body:
        guard = PromiseGuard(f"dropped {tenant}")
        action = DeletePrefix(scope.bucket, covers, written_before=date)
        return Body(tenant, TENANT, (guard,), action)

    detail = f"the tenant was dropped: {tenant}"
    identity = (TENANT, tenant, scope.bucket, covers)
    return Found(TENANT, covers, identity, detail, objects, size, body, way=DeleteMode.HIDE.value)


def _of_promise(promise: Promise, objects: int, size: int) -> Found:
    kept = [veto for veto in promise.vetoes if not isinstance(veto, ExpiresAt)]
    detail = f"written after {_operation(promise)}: {promise.written_later} seen by {promise.intent_id}"
    return Found(
        PROMISE,
        promise.action.prefix,
        _identity(promise),
        detail,
        objects,
        size,
        partial(_again, promise, kept),
        whole=promise.action.suffix is None,
        way=promise.action.mode.value,
    )


def _again(promise: Promise, vetoes: Sequence[Veto], date: datetime) -> Body:
    action = replace(promise.action, written_before=date)
    return Body(promise.tenant, PROMISE, promise.guards, action, vetoes)


def _operation(promise: Promise) -> str:
    return ", ".join(guard.text for guard in promise.guards)


def _identity(promise: Promise) -> Sequence[str]:
    action = promise.action
    fields = (action.mode.value, str(action.bypass_governance), action.tombstone or "", action.suffix or "")
    return (PROMISE, promise.tenant, _operation(promise), action.bucket, action.prefix, *fields)


ROOM = Leftovers()
