"""HTTP/1.1 messages as they came: the target's bytes, header names in their case, bodies whole.

Framing is h11's. Nothing is normalised: what a client has signed is what the store gets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import h11

__all__ = ["Broken", "Incoming", "Outgoing", "Reply", "Request"]

_READ_BYTES = 256 * 1024
_HEAD_BYTES = 256 * 1024
Headers = Sequence[tuple[bytes, bytes]]


class Broken(Exception):
    """The other side has gone, or does not speak HTTP; `sent` says whether it may have been reached."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        self.sent = sent
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Request:
    """A request; `trailers` follow a chunked body."""

    method: bytes
    target: bytes
    headers: Headers
    body: bytes
    trailers: Headers = ()

    def with_body(self, body: bytes) -> Request:
        """Return it with another body, and a length that fits."""
        return replace(self, body=body, headers=_fitting(self.headers, body))


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply; a HEAD's has a length and no body."""

    status: int
    reason: bytes
    headers: Headers
    body: bytes
    trailers: Headers = ()

    def with_body(self, body: bytes) -> Reply:
        """Return it with another body, and a length that fits."""
        return replace(self, body=body, headers=_fitting(self.headers, body))


class Incoming:
    """The server's side of one client connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)

    async def request(self) -> Request | None:
        """Return the next request, None when the client has hung up; raises Broken for what is no HTTP."""
        if self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE:
            self._protocol.start_next_cycle()
        head: h11.Request | None = None
        body: list[bytes] = []
        try:
            while True:
                event: Any = self._protocol.next_event()
                if event is h11.NEED_DATA:
                    await self._fill()
                elif isinstance(event, h11.Request):
                    head = event
                elif isinstance(event, h11.Data):
                    body.append(event.data)
                elif isinstance(event, h11.EndOfMessage) and head is not None:
                    headers, trailers = head.headers.raw_items(), event.headers.raw_items()
                    return Request(head.method, head.target, headers, b"".join(body), trailers)
                else:
                    return None
        except h11.RemoteProtocolError as error:
            raise Broken(str(error)) from error
        except OSError:
            return None

    async def reply(self, reply: Reply, keep: int | None = None) -> bool:
        """Send a reply; False when the connection is over with it.

        With `keep` it ends after so many bytes of the body.
        """
        content = reply.body
        data = self._protocol.send(
            h11.Response(status_code=reply.status, reason=reply.reason, headers=list(reply.headers))
        )
        whole = [data or b""]
        if content:
            whole.append(
                self._protocol.send(h11.Data(data=content if keep is None else content[:keep])) or b""
            )
        if keep is None:
            whole.append(self._protocol.send(h11.EndOfMessage(headers=list(reply.trailers))) or b"")
        try:
            self._writer.write(b"".join(whole))
            await self._writer.drain()
        except OSError:
            return False
        return keep is None and self._protocol.our_state is h11.DONE

    async def refuse(self) -> None:
        """Answer 400 to what could not be read, if that can still be said."""
        if self._protocol.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self.reply(Reply(400, b"Bad Request", [(b"Content-Length", b"0")], b""))

    def cut(self) -> None:
        """End the connection at once, whatever was to be sent."""
        self._writer.transport.abort()

    def close(self) -> None:
        """End the connection after what was sent."""
        self._writer.close()

    async def _fill(self) -> None:
        if self._protocol.they_are_waiting_for_100_continue:
            go_on = self._protocol.send(h11.InformationalResponse(status_code=100, headers=[]))
            self._writer.write(go_on or b"")
        self._protocol.receive_data(await self._reader.read(_READ_BYTES))


class Outgoing:
    """One connection to the store at a time, kept alive; nothing is ever sent twice."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._protocol = h11.Connection(h11.CLIENT)

    async def exchange(self, request: Request) -> Reply:
        """Send a request once and return the whole reply; raises Broken."""
        reader, writer = await self._connected()
        sent = h11.Request(method=request.method, target=request.target, headers=list(request.headers))
        try:
            data = [self._protocol.send(sent) or b""]
            if request.body:
                data.append(self._protocol.send(h11.Data(data=request.body)) or b"")
            data.append(self._protocol.send(h11.EndOfMessage(headers=list(request.trailers))) or b"")
            writer.write(b"".join(data))
            await writer.drain()
            return await self._reply(reader)
        except (OSError, h11.ProtocolError) as error:
            self.close()
            raise Broken(f"{type(error).__name__}: {error}") from error
        except BaseException:
            self.close()  # half a reply would be read as the next one's
            raise

    def close(self) -> None:
        """Drop the connection."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        whole = self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE
        if whole and self._reader is not None and self._writer is not None and not self._reader.at_eof():
            self._protocol.start_next_cycle()
            return self._reader, self._writer
        self.close()
        try:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        except OSError as error:
            raise Broken(f"{type(error).__name__}: {error}", sent=False) from error
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        return self._reader, self._writer

    async def _reply(self, reader: asyncio.StreamReader) -> Reply:
        head: h11.Response | None = None
        body: list[bytes] = []
        while True:
            event: Any = self._protocol.next_event()
            if event is h11.NEED_DATA:
                self._protocol.receive_data(await reader.read(_READ_BYTES))
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body.append(event.data)
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                headers, trailers = head.headers.raw_items(), event.headers.raw_items()
                return Reply(head.status_code, head.reason, headers, b"".join(body), trailers)
            elif not isinstance(event, h11.InformationalResponse):
                raise ConnectionResetError("the store has hung up")


def _fitting(headers: Headers, body: bytes) -> Headers:
    dropped = (b"content-length", b"transfer-encoding")
    kept = [(name, value) for name, value in headers if name.lower() not in dropped]
    return [*kept, (b"Content-Length", b"%d" % len(body))]
