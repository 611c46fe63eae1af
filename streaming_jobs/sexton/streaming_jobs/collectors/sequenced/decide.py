"""What of sequenced metadata is garbage. Pure.

A file dies when it is not the newest, is older than the age limit and is held by no checkpoint. The newest
one is never named: a boundary at its id would lock every writer out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sexton.producers._intents import split_keys
from sexton.producers._limits import Limits
from sexton.schemas.actions import DeleteObjects
from sexton.schemas.checks import MAX_TENANT_BYTES
from sexton.schemas.errors import InvalidFormat
from sexton.schemas.guards import BoundaryGuard
from sexton.schemas.sequenced import Namespace
from sexton.schemas.text import counted
from sexton.streaming_jobs.collectors.room import Body, Found, Scope, Unresolved
from sexton.streaming_jobs.collectors.sequenced.files import Ages, Files, ages_of

__all__ = ["CAUSE", "Fact", "found_in", "is_asked_about", "unresolved_of"]

CAUSE = "replaced-file"
STRANGE = "unknown-name"
UNKNOWN = "database-unknown"
_FIXED_BYTES = 8 * MAX_TENANT_BYTES


@dataclass(frozen=True, slots=True)
class Fact:
    """What was learnt of a namespace once all was listed: its boundary, and which ids are held.

    `problem` says why its database is not to be touched, empty where it may be.
    """

    root: str
    name: str
    boundary: int = 0
    held: Sequence[int] = ()
    problem: str = ""


def is_asked_about(files: Files, listed_at: datetime, min_age_s: float) -> bool:
    """Return whether something of it may be garbage."""
    ages = ages_of(files, listed_at, min_age_s)
    return ages is not None and bool(ages.old)


def found_in(
    files: Files, facts: Sequence[Fact], scope: Scope, listed_at: datetime, min_age_s: float
) -> Iterator[Found]:
    """Yield the garbage of a namespace, one finding for each intent, the lowest ids first.

    `facts` are those of its database: a problem of one namespace keeps all of them.
    """
    ages = ages_of(files, listed_at, min_age_s)
    fact = next((each for each in facts if each.name == files.name), None)
    if ages is None or fact is None or any(each.problem for each in facts):
        return
    namespace, held = files.namespace, frozenset(fact.held)
    sizes = {id: size for id, size in ages.old if id not in held}
    keys = [namespace.key(id) for id in sizes]
    if not keys:
        return
    kept = _kept(files, ages, held)
    for run in split_keys(keys, _FIXED_BYTES, Limits(), {}):
        ids = [id for id in map(namespace.id_of, run) if id is not None]
        yield _found(namespace, scope, ids, run, fact.boundary, sum(sizes[id] for id in ids), kept)


def problem_of(files: Files, boundary: int) -> str:
    """Return why its name or a boundary keeps a namespace from being collected, empty where none does.

    One above the newest file is what a stale listing sees, while another collector is at work; one that
    stays there has locked every writer out, and a person has to look.
    """
    if len(files.text.encode()) > MAX_TENANT_BYTES:
        # Its intents have the namespace for a tenant: one that cannot be asked for would fail the whole run.
        return f"its name is longer than a tenant's, {MAX_TENANT_BYTES} bytes"
    newest = max(files.ids, default=0)
    return f"the boundary is {boundary}, above the newest file {newest}" if boundary > newest else ""


def unresolved_of(files: Files, facts: Sequence[Fact]) -> Iterator[Unresolved]:
    """Yield what can only be reported of a folder; one without any file of its name is no namespace."""
    try:
        tenant = files.namespace.text
    except InvalidFormat as error:
        yield Unresolved(STRANGE, "", f"{files.example!r:.200}: {error}")
        return
    if files.strange and files.ids:
        told = f"{counted(files.strange, 'object')} in {files.text}/, such as {files.example!r:.200}"
        yield Unresolved(STRANGE, tenant, f"{told}: no file of it, and never touched")
    for fact in facts:
        if fact.name == files.name and fact.problem:
            yield Unresolved(UNKNOWN, tenant, f"{files.text}: {fact.problem}")


def _kept(files: Files, ages: Ages, held: frozenset[int]) -> str:
    by_checkpoint = sum(id in held for id, _ in ages.old)
    return (
        f"kept: newest {ages.newest}, {ages.young} young, {by_checkpoint} of checkpoints,"
        f" {files.strange} of unknown names"
    )


def _found(
    namespace: Namespace,
    scope: Scope,
    ids: Sequence[int],
    keys: Sequence[str],
    boundary: int,
    size: int,
    kept: str,
) -> Found:
    highest = max(ids)
    # Two runs that find the same files ask under one id, whatever the boundary is by then.
    which = hashlib.sha256("\n".join(keys).encode()).hexdigest()[:32]
    identity = (CAUSE, scope.bucket, namespace.text, str(highest), which)
    detail = f"ids {min(ids)} to {highest}, boundary {boundary}; {kept}"
    body = partial(_body, namespace.text, highest, boundary, DeleteObjects(scope.bucket, (tuple(keys),)))
    return Found(CAUSE, namespace.folder, identity, detail, len(keys), size, body, whole=False)


def _body(namespace: str, highest: int, boundary: int, action: DeleteObjects, date: datetime) -> Body:
    # The namespace is the tenant: its intents lie in one partition, and the lower ids go first.
    return Body(namespace, CAUSE, (BoundaryGuard(namespace, highest, floor=boundary),), action)
