"""Connections of the SDK in two worlds that behave the same: an installation, and the fakes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from sexton.consumers.topics import read
from sexton.deploy.local import Installation
from sexton.issuer.api import Issuer
from sexton.issuer.client import IssuerClient
from sexton.producers import Limits, Sexton
from sexton.producers.testing import FakeAsyncSexton, FakeIssuer, FakeSexton
from sexton.schemas.codec import Codec
from sexton.schemas.events import DeletionIntent
from sexton.schemas.settings import Settings

__all__ = ["Fake", "Losing", "Real", "run"]


class Real:
    """Connections to an installation."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._issuer = IssuerClient.of(installation.settings)

    def close(self) -> None:
        """Let go of the issuer."""
        self._issuer.close()

    @property
    def settings(self) -> Settings:
        """The settings of the installation."""
        return self._installation.settings

    def issuer(self) -> Issuer:
        """Return a client of the installation's issuer."""
        return self._issuer

    def connect(self, node: str, limits: Limits | None = None, issuer: Any = None) -> Sexton:
        """Connect a node."""
        return Sexton.connect(node, self._installation.settings, limits=limits, issuer=issuer)

    def emitted(self, sexton: Sexton) -> list[DeletionIntent]:
        """Return what stands in the intents topic."""
        codec = Codec()
        records = read(self._installation.settings, "intents", timeout=10)
        return [codec.decode(record.value, DeletionIntent) for record in records]


class Fake:
    """Connections without servers, to one issuer in memory."""

    def __init__(self) -> None:
        self._issuer = FakeIssuer()
        self._made: list[FakeSexton] = []

    def close(self) -> None:
        """Nothing is held."""

    def issuer(self) -> Issuer:
        """Return the issuer in memory."""
        return self._issuer

    def connect(self, node: str, limits: Limits | None = None, issuer: Any = None) -> Sexton:
        """Connect a node."""
        sexton = FakeSexton(node, self._issuer, limits=limits)
        if issuer is not None:
            sexton._issuer = issuer
        self._made.append(sexton)
        return sexton

    def emitted(self, sexton: Sexton) -> list[DeletionIntent]:
        """Return what all connections have emitted."""
        return [intent for made in self._made for intent in made.intents]


class Losing:
    """An issuer of which the answers to named calls are lost, as many times as said; the calls are made."""

    def __init__(self, issuer: Any, error: BaseException, **times: int) -> None:
        self.calls: list[str] = []
        self._issuer, self._error, self._times = issuer, error, times

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._issuer, name)

        def made(*given: Any, **named: Any) -> Any:
            self.calls.append(name)
            answer = call(*given, **named)
            if self._times.get(name, 0) > 0:
                self._times[name] -= 1
                raise self._error
            return answer

        return made


def run(work: Callable[[FakeAsyncSexton], Coroutine[Any, Any, None]]) -> FakeAsyncSexton:
    """Run work with a fake connection, which is closed afterwards, and return that."""

    async def all_of_it() -> FakeAsyncSexton:
        async with FakeAsyncSexton("node-7") as sexton:
            await work(sexton)
        return sexton

    return asyncio.run(all_of_it())
