"""The servers of a local stack by name: of a part that has several, the first bears the part's own name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PartStatus", "Server", "port_names", "servers"]


@dataclass(frozen=True, slots=True)
class Server:
    """One server of a part, by its number from 1."""

    part: str
    number: int = 1

    @property
    def name(self) -> str:
        """The name of its process, its port and its log: `kafka`, `kafka-2`, `kafka-3`."""
        return self.part if self.number == 1 else f"{self.part}-{self.number}"

    @property
    def controller(self) -> str:
        """The name of the port where brokers reach its controller."""
        return f"{self.name}-controller"


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One server: `state` is `ready`, `starting` (runs, does not answer), `dead`, `down` or `left out`."""

    part: str  # its name: `kafka`, `kafka-2`
    state: str
    pid: int | None
    port: int | None
    log: Path


def servers(parts: Iterable[str], counts: Mapping[str, int]) -> list[Server]:
    """Return all servers of these parts, in order; a part without a count has one."""
    return [Server(part, number) for part in parts for number in range(1, counts.get(part, 1) + 1)]


def port_names(parts: Iterable[str], counts: Mapping[str, int]) -> list[str]:
    """Return the names of all ports that these parts need."""
    needed: list[str] = []
    for server in servers(parts, counts):
        needed += [server.name, server.controller] if server.part == "kafka" else [server.name]
    return needed
