"""Processes of the engine: started, asked, stopped in the middle of something, woken, killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.s3_stores import Running

__all__ = ["Engine", "Engines", "Gone", "Refused"]

_ANSWER_SECONDS = 120.0
_TREE = Path(__file__).parents[2]


class Refused(Exception):
    """The engine answered with an error: its kind, why it closed itself if it did, and its words."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(f"{answer['error']} {answer['reason']}: {answer['message']}")
        self.fenced = answer["reason"] == "FENCED"


class Gone(Exception):
    """The process ended before it answered."""


class Engine:
    """One process; requests are answered in their order."""

    def __init__(self, url: str, bucket: str, running: Running, log: Path) -> None:
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        environ = {name: running.environ[name] for name in names}
        environ |= {"ENGINE_ENDPOINT": url, "ENGINE_BUCKET": bucket, "SLATEDB_UNIFFI_RUNTIME_THREADS": "2"}
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.engines.process"],
                cwd=_TREE,
                env={**os.environ, **environ},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._turns = ThreadPoolExecutor(1)

    def begin(self, do: str, **request: Any) -> Future[dict[str, Any]]:
        """Ask, and return at once."""
        return self._turns.submit(self._ask, {"do": do, **request})

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Ask and return the answer; raises Refused, Gone, TimeoutError."""
        return self.begin(do, **request).result(_ANSWER_SECONDS)

    def stop(self) -> None:
        """Stop it wherever it is, as a hypervisor does with a machine."""
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let it continue."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()
        self._turns.shutdown()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue  # what it was never told is lost with it

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError as error:
            raise Gone(str(self._process.poll())) from error
        if not line:
            raise Gone(f"no answer to {request['do']}, exit code {self._process.poll()}")
        answer: dict[str, Any] = json.loads(line)
        if not answer.pop("ok"):
            raise Refused(answer)
        return answer


@dataclass
class Engines:
    """Starts processes of the engine on one bucket, and ends those that are left."""

    running: Running
    bucket: str
    log: Path

    def __post_init__(self) -> None:
        self._started: list[Engine] = []

    def start(self, url: str | None = None) -> Engine:
        """Start one, which reaches the store at `url`, or directly."""
        found = url or self.running.settings.endpoint_url
        assert found is not None
        made = Engine(found, self.bucket, self.running, self.log)
        self._started.append(made)
        return made

    def end(self, engine: Engine) -> None:
        """End one."""
        engine.kill()
        self._started.remove(engine)

    def close(self) -> None:
        """End all."""
        for engine in list(self._started):
            self.end(engine)
