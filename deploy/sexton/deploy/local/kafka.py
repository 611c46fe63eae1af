"""Kafka brokers from their jars, each a controller too (KRaft): one, or a cluster of several."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sexton.deploy import jars
from sexton.deploy.java import Java
from sexton.schemas import topics

__all__ = ["Broker", "answers", "command", "format_command", "formatted", "prepare"]

_PROPERTIES = """\
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=2
background.threads=2
group.initial.rebalance.delay.ms=0
min.insync.replicas={insync}
offsets.topic.replication.factor={replicas}
offsets.topic.num.partitions=4
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={insync}
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr={insync}
share.coordinator.state.topic.num.partitions=1
log.cleaner.dedupe.buffer.size=16777216
"""
_LOGGING = """\
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %p %c{1}: %m%n
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
logger.server.name=kafka.server.KafkaRaftServer
logger.server.level=INFO
"""
_PROPERTIES_FILE = "server.properties"
_LOGGING_FILE = "log4j2.properties"
_FORMATTED = "data/meta.properties"  # written last
# C1 alone and one collector thread: a broker for one machine should start soon, not peak high.
_JVM = ("-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True, slots=True)
class Broker:
    """One of the cluster, by its number from 1: the port for clients, and the one for controllers."""

    number: int
    port: int
    controller: int

    def folder(self, directory: Path) -> Path:
        """Return where its files are; those of the first are in the cluster's folder itself."""
        return directory if self.number == 1 else directory / str(self.number)


def prepare(directory: Path, cluster: Sequence[Broker]) -> None:
    """Write the files of all brokers of a cluster; the storage of each has to be formatted once."""
    _identity(directory)
    for broker in cluster:
        folder = broker.folder(directory)
        folder.mkdir(parents=True, exist_ok=True)
        properties = _properties(cluster, broker, folder / "data")
        (folder / _PROPERTIES_FILE).write_text(properties, encoding="utf-8")
        (folder / _LOGGING_FILE).write_text(_LOGGING, encoding="utf-8")


def format_command(directory: Path, broker: Broker, java: Java, cache: Path) -> list[str]:
    """Return the command line that formats the storage of a broker whose files are there."""
    folder = broker.folder(directory)
    arguments = [
        "format",
        f"--cluster-id={_identity(directory)}",  # in one: it may begin with a dash
        "-c",
        str(folder / _PROPERTIES_FILE),
        "--ignore-formatted",
    ]
    return java.command(*_options(folder, cache), "kafka.tools.StorageTool", *arguments)


def command(directory: Path, broker: Broker, java: Java, cache: Path) -> list[str]:
    """Return the command line of a broker whose files are there."""
    folder = broker.folder(directory)
    options = _options(folder, cache)
    return java.command("-Xms64m", "-Xmx512m", *options, "kafka.Kafka", str(folder / _PROPERTIES_FILE))


def formatted(directory: Path, broker: Broker | None = None) -> bool:
    """Return whether this broker has storage there, or any of the cluster."""
    if broker is not None:
        return (broker.folder(directory) / _FORMATTED).is_file()
    return any(True for _ in (*directory.glob(_FORMATTED), *directory.glob(f"*/{_FORMATTED}")))


def answers(properties: Mapping[str, Any], listed: Collection[int] = ()) -> str | None:
    """Return None if a broker with a controller serves metadata, else what is missing.

    `properties` are librdkafka's; `listed` are the ports of brokers that have to be in the cluster.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        metadata = AdminClient({**properties, "log_level": 0}).list_topics(timeout=2)
    except KafkaException as error:
        return str(error.args[0].str())
    if absent := set(listed) - {broker.port for broker in metadata.brokers.values()}:
        return f"not in the cluster yet: {', '.join(str(port) for port in sorted(absent))}"
    return None if metadata.brokers and metadata.controller_id >= 0 else "no controller yet"


def _options(folder: Path, cache: Path) -> tuple[str, ...]:
    logging = f"-Dlog4j2.configurationFile={folder / _LOGGING_FILE}"
    return (*_JVM, logging, "-cp", jars.broker_classpath(cache))


def _properties(cluster: Sequence[Broker], broker: Broker, data: Path) -> str:
    replicas, insync = topics.durability_for(len(cluster))
    return _PROPERTIES.format(
        number=broker.number,
        voters=",".join(f"{each.number}@127.0.0.1:{each.controller}" for each in cluster),
        port=broker.port,
        controller=broker.controller,
        data=data,
        replicas=replicas,
        insync=insync,
    )


def _identity(directory: Path) -> str:
    """Return the id that all brokers of the cluster share, chosen once.

    It is on disk before the first storage is formatted: a format cut short is taken up with the same one.
    """
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "cluster-id"
    if not file.is_file():
        unfinished = file.with_suffix(".new")
        chosen = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        unfinished.write_text(chosen, encoding="ascii")
        unfinished.replace(file)
    return file.read_text(encoding="ascii")
