"""The reaper as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from sexton.deploy.local import Installation, LocalStack


class Command:
    """A reaper process; its stderr is collected."""

    program: Sequence[str] = (sys.executable, "-m", "sexton.deploy.main", "reaper", "run")

    def __init__(self, installation: Installation | LocalStack, *arguments: str, **env: str) -> None:
        self.process = subprocess.Popen(
            [*self.program, *arguments],
            env={**installation.environment, **env},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a process group of its own: signals to it reach no test
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(iter(self.process.stderr.readline, ""))

    def wait(self, timeout: float = 150) -> int:
        """Wait for the end and return the exit code."""
        code = self.process.wait(timeout)
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def end(self) -> None:
        """Kill it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait()

    def until(self, what: Callable[[], object], seconds: float = 200, every_s: float = 0.05) -> None:
        """Return once something holds; fail with its stderr if it ends before, or takes too long."""
        deadline = time.monotonic() + seconds
        while not what():
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.printed}"
            assert time.monotonic() < deadline, f"it did not become true: {self.printed}"
            time.sleep(every_s)

    @property
    def printed(self) -> str:
        """Its stderr so far."""
        return "".join(self.lines)

    def events(self, name: str) -> list[dict[str, Any]]:
        """The JSON lines of one kind that it has printed."""
        parsed = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [line for line in parsed if line["event"] == name]
