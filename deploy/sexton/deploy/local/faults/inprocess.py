"""A proxy in this process, on a thread of its own: for tests and notebooks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sexton.deploy.local.faults.log import Logged, RequestLog, read_log
from sexton.deploy.local.faults.proxy import FaultProxy
from sexton.deploy.local.faults.source import RuleSource

__all__ = ["Running", "running"]


@dataclass(frozen=True, slots=True)
class Running:
    """A proxy that answers at `url`, plays what stands in `file`, and logs to `log`."""

    url: str
    file: Path
    log: Path

    def play(self, rules: str = "") -> None:
        """Play these rules (TOML) from the next request on; without any, only record."""
        # In one step: a request that comes meanwhile must not find half a file.
        fresh = self.file.with_suffix(".new")
        fresh.write_text(rules, encoding="utf-8")
        fresh.replace(self.file)

    def requests(self, operation: str | None = None) -> list[Logged]:
        """Return the requests so far, or those of one operation, in the order of their answers."""
        return read_log(self.log, operation)


@contextmanager
def running(
    store: str, directory: Path, rules: str = "", listen: tuple[str, int] = ("127.0.0.1", 0)
) -> Iterator[Running]:
    """Run a proxy in front of a store (http://HOST:PORT) for the length of the block.

    `directory` gets its two files, `faults.toml` and `requests.jsonl`; a log that is there is added to.
    Raises InvalidFaults for rules that cannot be played, EnvironmentFault when it cannot listen.
    """
    directory.mkdir(parents=True, exist_ok=True)
    file, log = directory / "faults.toml", directory / "requests.jsonl"
    file.write_text(rules, encoding="utf-8")
    with log.open("ab") as stream:
        proxy = FaultProxy(store, RuleSource(file), RequestLog(stream))
        port: Future[int] = Future()
        stopping: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

        async def serve() -> None:
            stop = asyncio.Event()
            stopping.set_result((asyncio.get_running_loop(), stop))
            try:
                await proxy.serve(*listen, port.set_result, stop)
            except BaseException as error:
                if port.done():
                    raise
                port.set_exception(error)

        thread = threading.Thread(target=lambda: asyncio.run(serve()), name="faults", daemon=True)
        thread.start()
        try:
            yield Running(f"http://{listen[0]}:{port.result(30)}", file, log)
        finally:
            loop, stop = stopping.result(30)
            if not loop.is_closed():
                loop.call_soon_threadsafe(stop.set)
            thread.join(30)
