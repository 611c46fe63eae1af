"""The servers that the processes of a test run share, and each process' own stack on them."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.forks import Forks

from sexton.deploy.local import Installation, LocalStack
from sexton.deploy.local.process import Process, spawn, started
from sexton.deploy.local.state import State
from sexton.deploy.local.wanted import SERVERS

__all__ = ["WORKER", "Stack", "stop_servers"]

WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""The number of this process of the test run."""

# Processes that share servers: each has Redis databases of its own.
Installation.databases = itertools.count(1 + 500 * WORKER)


class Stack(LocalStack):
    """What this process starts on servers that were started for all; its issuers are forked."""

    servers: LocalStack
    forks: Forks

    @classmethod
    @contextmanager
    def on(cls, servers: Path, own: Path, forks: Forks) -> Iterator[Stack]:
        """A stack in the folder `own` on the servers in `servers`, which are started if nobody did."""
        shared = LocalStack.start(servers, without={"issuer", "topics"})
        made = cls(own, {**os.environ, **shared.env})
        made.servers = shared
        made.directory.mkdir(parents=True)
        made._state = State(without=frozenset(SERVERS))
        made.forks = forks
        try:
            yield made
        finally:
            made.stop()

    @property
    def env(self) -> dict[str, str]:
        """The variables of the shared servers, and this stack's own folder."""
        return {**self.servers.env, **super().env}

    def _spawn(self, command: list[str], log: Path, environment: Mapping[str, str]) -> Process:
        if command[:3] != [sys.executable, "-m", "sexton.deploy.main"]:
            return spawn(command, directory=self.directory, log=log, environment=environment)
        return started(
            self.forks.fork(command[3:], directory=self.directory, log=log, environment=environment)
        )


def stop_servers(folder: Path) -> None:
    """End the servers in a folder, if any were started there."""
    LocalStack(folder).stop()
