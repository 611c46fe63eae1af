"""Broker, Valkey, S3 server and issuer in containers on a network of their own, and what runs beside them.

Sexton's own run as a foreign user id without an entry in /etc/passwd and without HOME, on a root file system
that cannot be written, without any capability.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support import images
from tests.support.waits import until

from sexton.deploy.local import kafka, ports

__all__ = ["HARDENED", "ContainerStack", "Ended", "healthy", "started", "stopped", "told"]

HARDENED: Mapping[str, Any] = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
}
_START_SECONDS = 240
_STOP_SECONDS = 90
_BROKER = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENERS": "INTERNAL://:9092,CONTROLLER://:9093,HOST://:9094",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,HOST:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "INTERNAL",
    "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "4",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
_ENTRYPOINTS = {
    images.ISSUER: ["sexton"],
    images.REAPER: ["entrypoint"],
    images.TOOLS: ["entrypoint", "sexton"],
}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a container ended: exit code, and what it printed."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class ContainerStack:
    """Containers on a network; `inside` are the variables of each, the rest is how the host reaches them."""

    client: Any
    network: Any
    inside: Mapping[str, str]
    bootstrap_servers: str
    issuer_url: str
    s3_url: str

    @contextmanager
    def running(
        self,
        image: str,
        *command: str,
        user: str,
        exposed: tuple[int, ...] = (),
        alias: str | None = None,
        volume: str | None = None,
        **variables: str,
    ) -> Iterator[Any]:
        """Run a container of an image of ours, hardened and without HOME; without a command by its own."""
        container = _container(image, self.network, alias, {**self.inside, **variables}, *exposed)
        # Docker sets HOME for every process, so it is taken away again.
        entrypoint = ["env", "-u", "HOME", *_ENTRYPOINTS[image]]
        container.with_kwargs(**HARDENED, user=user, entrypoint=entrypoint)
        container.with_tmpfs_mount("/tmp")
        if volume is not None:
            container.with_volume_mapping(volume, "/var/lib/sexton", "rw")
        container.with_command(list(command) or self.config(image)["Cmd"])
        with container:
            yield container

    def config(self, image: str) -> dict[str, Any]:
        """What an image says of itself."""
        config: dict[str, Any] = self.client.images.get(image).attrs["Config"]
        return config

    @contextmanager
    def volume(self) -> Iterator[str]:
        """A volume, for as long as it is needed; its name."""
        volume = self.client.volumes.create()
        try:
            yield volume.name
        finally:
            volume.remove()

    def run(self, image: str, *command: str, user: str, **options: Any) -> Ended:
        """Run one to its end."""
        with self.running(image, *command, user=user, **options) as container:
            wrapped = container.get_wrapped_container()
            code = wrapped.wait(timeout=_START_SECONDS)["StatusCode"]
            out, err = (
                wrapped.logs(stdout=stream == "out", stderr=stream == "err").decode()
                for stream in ("out", "err")
            )
            return Ended(code, out, err)


@contextmanager
def started(user: str) -> Iterator[ContainerStack]:
    """Start all of it; the issuer runs as `user`."""
    import docker

    with ExitStack() as parts:
        client = docker.from_env()
        parts.callback(client.close)
        network = client.networks.create(f"sexton-test-{os.getpid()}")
        parts.callback(network.remove)
        (port,) = ports.choose(1)  # what the broker tells its clients has to be known before it starts
        advertised = {"KAFKA_ADVERTISED_LISTENERS": f"INTERNAL://broker:9092,HOST://127.0.0.1:{port}"}
        broker = _container(images.BROKER, network, "broker", {**_BROKER, **advertised})
        parts.enter_context(broker.with_bind_ports(9094, port))
        valkey = _container(images.VALKEY, network, "valkey", {})
        valkey.with_command(["valkey-server", "--maxmemory-policy", "noeviction"])
        parts.enter_context(valkey)
        s3 = parts.enter_context(_container(images.S3, network, "s3", {}, 5000))
        inside = {
            "SEXTON_KAFKA_BOOTSTRAP_SERVERS": "broker:9092",
            "SEXTON_REDIS_URL": "redis://valkey:6379/0",
            "SEXTON_ISSUER_URL": "http://issuer:8350",
            "SEXTON_S3_ENDPOINT_URL": "http://s3:5000",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }
        stack = ContainerStack(
            client, network, inside, f"127.0.0.1:{port}", "", f"http://127.0.0.1:{s3.get_exposed_port(5000)}"
        )
        _await_broker(stack.bootstrap_servers)
        made = stack.run(images.TOOLS, "topics", "create", "--partitions", "2", user=user)
        assert made.code == 0, made.err
        issuer = parts.enter_context(stack.running(images.ISSUER, user=user, exposed=(8350,), alias="issuer"))
        healthy(issuer)
        url = f"http://127.0.0.1:{issuer.get_exposed_port(8350)}"
        yield ContainerStack(client, network, inside, stack.bootstrap_servers, url, stack.s3_url)


def healthy(container: Any) -> None:
    """Return once the image's own health check has passed; RuntimeError or TimeoutError if it does not."""
    from testcontainers.core.wait_strategies import HealthcheckWaitStrategy

    strategy = HealthcheckWaitStrategy().with_startup_timeout(_START_SECONDS).with_poll_interval(0.5)
    try:
        strategy.wait_until_ready(container)
    except (RuntimeError, TimeoutError) as error:
        error.add_note(told(container))
        raise


def told(container: Any) -> str:
    """Return what it has printed so far."""
    return str(container.get_wrapped_container().logs().decode())


def stopped(container: Any) -> int:
    """Stop it as Kubernetes does, SIGTERM first; return its exit code, 137 if it had to be killed."""
    wrapped = container.get_wrapped_container()
    wrapped.stop(timeout=_STOP_SECONDS)
    return int(wrapped.wait(timeout=_START_SECONDS)["StatusCode"])


def _container(image: str, network: Any, alias: str | None, variables: Mapping[str, str], *ports: int) -> Any:
    from testcontainers.core.container import DockerContainer

    container = DockerContainer(image).with_network(network).with_exposed_ports(*ports)
    if alias is not None:
        container.with_network_aliases(alias)
    return container.with_envs(**variables)


def _await_broker(bootstrap_servers: str) -> None:
    until(lambda: kafka.answers({"bootstrap.servers": bootstrap_servers}) is None, _START_SECONDS)
