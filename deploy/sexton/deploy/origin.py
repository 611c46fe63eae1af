"""Whether the cluster and the topics are those that Genesis names: offsets of others prove nothing."""

from __future__ import annotations

from collections.abc import Iterator

from sexton.issuer.deadline import Deadline
from sexton.issuer.log.genesis import check_genesis, read_genesis
from sexton.issuer.log.positions import REACH_S, Positions, WrongTopic
from sexton.schemas.errors import LogBroken
from sexton.schemas.events import Genesis
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.settings import Settings
from sexton.schemas.topics import TopicProblem

__all__ = ["check_origin", "refuse_other_origin"]

_NAMED = "the one that Genesis names: {}"


def check_origin(settings: Settings) -> list[TopicProblem]:
    """Return every difference between what Genesis names and what is there, all of them fatal.

    The log and the intents topic exist. Raises WrongTopic if they do not, KafkaUnavailable.
    """
    deadline = Deadline.after(REACH_S)
    positions = Positions(settings)
    try:
        genesis = read_genesis(settings, deadline)
    except LogBroken as broken:
        return [TopicProblem(positions.log, "log", str(broken), "a log that begins with its own Genesis")]
    if genesis is not None:
        return list(_differences(genesis, positions, deadline))
    if any(positions.read(deadline).intents.offsets):
        needed = f"Genesis: {positions.intents} has records that no other log can judge"
        return [TopicProblem(positions.log, "log", "empty", needed)]
    return []  # nothing was ever issued or asked for: whoever creates the topics writes Genesis


def refuse_other_origin(settings: Settings) -> None:
    """Raise WrongTopic, or LogBroken, if topics created now could not be those of the log that is there.

    Raises KafkaUnavailable.
    """
    positions = Positions(settings)
    cluster = Cluster(settings)
    names = cluster.topic_names()
    if positions.log in names and positions.intents in names:
        deadline = Deadline.after(REACH_S)
        genesis = read_genesis(settings, deadline)
        if genesis is not None:
            check_genesis(genesis, positions, deadline)
    elif positions.log in names:
        _refuse_remains(cluster, positions.log, positions.intents, "names another topic than a new one")
    elif positions.intents in names:
        _refuse_remains(cluster, positions.intents, positions.log, "has intents that a new log cannot judge")


def _refuse_remains(cluster: Cluster, remains: str, missing: str, why: str) -> None:
    if any(cluster.latest(remains).values()):
        raise WrongTopic(
            f"there is no such topic: {missing}; {remains} {why}",
            hint="restore it, or begin anew under another SEXTON_TOPIC_PREFIX: docs/protocol.md says how",
        )


def _differences(genesis: Genesis, positions: Positions, deadline: Deadline) -> Iterator[TopicProblem]:
    cluster = positions.cluster.cluster_id(deadline.require("cluster id"))
    if cluster != genesis.cluster_id:
        yield TopicProblem(positions.log, "cluster id", cluster, _NAMED.format(genesis.cluster_id))
    found = positions.describe(deadline)
    named = {positions.log: genesis.generations_topic_id, positions.intents: genesis.intents_topic_id}
    for name, topic_id in named.items():
        if found[name].topic_id != topic_id:
            yield TopicProblem(name, "topic id", found[name].topic_id, _NAMED.format(topic_id))
