"""Create the topics, and compare those that exist with what is needed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from sexton.schemas import records
from sexton.schemas import topics as table
from sexton.schemas.errors import KafkaUnavailable
from sexton.schemas.kafka import refusals
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.settings import Settings
from sexton.schemas.topics import TOPICS, TopicProblem

__all__ = ["check_topics", "create_installation", "create_topics", "delete_topics", "other_partitions"]

_SECONDS = 30.0
_LOOK_AGAIN_S = 0.05
_REFUSED = (
    "the brokers say no: to an option given, or for want of a right? where they do not take a setting,"
    " make the topic with their own tools, as near to docs/settings.md as they allow;"
    " `sexton topics check` compares it"
)


def create_topics(
    settings: Settings, replication: int | None = None, partitions: int | None = None
) -> list[str]:
    """Create the topics that are missing and return their full names; those that exist are left as they are.

    `replication` defaults to 3 in a cluster of three brokers or more, else 1; min.insync.replicas follows it.
    `partitions` replaces the table's number where more than one is allowed. Returns when a broker lists
    the new topics: the controller says that they are made before the brokers have heard of them.
    Raises KafkaUnavailable when the brokers do not answer or refuse.
    """
    cluster = Cluster(settings)
    names = cluster.topic_names()
    replicas, insync = table.durability_for(cluster.brokers())
    if replication is not None:
        replicas, insync = replication, 2 if replication >= 3 else 1
    missing = [
        NewTopic(
            settings.topic(need.name),
            num_partitions=need.partitions if need.exact or partitions is None else partitions,
            replication_factor=replicas,
            config=table.config_for(need, insync),
        )
        for need in TOPICS
        if settings.topic(need.name) not in names
    ]
    if not missing:
        return []
    created = []
    for name, future in cluster.admin.create_topics(missing, operation_timeout=_SECONDS).items():
        if _done(future, f"topic cannot be created: {name}", tolerate=KafkaError.TOPIC_ALREADY_EXISTS):
            created.append(name)
    _wait_until_listed(cluster, [topic.topic for topic in missing])
    return created


def create_installation(
    settings: Settings, replication: int | None = None, partitions: int | None = None
) -> list[str]:
    """Create the missing topics, then write Genesis into a log that is still empty; return what was created.

    Raises what `create_topics` raises, and what the issuer's `write_genesis` raises for a log that
    is not empty and not its own: before anything is created, if that can be reported by then.
    """
    from sexton.deploy.origin import refuse_other_origin
    from sexton.issuer.log.genesis import write_genesis

    refuse_other_origin(settings)
    created = create_topics(settings, replication, partitions)
    write_genesis(settings)
    return created


def other_partitions(settings: Settings, partitions: int) -> dict[str, int]:
    """Return the topics with another number of partitions, and that number, where more than one is allowed.

    Raises KafkaUnavailable when the brokers do not answer.
    """
    names = sorted(settings.topic(need.name) for need in TOPICS if not need.exact)
    found = Cluster(settings).identities(names, _SECONDS)
    return {
        name: found[name].partitions
        for name in names
        if name in found and found[name].partitions != partitions
    }


def check_topics(settings: Settings) -> list[TopicProblem]:
    """Return every difference from what is needed and from what Genesis names, the fatal ones first.

    Raises KafkaUnavailable when the brokers do not answer.
    """
    cluster = Cluster(settings)
    brokers = cluster.brokers()
    facts = cluster.topics([settings.topic(need.name) for need in TOPICS])
    found = {name: each.found for name, each in facts.items()}
    problems = [
        problem
        for need in TOPICS
        for problem in table.compare(
            settings.topic(need.name), need, found.get(settings.topic(need.name)), brokers
        )
    ]
    if all(settings.topic(name) in found for name in (records.GENERATIONS, records.INTENTS)):
        from sexton.deploy.origin import check_origin

        problems += check_origin(settings)
    return sorted(problems, key=lambda problem: not problem.fatal)


def delete_topics(settings: Settings) -> None:
    """Delete every topic of this prefix: for stacks and tests that are thrown away."""
    cluster = Cluster(settings)
    names = cluster.topic_names()
    doomed = [settings.topic(need.name) for need in TOPICS if settings.topic(need.name) in names]
    if doomed:
        for name, future in cluster.admin.delete_topics(doomed, operation_timeout=_SECONDS).items():
            _done(future, f"topic cannot be deleted: {name}")


def _wait_until_listed(cluster: Cluster, names: Sequence[str]) -> None:
    until = time.monotonic() + _SECONDS
    while unlisted := set(names) - cluster.identities(names).keys():
        if time.monotonic() > until:
            raise KafkaUnavailable(f"made, but no broker lists them yet: {', '.join(sorted(unlisted))}")
        time.sleep(_LOOK_AGAIN_S)


def _done(future: Future[Any], message: str, tolerate: int | None = None) -> bool:
    try:
        future.result(timeout=_SECONDS + 5)
    except KafkaException as error:
        kafka = error.args[0]
        if kafka.code() == tolerate:
            return False
        hint = _REFUSED if refusals.final(kafka) else None  # an answer: the brokers are not away
        raise KafkaUnavailable(f"{message}: {kafka.str()}", hint=hint) from error
    except FutureTimeout as error:
        raise KafkaUnavailable(f"{message}: no controller answers") from error
    return True
