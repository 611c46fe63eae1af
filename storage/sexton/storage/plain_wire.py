"""The short way to a store on plain HTTP without a proxy: one connection for each thread, kept alive.

Where every odd key is a request of its own, what a request costs decides: this way costs a third of the pool.
"""

from __future__ import annotations

import http.client
import math
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from urllib3.util.wait import wait_for_read

__all__ = ["MOST_BYTES", "Broken", "PlainReply", "PlainWire"]

MOST_BYTES = 32 * 1024 * 1024
"""The longest reply that is read; a listing or a DeleteResult of 1,000 keys has a few at most."""


class Broken(Exception):
    """The exchange failed; `sent` tells whether anything may have reached the store, `code` how it failed."""

    def __init__(self, message: str, code: str, *, sent: bool) -> None:
        self.code = code
        self.sent = sent
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class PlainReply:
    """Status, headers (looked up in any case) and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _TimedSocket(socket.socket):
    """A socket of which every answer has to be whole by a deadline, not only each piece of it.

    A reply that drips byte by byte would otherwise hold its sender, and the whole micro-batch, without end.
    """

    deadline = math.inf

    def recv_into(self, *given: Any) -> int:
        """Read what has come, until the deadline; raises TimeoutError."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the reply was not whole in time")
        self.settimeout(left)
        return super().recv_into(*given)

    def restart(self, seconds: float) -> None:
        """Begin an exchange that has so many seconds."""
        self.deadline = time.monotonic() + seconds
        self.settimeout(seconds)


class PlainWire:
    """Connections to one origin, each used by one thread; nothing is repeated."""

    def __init__(self, origin: str, connect_timeout_s: float, read_timeout_s: float) -> None:
        address = urlsplit(origin)
        self._origin = origin
        self._host, self._port = address.hostname or "", address.port or 80
        self._connect_timeout_s, self._read_timeout_s = connect_timeout_s, read_timeout_s
        self._mine = threading.local()
        self._all: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> PlainReply:
        """Send a request once and return the whole reply; raises Broken."""
        connection = self._connection()
        try:
            cast("_TimedSocket", connection.sock).restart(self._read_timeout_s)
            connection.request(method, url.removeprefix(self._origin), body or None, dict(headers))
            response = connection.getresponse()
            content = _whole(response)
        except http.client.IncompleteRead as error:
            connection.close()
            whole = len(error.partial) + (error.expected or 0)
            text = f"the reply broke off after {len(error.partial)} of {whole} bytes"
            raise Broken(text, "TornReply", sent=True) from error
        except (ValueError, OverflowError, MemoryError) as error:
            connection.close()  # a length that is none, or that nobody can hold
            raise Broken(f"{type(error).__name__}: {error}", "TornReply", sent=True) from error
        except TimeoutError as error:
            connection.close()
            text = f"no whole answer within {self._read_timeout_s:g} s"
            raise Broken(text, "ReadTimeout", sent=True) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Broken(f"{type(error).__name__}: {error}", "ConnectionBroken", sent=True) from error
        except BaseException:
            # Half a reply would be read as the next one's.
            connection.close()
            raise
        return PlainReply(response.status, cast("Mapping[str, str]", response.headers), content)

    def close(self) -> None:
        """Drop the connections."""
        with self._lock:
            for connection in self._all:
                connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._mine, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._connect_timeout_s)
            self._mine.connection = connection
            with self._lock:
                self._all.append(connection)
        if connection.sock is not None and wait_for_read(connection.sock, timeout=0):
            # Readable while idle: the store has hung up. A new one, before anything is sent.
            connection.close()
        if connection.sock is None:
            try:
                connection.connect()
            except OSError as error:
                connection.close()
                raise Broken(f"{type(error).__name__}: {error}", "EndpointUnreachable", sent=False) from error
            assert connection.sock is not None
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sock = _TimedSocket(fileno=connection.sock.detach())
        return connection


def _whole(response: http.client.HTTPResponse) -> bytes:
    """Return the body; raises IncompleteRead, and HTTPException for one that is far too long."""
    with response:  # else a reply that is refused keeps its socket open
        content = response.read(MOST_BYTES)
        left = response.length
    if left and len(content) < MOST_BYTES:
        raise http.client.IncompleteRead(content, left)
    if left or (left is None and len(content) == MOST_BYTES):
        raise http.client.HTTPException(f"a reply of more than {MOST_BYTES} bytes")
    return content
