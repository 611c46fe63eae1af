"""The first event of the log: which cluster and topics it belongs to. Written once, compared at a start."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import UTC, datetime
from typing import cast

from sexton.issuer.deadline import Deadline
from sexton.issuer.log.positions import Positions, WrongTopic
from sexton.issuer.log.ranges import RangeReader
from sexton.issuer.log.reader import decode_event
from sexton.issuer.log.writer import LogWriter
from sexton.issuer.snapshots.store import Snapshots
from sexton.issuer.state.fold import FORMAT, State, apply
from sexton.schemas import events
from sexton.schemas.errors import KafkaUnavailable, SextonError
from sexton.schemas.settings import Settings

__all__ = ["await_topics", "check_genesis", "read_genesis", "write_genesis"]


def read_genesis(settings: Settings, deadline: Deadline) -> events.Genesis | None:
    """Return the first event of the log, None when the log is empty.

    Of a truncated log it is the one that a snapshot names. Raises LogBroken when it is not Genesis or nowhere
    to be found, or a snapshot proves that the log was set back; WrongTopic or KafkaUnavailable when it cannot
    be read.
    """
    positions = Positions(settings)
    snapshots = Snapshots(settings, positions)
    facts = snapshots.facts(deadline)
    if facts.start > 0:
        return snapshots.genesis(facts, deadline)
    snapshots.usable(facts, deadline)  # raises when one says that there were other, or more, events
    if facts.end == 0:
        return None
    state = State()
    with closing(RangeReader(settings, positions.log)) as reader:
        for message in reader.read(0, 1, deadline):
            apply(state, cast(int, message.offset()), decode_event(message))
    if state.genesis is None:
        raise KafkaUnavailable("the first event of the generations log cannot be read")
    return state.genesis


def write_genesis(settings: Settings, timeout_s: float = 15.0) -> events.Genesis:
    """Start the log: write Genesis unless it is there, and return it.

    Written only while the generations log and the intents topic are both empty. Raises SextonError when the
    log is another cluster's or other topics', WrongTopic when a topic is missing, KafkaUnavailable.
    """
    deadline = Deadline.after(timeout_s)
    positions = Positions(settings)
    await_topics(positions, deadline)
    found = read_genesis(settings, deadline)
    if found is None:
        ends = positions.read(deadline)
        if any(ends.intents.offsets):
            raise SextonError(
                f"the generations log is empty, but {positions.intents} has records",
                hint="restore the log, or delete and create the intents topic: its intents cannot be judged",
            )
        _append_genesis(settings, positions, deadline)
        found = read_genesis(settings, deadline)
        assert found is not None
    check_genesis(found, positions, deadline)
    return found


def await_topics(positions: Positions, deadline: Deadline) -> None:
    """Wait a moment for topics that were created just now: not every broker knows them at once.

    Raises WrongTopic when one is still missing, KafkaUnavailable.
    """
    patience = deadline.within(5.0)
    while True:
        try:
            positions.describe(deadline)
            return
        except WrongTopic:
            if patience.left() == 0:
                raise
        time.sleep(0.1)


def _append_genesis(settings: Settings, positions: Positions, deadline: Deadline) -> None:
    facts = positions.describe(deadline)
    genesis = events.Genesis(
        format=FORMAT,
        cluster_id=positions.cluster.cluster_id(deadline.require("cluster id")),
        generations_topic_id=facts[positions.log].topic_id,
        intents_topic_id=facts[positions.intents].topic_id,
        written_at=datetime.now(UTC),
    )
    writer = LogWriter(settings, idempotent=False)
    try:
        writer.append(genesis, deadline)
    finally:
        writer.close()


def check_genesis(genesis: events.Genesis, positions: Positions, deadline: Deadline) -> None:
    """Raise WrongTopic unless the log is this cluster's and these topics'."""
    cluster = positions.cluster.cluster_id(deadline.require("cluster id"))
    if genesis.cluster_id != cluster:
        raise WrongTopic(
            f"the log belongs to another Kafka cluster: {genesis.cluster_id}, found {cluster}",
            hint="point SEXTON_KAFKA_BOOTSTRAP_SERVERS at the cluster that the log was started on",
        )
    positions.expect(genesis)
    positions.read(deadline)
