"""The numbers of a log as lines that `sexton issuer import` takes: its backup.

Numbers and names outlive their log; windows, positions and request ids do not, as they are offsets of topics
that no other cluster has. So nothing else is exported, and nothing of it lets an intent pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from typing import Any

from sexton.issuer.cli.migration import EXPORT_VERSION
from sexton.issuer.deadline import Deadline
from sexton.issuer.log.positions import Positions
from sexton.issuer.log.ranges import RangeReader
from sexton.issuer.log.reader import decode_event
from sexton.issuer.snapshots.store import Snapshots
from sexton.issuer.state.fold import apply
from sexton.issuer.state.state import State, Tenant
from sexton.schemas import records
from sexton.schemas.errors import KafkaUnavailable, SextonError
from sexton.schemas.settings import Settings

__all__ = ["fold_log", "lines"]


def fold_log(settings: Settings, deadline: Deadline) -> State:
    """Return the state at the log's end, on whichever cluster it lies: a copy tells numbers, too.

    Of a truncated log the part below is taken from a snapshot, which a copy on another cluster does not have.
    Raises SextonError when there is no log or it is empty, LogBroken when it cannot be folded,
    KafkaUnavailable.
    """
    topic = settings.topic(records.GENERATIONS)
    with closing(RangeReader(settings, topic)) as reader:
        start, end = reader.bounds(deadline) or (0, 0)
        if end == 0:
            raise SextonError(
                f"there is no log, or it is empty: {topic}", hint="is SEXTON_TOPIC_PREFIX right?"
            )
        state = State() if start == 0 else _from_snapshot(settings, deadline)
        for message in reader.read(state.next_offset, end, deadline):
            apply(state, int(message.offset() or 0), decode_event(message))
    # Numbers of the events that are missing would be exported too low, and be handed out again.
    if state.next_offset < end:
        raise KafkaUnavailable(f"the log cannot be read up to its end: {state.next_offset} of {end}")
    return state


def _from_snapshot(settings: Settings, deadline: Deadline) -> State:
    snapshots = Snapshots(settings, Positions(settings))
    return snapshots.start(snapshots.facts(deadline), deadline)


def lines(state: State, at: datetime) -> Iterator[str]:
    """Yield what was exported and how much it is, then a line for each node and each tenant, in ASCII:
    bytes that no locale changes.

    Each line says as of which offset it was exported: without the first line, too, it is never taken for a
    number that somebody has looked at.
    """
    yield json.dumps({"exported": _header(state, at)})
    as_of = {"exported": state.log_offset}
    for node in state.nodes():
        row = {"node": node.name, "number": node.number, "node_generation": node.newest or 0}
        yield json.dumps(row | as_of)
    for tenant in state:
        # One that was dropped, too: a name that nobody knows begins at 1 again.
        yield json.dumps(_row(tenant) | ({"dropped": True} if tenant.dropped else {}) | as_of)


def _header(state: State, at: datetime) -> dict[str, Any]:
    assert state.genesis is not None
    return {
        "version": EXPORT_VERSION,
        "cluster_id": state.genesis.cluster_id,
        "topic_id": state.genesis.generations_topic_id,
        "log_offset": state.log_offset,
        "at": at.isoformat(timespec="seconds"),
        "tenants": len(state),
        "nodes": sum(1 for _ in state.nodes()),
        "decommissioned": list(state.decommissioned),
    }


def _row(tenant: Tenant) -> dict[str, Any]:
    if (found := tenant.transactions) is not None:
        return {
            "tenant": tenant.name,
            "form": tenant.form.value,
            "newest": found.newest or 0,
            "last_committed": found.committed,
            "number_place": found.place.value,
        }
    return {
        "tenant": tenant.name,
        "generation": tenant.newest,
        "form": tenant.form.value,
        "node": tenant.holder,
    }
