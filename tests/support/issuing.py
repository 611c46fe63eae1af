"""What several tests of the issuer use: calls to a service of this process, and its Redis."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import redis
from tests.support.stacks import Stack

from sexton.deploy.local import Installation
from sexton.issuer.client import Issuer, Subject
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.attach import Attach
from sexton.issuer.operations.re_attach import ReAttach
from sexton.issuer.operations.validate import Validate
from sexton.issuer.service import Service
from sexton.schemas.errors import RequestRefused
from sexton.schemas.settings import Settings
from sexton.schemas.windows import Window

Serve = Callable[[Settings], Service]
Write = Callable[[Settings, int, int], None]


class Case:
    """An issuer under test and how intents get written beside it."""

    def __init__(self, issuer: Issuer, written: Callable[[int, int], object]) -> None:
        self.issuer = issuer
        self.written = written

    def window(self, tenant: str, generation: int, partition: int = 0) -> Window | None:
        """The window of one generation, from the log's end."""
        subject = Subject(tenant, generation, partition)
        return self.issuer.validate([subject]).windows[subject]


def refused(kind: str) -> pytest.RaisesExc[RequestRefused]:
    """Expect a refusal of this type."""
    return pytest.raises(RequestRefused, check=lambda error: error.type == kind)


def redis_of(settings: Settings) -> Any:
    """Return a client of an installation's Redis database."""
    return redis.Redis.from_url(settings.redis_url.get_secret_value())


def attach(
    service: Service, node: str, tenant: str, request_id: str | None = None, caller: str | None = None
) -> int:
    """Attach through a service of this process."""
    asked = Attach(node=node, tenant=tenant, request_id=request_id, caller=caller)
    return service.authority().answer(asked, Deadline.after(20)).generations[tenant]


def re_attach(service: Service, node: str) -> dict[str, int]:
    """Re-attach through a service of this process."""
    return dict(service.authority().answer(ReAttach(node=node), Deadline.after(20)).generations)


def newest(service: Service, tenant: str, generation: int) -> bool:
    """Whether a generation validates as the newest."""
    asked = Validate([Subject(tenant, generation, 0)])
    return service.authority().answer(asked, Deadline.after(20)).answers[0].newest


def keys(settings: Settings, topic_id: str) -> dict[str, str]:
    """The Redis keys of a log."""
    return {name: f"{{sexton:{topic_id}}}:{name}" for name in ("meta", "newest", "proposed")}


def log_id(service: Service) -> str:
    """The id of the log that a service folds."""
    with service.reader.state() as state:
        assert state.genesis is not None
        return state.genesis.generations_topic_id


def counter(service: Service, name: str) -> float:
    """The value of a metric without labels."""
    return service.metrics.registry.get_sample_value(f"sexton_issuer_{name}_total") or 0.0


def sexton(installation: Installation, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `sexton ARGUMENTS...` in an installation, forked from what has imported it."""
    assert isinstance(installation.stack, Stack)
    return installation.stack.forks.run(arguments, {**installation.environment, **env})


SERVE = [sys.executable, "-m", "sexton.deploy.main", "issuer", "serve", "--port", "0"]


@dataclass
class Process:
    """An issuer process, where it is ready, and the lines that it has written."""

    process: subprocess.Popen[str]
    url: str
    lines: list[str]


def start(installation: Installation, **env: str) -> tuple[subprocess.Popen[str], str, list[str]]:
    """Start `issuer serve` and return it, where it is ready, and the lines that it continues to write."""
    process = subprocess.Popen(
        SERVE, env={**installation.environment, **env}, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        if line.startswith("issuer ready: "):
            break
        lines.append(line)
    threading.Thread(target=_drain, args=(process, lines), daemon=True).start()
    return process, line.split()[-1], lines


def _drain(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stderr is not None
    with process.stderr:
        lines.extend(process.stderr)


@contextmanager
def serving(installation: Installation, **env: str) -> Iterator[Process]:
    """Let an issuer process of the test's own run until the test is done."""
    made = Process(*start(installation, **env))
    try:
        yield made
    finally:
        made.process.send_signal(signal.SIGTERM)
        made.process.wait(20)
