"""The proxy that plays faults as a process of the local stack."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from sexton.schemas.errors import UsageError

__all__ = ["answers", "check", "command"]


def command(port: int, store: str, file: Path, log: Path) -> list[str]:
    """Return the proxy's command line; raises UsageError for a store that would be the proxy itself."""
    if store == f"http://127.0.0.1:{port}":
        raise UsageError(
            "the proxy would stand before itself", hint="set SEXTON_S3_ENDPOINT_URL to the store"
        )
    program = [sys.executable, "-m", "sexton.deploy.main", "local", "faults", str(file)]
    return [*program, "--listen", f"127.0.0.1:{port}", "--to", store, "--log", str(log)]


def check(file: Path) -> None:
    """Read a file of faults, before anything is started for it; raises InvalidFaults."""
    from sexton.deploy.local.faults import rules

    rules.read(file)


def answers(port: int) -> str | None:
    """Return None if the proxy takes connections, else why not: a request would be counted by its rules."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError as error:
        return str(error)
    return None
