"""A single-node Kafka broker (KRaft) from its jars."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sexton.deploy import jars
from sexton.deploy.java import Java
from sexton.schemas.errors import EnvironmentFault

__all__ = ["answers", "command"]

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
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
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
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
_FORMAT_SECONDS = 120
# C1 alone and one collector thread: a broker for one machine should start soon, not peak high.
_JVM = ("-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def command(directory: Path, port: int, controller: int, java: Java, cache: Path) -> list[str]:
    """Return the broker's command line, after writing its files and formatting its storage once."""
    directory.mkdir(parents=True, exist_ok=True)
    data = directory / "data"
    properties = directory / "server.properties"
    properties.write_text(_PROPERTIES.format(port=port, controller=controller, data=data), encoding="utf-8")
    logging = directory / "log4j2.properties"
    logging.write_text(_LOGGING, encoding="utf-8")
    options = (*_JVM, f"-Dlog4j2.configurationFile={logging}", "-cp", jars.broker_classpath(cache))
    if not (data / "meta.properties").is_file():
        _format(directory, java.command(*options), properties)
    return java.command("-Xms64m", "-Xmx512m", *options, "kafka.Kafka", str(properties))


def answers(properties: Mapping[str, Any]) -> str | None:
    """Return None if a broker with a controller serves metadata, else what is missing.

    `properties` are librdkafka's.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        metadata = AdminClient({**properties, "log_level": 0}).list_topics(timeout=2)
    except KafkaException as error:
        return str(error.args[0].str())
    return None if metadata.brokers and metadata.controller_id >= 0 else "no controller yet"


def _format(directory: Path, java: list[str], properties: Path) -> None:
    # The id is on disk before the format: a format cut short is taken up with the same one.
    identity = directory / "cluster-id"
    if not identity.is_file():
        identity.write_text(
            base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="), encoding="ascii"
        )
    arguments = [
        "format",
        f"--cluster-id={identity.read_text(encoding='ascii')}",  # in one: it may begin with a dash
        "-c",
        str(properties),
        "--ignore-formatted",
    ]
    try:
        done = subprocess.run(
            [*java, "kafka.tools.StorageTool", *arguments],
            capture_output=True,
            text=True,
            timeout=_FORMAT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFault(f"Kafka's storage was not formatted within {_FORMAT_SECONDS} s") from error
    if done.returncode != 0:
        raise EnvironmentFault(f"Kafka's storage cannot be formatted: {(done.stderr or done.stdout).strip()}")
