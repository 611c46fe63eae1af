"""The server: takes requests, lets the rules decide, asks the store, writes the log, answers."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlsplit

from sexton.deploy.local.faults import replies
from sexton.deploy.local.faults.decisions import Plan, decide
from sexton.deploy.local.faults.http import Broken, Incoming, Outgoing, Reply, Request
from sexton.deploy.local.faults.log import Logged, Played, RequestLog
from sexton.deploy.local.faults.request import S3Request, describe
from sexton.deploy.local.faults.resigning import Resigner
from sexton.deploy.local.faults.rules import Cut, Empty, Error, Torn, When
from sexton.deploy.local.faults.source import RuleSource
from sexton.schemas.errors import EnvironmentFault, UsageError

__all__ = ["FaultProxy", "parse_listen", "parse_store"]

_BACKLOG = 512


def parse_store(url: str) -> tuple[str, int]:
    """Return host and port of the store; raises UsageError for anything but plain HTTP to a root."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise UsageError(
            f"the store behind the proxy must be http://HOST:PORT: {url}",
            hint="clients sign the proxy's address, which only a local store takes for its own",
        )
    return parts.hostname, parts.port or 80


def parse_listen(text: str) -> tuple[str, int]:
    """Return host and port to listen on; raises UsageError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"an address to listen on is HOST:PORT: {text}")
    return host, int(port)


class FaultProxy:
    """One proxy in front of one store; serves until `stop` is set."""

    def __init__(self, store: str, source: RuleSource, log: RequestLog) -> None:
        self._host, self._port = parse_store(store)
        self._source = source
        self._log = log
        self._resigner = Resigner(f"http://{self._host}:{self._port}")
        self._numbers = itertools.count(1)
        self._connections = itertools.count(1)
        self._open: set[asyncio.Task[None]] = set()

    async def serve(self, host: str, port: int, ready: Callable[[int], None], stop: asyncio.Event) -> None:
        """Listen (port 0 takes a free one, and `ready` is told which) until `stop` is set.

        Raises EnvironmentFault when the address cannot be had.
        """
        try:
            server = await asyncio.start_server(self._client, host, port, backlog=_BACKLOG)
        except OSError as error:
            raise EnvironmentFault(f"cannot listen on {host}:{port}: {error.strerror}") from error
        ready(server.sockets[0].getsockname()[1])
        await stop.wait()
        server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        incoming, outgoing = Incoming(reader, writer), Outgoing(self._host, self._port)
        connection = next(self._connections)
        try:
            while (request := await self._next(incoming)) is not None:
                if not await self._one(request, connection, incoming, outgoing):
                    return
        except asyncio.CancelledError:
            return  # the proxy is being stopped, and its clients see it go
        finally:
            self._open.discard(task)
            outgoing.close()
            incoming.close()

    async def _next(self, incoming: Incoming) -> Request | None:
        try:
            return await incoming.request()
        except Broken as broken:
            print(f"faults: refused what is no HTTP request: {broken}", file=sys.stderr, flush=True)
            await incoming.refuse()
            return None

    async def _one(self, request: Request, connection: int, incoming: Incoming, outgoing: Outgoing) -> bool:
        """Answer one request; False when its connection is over."""
        arrived = _Arrived(_described(request), next(self._numbers), connection)
        plan = decide(self._source.current(), arrived.request, arrived.began)
        await _wait(plan.wait_before_s)
        result = await self._asked(request, arrived, plan, outgoing)
        await _wait(plan.wait_after_s)
        # The line comes first: who has the answer finds the request in the log.
        self._log.write(_line(arrived, plan, result))
        if result.reply is None:
            incoming.cut()
            return False
        return await incoming.reply(result.reply, plan.answer.keep if isinstance(plan.answer, Torn) else None)

    async def _asked(self, request: Request, arrived: _Arrived, plan: Plan, outgoing: Outgoing) -> _Result:
        """Ask the store, unless the plan keeps everything from it, and return what the client gets."""
        unasked = plan.answer is not None and plan.when is When.BEFORE
        if unasked or (plan.withheld and len(plan.withheld) == len(arrived.request.entries)):
            return _Result(_answer(plan, arrived, None))
        try:
            store = await outgoing.exchange(await self._to_send(request, arrived.request, plan))
        except Broken as broken:
            away = Error("BadGateway", 502, f"the store behind the proxy cannot be reached: {broken}")
            reply = None if broken.sent else replies.error_reply(away, arrived.request, arrived.request_id)
            return _Result(reply, forwarded=broken.sent, trouble=str(broken))
        return _Result(_answer(plan, arrived, store), store, forwarded=True)

    async def _to_send(self, request: Request, described: S3Request, plan: Plan) -> Request:
        if not plan.withheld:
            return request
        fewer = replies.without_entries(request, described, plan.withheld)
        return await asyncio.to_thread(self._resigner.fitting, fewer, described.bucket)


@dataclass(frozen=True, slots=True)
class _Arrived:
    request: S3Request
    number: int
    connection: int
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    began: float = field(default_factory=time.monotonic)

    @property
    def request_id(self) -> str:
        return f"FAULTS{self.number:010d}"


@dataclass(frozen=True, slots=True)
class _Result:
    """What the client gets (None: a cut connection), and how it went with the store."""

    reply: Reply | None
    store: Reply | None = None
    forwarded: bool = False
    trouble: str = ""


def _answer(plan: Plan, arrived: _Arrived, store: Reply | None) -> Reply | None:
    match plan.answer:
        case Error() as error:
            return replies.error_reply(error, arrived.request, arrived.request_id)
        case Empty():
            return replies.empty_reply(arrived.request_id)
        case Cut():
            return None
    reply = replies.delete_result(arrived.request_id) if store is None else store
    return replies.mended(reply, arrived.request, plan.keys) if plan.keys else reply


def _line(arrived: _Arrived, plan: Plan, result: _Result) -> Logged:
    request = arrived.request
    trouble = [Played("the store", result.trouble)] if result.trouble else []
    single = [] if request.key is None else [request.version]
    return Logged(
        at=arrived.at.isoformat(timespec="microseconds"),
        number=arrived.number,
        connection=arrived.connection,
        method=request.method,
        target=request.target,
        operation=request.operation,
        bucket=request.bucket,
        keys=request.keys,
        versions=[entry.version for entry in request.entries] or single,
        status=None if result.reply is None else result.reply.status,
        store_status=None if result.store is None else result.store.status,
        forwarded=result.forwarded,
        ms=round((time.monotonic() - arrived.began) * 1000, 3),
        played=[*plan.played, *trouble],
    )


def _described(request: Request) -> S3Request:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in request.headers}
    return describe(request.method.decode("latin-1"), request.target.decode("latin-1"), headers, request.body)


async def _wait(seconds: float) -> None:
    if seconds:
        await asyncio.sleep(seconds)
