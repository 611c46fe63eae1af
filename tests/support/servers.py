"""Redis servers of a test's own."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import redis
from pydantic import SecretStr

from sexton.deploy.local import Installation, ports, valkey
from sexton.schemas.settings import Settings


class Server:
    """A Redis of the test's own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.port = ports.choose(1)[0]
        self.options = list(options)
        self.process: subprocess.Popen[bytes] | None = None
        self.client: Any = redis.Redis(port=self.port, socket_timeout=10)
        assert self.start()

    def start(self, *options: str, loading: bool = False) -> bool:
        """Start it; say whether it answers at last; with `loading`, that it is still loading will do."""
        command = [*valkey.command(self.folder, self.port), *self.options, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 10
        while self.process.poll() is None and time.monotonic() < until:
            said = valkey.answers(self.port)
            if said is None or (loading and "LOADING" in said):
                return True
            time.sleep(0.01)
        return False

    def kill(self) -> None:
        """End it with SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def settings(self, installation: Installation) -> Settings:
        """The installation's settings with this Redis."""
        url = SecretStr(f"redis://127.0.0.1:{self.port}/0")
        return installation.settings.model_copy(update={"redis_url": url})
