"""How each server of a local stack is started and asked whether it is ready."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sexton.deploy.java import Java
from sexton.deploy.local import faults_server, issuer, kafka, s3, valkey
from sexton.deploy.local.layout import Layout
from sexton.deploy.local.servers import Server

__all__ = ["Probe", "command_of", "environment_of", "probe_of"]

Probe = Callable[[], str | None]
"""Asks a server; returns None when it is ready, else what is wrong."""


def command_of(server: Server, layout: Layout, java: Callable[[], Java]) -> list[str]:
    """Return what starts the server; Java is looked for where it is needed. Raises what finding it raises."""
    port = layout.port(server)
    if server.part == "kafka":
        return kafka.command(layout.kafka_folder, layout.brokers[server.number - 1], java(), layout.cache)
    if server.part == "redis":
        return valkey.command(layout.directory / "redis", port)
    if server.part == "faults":
        assert layout.state.faults is not None
        rules = Path(layout.state.faults)
        return faults_server.command(port, layout.store_url, rules, layout.requests_log)
    return s3.command(port) if server.part == "s3" else issuer.command()


def environment_of(server: Server, layout: Layout) -> dict[str, str]:
    """Return the environment of the server: an issuer is told which address is its own."""
    if server.part != "issuer":
        return layout.environment
    return {**layout.environment, "SEXTON_ISSUER_BIND": layout.address(server)}


def probe_of(server: Server, layout: Layout) -> Probe:
    """Return what asks the server."""
    port, address = layout.port(server), layout.address(server)
    probes: dict[str, Probe] = {
        "kafka": lambda: kafka.answers({"bootstrap.servers": address}, listed=[port]),
        "redis": lambda: valkey.answers(port),
        "s3": lambda: s3.answers(f"http://{address}"),
        "faults": lambda: faults_server.answers(port),
        "issuer": lambda: issuer.answers(f"http://{address}"),
    }
    return probes[server.part]
