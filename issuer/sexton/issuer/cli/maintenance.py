"""What an operator does to Redis beside the service: build it anew from the log, compare it with the log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from sexton.issuer.deadline import Deadline
from sexton.issuer.log.genesis import check_genesis
from sexton.issuer.log.positions import REACH_S, Positions
from sexton.issuer.log.reader import LogReader, open_reader
from sexton.issuer.redis.projection import Difference, Entry, Projection, entries_of
from sexton.issuer.state.state import State
from sexton.schemas.errors import SextonError
from sexton.schemas.settings import Settings

__all__ = ["rebuild_projection", "verify_projection"]

_ROUNDS = 3
_PAUSE_S = 0.3


def rebuild_projection(settings: Settings, timeout_s: float = 600.0) -> int:
    """Build Redis' projection anew from the log, and return how many tenants it holds.

    Calls that a running issuer answers meanwhile wait or propose again. Raises SextonError.
    """
    deadline = Deadline.after(timeout_s)
    with _folded(settings, deadline) as (_, reader, projection):
        projection.check_server()
        with reader.state() as state:
            entries = entries_of(state)
        projection.rebuild(entries, from_nothing=True)
        return len(entries)


def verify_projection(settings: Settings, timeout_s: float = 600.0) -> list[Difference]:
    """Return every tenant of which Redis holds something else than the log says, either's tenants.

    The service may be running: what differs is verified again until it has differed three times, each time
    with the log read to its end afterwards; an entry that follows the log meanwhile is merely late. Raises
    SextonError.
    """
    deadline = Deadline.after(timeout_s)
    with _folded(settings, deadline) as (positions, reader, projection):
        found: dict[str, Difference] | None = None
        for attempt in range(_ROUNDS):
            if attempt:
                time.sleep(_PAUSE_S)
            held = projection.everything()
            reader.wait_for(positions.read(deadline).log_end - 1, deadline)
            with reader.state() as state:
                found = _still(state, found, _differences(entries_of(state), held))
            if not found:
                break
        return list((found or {}).values())


def _still(
    state: State, before: Mapping[str, Difference] | None, now: Iterable[Difference]
) -> dict[str, Difference]:
    """Return the differences that are there now, and were before if that was verified."""
    if before is None:
        return {each.tenant: each for each in now}
    return {
        each.tenant: each
        for each in now
        if each.tenant in before and not _follows(state, before[each.tenant], each)
    }


def _follows(state: State, before: Difference, now: Difference) -> bool:
    """Return whether an entry has moved on to what the log said a moment ago, so far as that is
    remembered.
    """
    tenant = state.tenant(now.tenant)
    if tenant is None or now.raw == before.raw or not now.only_late or not now.raw:
        return False
    number, _, offset = now.raw.partition("@")
    return tenant.was_at(int(number), int(offset))


def _differences(expected: dict[str, Entry], held: dict[str, Entry]) -> Iterator[Difference]:
    for tenant in sorted({*expected, *held}):
        if expected.get(tenant, "") != held.get(tenant, ""):
            yield Difference(tenant, expected.get(tenant, ""), held.get(tenant, ""))


@contextmanager
def _folded(settings: Settings, deadline: Deadline) -> Iterator[tuple[Positions, LogReader, Projection]]:
    """Fold the log to its end, without a service."""
    positions = Positions(settings)
    ends = positions.read(Deadline.after(REACH_S))
    if ends.log_end == 0:
        raise SextonError("the generations log is empty", hint="`sexton topics create`")
    reader = open_reader(settings, positions, deadline)
    try:
        reader.wait_for(ends.log_end - 1, deadline)
        with reader.state() as state:
            genesis = state.genesis
        assert genesis is not None
        check_genesis(genesis, positions, deadline)
        projection = Projection(settings, genesis.generations_topic_id)
        try:
            yield positions, reader, projection
        finally:
            projection.close()
    finally:
        reader.stop()
