"""Three real brokers, each a controller too, for tests that take the majority away."""

from __future__ import annotations

import base64
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sexton.deploy import jars, java
from sexton.deploy.local import LocalStack, kafka, ports

__all__ = ["Brokers"]

_PROPERTIES = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
log.cleaner.dedupe.buffer.size=16777216
"""
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SMALL = ("-Xms32m", "-Xmx256m")


class Brokers:
    """Brokers 1 to 3 as processes of a stack that has no broker of its own; they end with it."""

    def __init__(self, stack: LocalStack) -> None:
        self._stack = stack
        chosen = ports.choose(6)
        self._ports = dict(zip((1, 2, 3), chosen[:3], strict=True))
        self._controllers = dict(zip((1, 2, 3), chosen[3:], strict=True))
        self.addresses = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        cache = stack.settings.cache_dir.expanduser()
        self._java = java.find(cache, stack.environment)
        self._options = (*_JVM, "-cp", jars.broker_classpath(cache))
        identity = "x" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda node: self._format(node, identity), self._ports))
        self.start(1, 2, 3)

    def start(self, *nodes: int) -> None:
        """Start brokers and return when each answers."""
        started = {
            node: self._stack.run(_name(node), self._command(node), self._stack.environment) for node in nodes
        }
        for node, process in started.items():
            address = {"bootstrap.servers": f"127.0.0.1:{self._ports[node]}"}
            self._stack.wait_ready(_name(node), process, lambda address=address: kafka.answers(address))  # type: ignore[misc]

    def kill(self, *nodes: int) -> None:
        """End brokers with SIGKILL."""
        for node in nodes:
            self._stack.kill(_name(node))

    def _properties(self, node: int) -> Path:
        return self._stack.directory / _name(node) / "server.properties"

    def _command(self, node: int) -> list[str]:
        return self._java.command(*_SMALL, *self._options, "kafka.Kafka", str(self._properties(node)))

    def _format(self, node: int, identity: str) -> None:
        file = self._properties(node)
        file.parent.mkdir()
        voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in self._controllers.items())
        text = _PROPERTIES.format(
            node=node,
            voters=voters,
            port=self._ports[node],
            controller=self._controllers[node],
            data=file.parent / "data",
        )
        file.write_text(text, encoding="utf-8")
        arguments = ["format", f"--cluster-id={identity}", "-c", str(file)]
        command = self._java.command(*_SMALL, *self._options, "kafka.tools.StorageTool", *arguments)
        subprocess.run(command, check=True, capture_output=True, timeout=250)


def _name(node: int) -> str:
    return f"broker-{node}"
