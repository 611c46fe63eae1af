"""Create the topics, and compare those that exist with what is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from sexton.schemas import topics as table
from sexton.schemas.errors import KafkaUnavailable
from sexton.schemas.settings import Settings
from sexton.schemas.topics import TOPICS, TopicFound, TopicProblem

__all__ = ["check_topics", "create_installation", "create_topics", "delete_topics"]

_SECONDS = 30.0
_REACH_SECONDS = 10.0


def create_topics(
    settings: Settings, replication: int | None = None, partitions: int | None = None
) -> list[str]:
    """Create the topics that are missing and return their full names; those that exist are left as they are.

    `replication` defaults to 3 in a cluster of three brokers or more, else 1; min.insync.replicas follows it.
    `partitions` replaces the table's number where more than one is allowed.
    Raises KafkaUnavailable when the brokers do not answer or refuse.
    """
    admin = _admin(settings)
    names, brokers = _cluster(admin)
    replicas, insync = table.durability_for(brokers)
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
    for name, future in admin.create_topics(missing, operation_timeout=_SECONDS).items():
        if _done(future, f"topic cannot be created: {name}", tolerate=KafkaError.TOPIC_ALREADY_EXISTS):
            created.append(name)
    return created


def create_installation(
    settings: Settings, replication: int | None = None, partitions: int | None = None
) -> list[str]:
    """Create the missing topics, then write Genesis into a log that is still empty; return what was created.

    Raises what `create_topics` raises, and what the issuer's `write_genesis` raises for a log that
    is not empty and not its own.
    """
    created = create_topics(settings, replication, partitions)
    from sexton.issuer.log import write_genesis

    write_genesis(settings)
    return created


def check_topics(settings: Settings) -> list[TopicProblem]:
    """Return every difference from what is needed, the fatal ones first.

    Raises KafkaUnavailable when the brokers do not answer.
    """
    admin = _admin(settings)
    _, brokers = _cluster(admin)
    found = _describe(admin, [settings.topic(need.name) for need in TOPICS])
    problems = [
        problem
        for need in TOPICS
        for problem in table.compare(
            settings.topic(need.name), need, found.get(settings.topic(need.name)), brokers
        )
    ]
    return sorted(problems, key=lambda problem: not problem.fatal)


def delete_topics(settings: Settings) -> None:
    """Delete every topic of this prefix: for stacks and tests that are thrown away."""
    admin = _admin(settings)
    names, _ = _cluster(admin)
    doomed = [settings.topic(need.name) for need in TOPICS if settings.topic(need.name) in names]
    if doomed:
        for name, future in admin.delete_topics(doomed, operation_timeout=_SECONDS).items():
            _done(future, f"topic cannot be deleted: {name}")


def _admin(settings: Settings) -> AdminClient:
    return AdminClient(settings.kafka(log_level=0))


def _cluster(admin: AdminClient) -> tuple[frozenset[str], int]:
    try:
        metadata = admin.list_topics(timeout=_REACH_SECONDS)
    except KafkaException as error:
        raise KafkaUnavailable(f"the brokers do not answer: {error.args[0].str()}") from error
    return frozenset(metadata.topics), len(metadata.brokers)


def _describe(admin: AdminClient, names: list[str]) -> Mapping[str, TopicFound]:
    try:
        metadata = admin.list_topics(timeout=_REACH_SECONDS).topics
    except KafkaException as error:
        raise KafkaUnavailable(f"the brokers do not answer: {error.args[0].str()}") from error
    present = [name for name in names if name in metadata]
    if not present:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in present]
    configs = {
        resource.name: {name: str(entry.value) for name, entry in future.result().items()}
        for resource, future in _answered(admin.describe_configs(resources, request_timeout=_SECONDS))
    }
    return {
        name: TopicFound(
            partitions=len(metadata[name].partitions),
            replicas=min((len(p.replicas) for p in metadata[name].partitions.values()), default=0),
            config=configs[name],
        )
        for name in present
    }


def _answered(futures: Mapping[ConfigResource, Future[Any]]) -> Iterator[tuple[ConfigResource, Future[Any]]]:
    for resource, future in futures.items():
        _done(future, f"topic cannot be described: {resource.name}")
        yield resource, future


def _done(future: Future[Any], message: str, tolerate: int | None = None) -> bool:
    try:
        future.result(timeout=_SECONDS + 5)
    except KafkaException as error:
        if error.args[0].code() == tolerate:
            return False
        raise KafkaUnavailable(f"{message}: {error.args[0].str()}") from error
    return True
