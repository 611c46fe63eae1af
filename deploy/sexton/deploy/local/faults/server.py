"""The proxy as a process: what `sexton local faults` and the local stack run."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import IO, Any

from sexton.deploy.local.faults.log import RequestLog
from sexton.deploy.local.faults.proxy import FaultProxy, parse_listen
from sexton.deploy.local.faults.source import RuleSource
from sexton.schemas.text import counted

__all__ = ["serve"]


def serve(listen: str, store: str, file: Path, log: Path | None) -> None:
    """Serve until SIGTERM or SIGINT; the log goes to stdout unless `log` names a file.

    Raises UsageError (InvalidFaults among them) and EnvironmentFault.
    """
    host, port = parse_listen(listen)
    source = RuleSource(file)
    with contextlib.ExitStack() as stack:
        stream: IO[bytes] = sys.stdout.buffer if log is None else stack.enter_context(log.open("ab"))
        proxy = FaultProxy(store, source, RequestLog(stream))

        def ready(chosen: int) -> None:
            count = len(source.current())
            print(
                f"faults: http://{host}:{chosen} before {store}, {counted(count, 'rule')}",
                file=sys.stderr,
                flush=True,
            )

        _runner()(_until_signal(proxy, host, port, ready))


async def _until_signal(proxy: FaultProxy, host: str, port: int, ready: Callable[[int], None]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await proxy.serve(host, port, ready, stop)


def _runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.run
    return asyncio.run
