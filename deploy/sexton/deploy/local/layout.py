"""Where everything of a local stack lies and answers: what follows from its folder, its state, its caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sexton.deploy.local import kafka
from sexton.deploy.local.servers import Server, servers
from sexton.deploy.local.state import State
from sexton.schemas import settings as settings_module
from sexton.schemas.settings import Settings

__all__ = ["Layout"]


@dataclass(frozen=True, slots=True)
class Layout:
    """A stack as its state has it; `environ` is the environment of who started it."""

    directory: Path
    state: State
    environ: Mapping[str, str]

    @property
    def env(self) -> dict[str, str]:
        """The `SEXTON_…` and `AWS_…` variables by which other programs use the parts that this stack runs."""
        without = self.state.without
        variables = {
            "SEXTON_STATE_DIR": str(self.directory),
            "SEXTON_CHECKPOINT": str(self.directory / "checkpoint"),
        }
        if "kafka" not in without:
            brokers = [self.address(server) for server in self.servers("kafka")]
            variables["SEXTON_KAFKA_BOOTSTRAP_SERVERS"] = ",".join(brokers)
        if "redis" not in without:
            variables["SEXTON_REDIS_URL"] = f"redis://{self.address(Server('redis'))}/0"
        if "issuer" not in without:
            issuers = [self.address(server) for server in self.servers("issuer")]
            variables["SEXTON_ISSUER_BIND"] = issuers[0]
            variables["SEXTON_ISSUER_URL"] = ",".join(f"http://{address}" for address in issuers)
        return variables | self._env_of_store()

    def _env_of_store(self) -> dict[str, str]:
        variables = {}
        if self.state.faults is not None:
            url = f"http://{self.address(Server('faults'))}"
            variables = {"SEXTON_S3_ENDPOINT_URL": url, "AWS_ENDPOINT_URL_S3": url}
        elif "s3" not in self.state.without:
            variables = {"SEXTON_S3_ENDPOINT_URL": self.store_url, "AWS_ENDPOINT_URL_S3": self.store_url}
        if "s3" not in self.state.without:
            variables |= {
                "SEXTON_S3_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "sexton",
                "AWS_SECRET_ACCESS_KEY": "sexton-local",
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true",
            }
        return variables

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of a program that uses the stack: that of the caller, the stack's on top."""
        return {**self.environ, **self.env}

    @property
    def settings(self) -> Settings:
        """The settings that such a program would load."""
        return settings_module.load(self.environment)

    @property
    def cache(self) -> Path:
        """Where programs of servers are kept, for all stacks."""
        return self.settings.cache_dir.expanduser()

    @property
    def store_url(self) -> str:
        """The address of the store itself, also where a proxy that plays faults stands before it."""
        if "s3" in self.state.without:
            return self.environ["SEXTON_S3_ENDPOINT_URL"]
        return f"http://{self.address(Server('s3'))}"

    @property
    def requests_log(self) -> Path:
        """Where the proxy that plays faults logs each request to the store, as JSON lines."""
        return self.directory / "logs" / "s3-requests.jsonl"

    def log(self, name: str) -> Path:
        """Return where the output of a process goes."""
        return self.directory / "logs" / f"{name}.log"

    def servers(self, *parts: str) -> list[Server]:
        """Return all servers that these parts have here."""
        return servers(parts, self.state.servers)

    def port(self, server: Server) -> int:
        """Return the port of a server; raises KeyError if the stack has none for it."""
        return self.state.ports[server.name]

    def address(self, server: Server) -> str:
        """Return host and port of a server; raises KeyError if the stack has no port for it."""
        return f"127.0.0.1:{self.port(server)}"

    @property
    def kafka_folder(self) -> Path:
        """The folder of the brokers."""
        return self.directory / "kafka"

    @property
    def brokers(self) -> list[kafka.Broker]:
        """All brokers, by their number."""
        ports = self.state.ports
        return [
            kafka.Broker(server.number, self.port(server), ports[server.controller])
            for server in self.servers("kafka")
        ]
