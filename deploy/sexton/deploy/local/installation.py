"""One more installation on the servers of a running stack: for tests and benchmarks side by side."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from sexton.deploy import topics
from sexton.deploy.local import issuer, ports, s3
from sexton.deploy.local.stack import LOCAL_PARTITIONS, LocalStack
from sexton.schemas import settings as settings_module
from sexton.schemas.settings import Settings

__all__ = ["Installation"]


class Installation:
    """Topics with a prefix, a bucket, a Redis database and an issuer of its own.

    `env` holds the variables that lead to it, `bucket` its bucket's name, `directory` a folder for its files.
    Each takes the next of `databases`: processes that share a stack count from different numbers.
    """

    databases: ClassVar[Iterator[int]] = itertools.count(1)

    def __init__(self, stack: LocalStack, name: str) -> None:
        self.stack = stack
        self.name = name
        self.bucket = name
        self.directory: Path = stack.directory / name
        self._issuer = f"issuer-{name}"
        address = f"127.0.0.1:{ports.choose(1)[0]}"
        redis = stack.env["SEXTON_REDIS_URL"].rpartition("/")[0]
        self.env = {
            **stack.env,
            "SEXTON_TOPIC_PREFIX": f"{name}.",
            "SEXTON_REDIS_URL": f"{redis}/{next(self.databases)}",
            "SEXTON_ISSUER_BIND": address,
            "SEXTON_ISSUER_URL": f"http://{address}",
            "SEXTON_CHECKPOINT": str(self.directory / "checkpoint"),
        }

    @classmethod
    def start(
        cls,
        stack: LocalStack,
        name: str,
        *,
        partitions: int = LOCAL_PARTITIONS,
        genesis: bool = True,
        with_issuer: bool = True,
    ) -> Installation:
        """Create what is its own and start its issuer; return when the issuer is ready.

        `name` has to be a bucket's name. Without `genesis` the topics are made and the log stays empty.
        """
        made = cls(stack, name)
        made.directory.mkdir(parents=True, exist_ok=True)
        create = topics.create_installation if genesis else topics.create_topics
        create(made.settings, partitions=partitions)
        s3.create_bucket(stack.store_url, name)
        if with_issuer:
            made.start_issuer()
        return made

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of a program that uses this installation."""
        return {**self.stack.environment, **self.env}

    @property
    def settings(self) -> Settings:
        """The settings that such a program would load."""
        return settings_module.load(self.environment)

    @property
    def issuer_log(self) -> Path:
        """Where the issuer's output goes."""
        return self.stack.log(self._issuer)

    def start_issuer(self) -> None:
        """Start the issuer and return when it is ready."""
        started = self.stack.run(self._issuer, issuer.command(), self.environment)
        url = self.env["SEXTON_ISSUER_URL"]
        self.stack.wait_ready(self._issuer, started, lambda: issuer.answers(url))

    def kill_issuer(self) -> None:
        """End the issuer with SIGKILL, as a crash would; nothing happens if it does not run."""
        if self.stack.started(self._issuer):
            self.stack.kill(self._issuer)

    def stop(self) -> None:
        """End the issuer and delete the topics."""
        self.stack.end(self._issuer)
        topics.delete_topics(self.settings)
