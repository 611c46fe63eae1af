"""The bytes between two machines: a TCP connection, and TLS over whatever carries it.

Nothing here waits for longer than a deadline, on the clock of `time.monotonic`: not a handshake that drips,
and not a reply of which every piece comes in time. TLS works in memory over the channel below it, so that an
idle one can be asked whether anything came (session tickets may), and a proxy be spoken to over TLS as well.
"""

from __future__ import annotations

import math
import select
import socket
import ssl
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

__all__ = ["Channel", "TcpChannel", "TlsChannel", "receive"]

_PIECE = 64 * 1024  # larger ones leave the processor's cache before they are decrypted
_KEEP_ALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


class Channel(Protocol):
    """What carries bytes; used by one thread at a time."""

    def send(self, parts: Sequence[bytes], deadline: float) -> None:
        """Send all parts, one after the other; raises OSError."""

    def receive_now(self, view: memoryview) -> int | None:
        """Read what is there; 0 at the orderly end, None when nothing has come. Raises OSError."""

    def wait(self, deadline: float) -> None:
        """Return when something has come; raises TimeoutError."""

    def close(self) -> None:
        """Drop the connection."""


def receive(channel: Channel, view: memoryview, deadline: float) -> int:
    """Read at least a byte, 0 at the orderly end; raises TimeoutError at the deadline, and OSError."""
    while (count := channel.receive_now(view)) is None:
        channel.wait(deadline)
    if time.monotonic() > deadline:
        raise TimeoutError("not in time")  # of one who sends without a pause, so that nothing was waited for
    return count


class TcpChannel:
    """A TCP connection."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        # With Nagle's algorithm the end of a body waits 40 ms for an ACK.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A reply may take long, and a router on the way forget a silent connection.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE:
            if hasattr(socket, name):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._socket = connected
        # Also of a client that nobody closed, whatever else it is thrown away with.
        self._close = weakref.finalize(self, connected.close)
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(connected, select.POLLIN)
        self._writable.register(connected, select.POLLOUT)

    @classmethod
    def connect(cls, host: str, port: int, deadline: float) -> TcpChannel:
        """Connect to the first address of a host that answers, each with its share of the time; OSError."""
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        failed: OSError = OSError(f"no address: {host}")
        for tried, (family, kind, protocol, _, address) in enumerate(addresses):
            connection = socket.socket(family, kind, protocol)
            try:
                left = max(deadline - time.monotonic(), 0.001) / (len(addresses) - tried)
                connection.settimeout(left)
                connection.connect(address)
                return cls(connection)
            except OSError as error:
                connection.close()
                failed = error
        raise failed

    def send(self, parts: Sequence[bytes], deadline: float) -> None:
        """Send all parts in as few calls as they take; raises OSError."""
        left = [memoryview(part) for part in parts if part]
        while left:
            try:
                sent = self._socket.sendmsg(left)
            except BlockingIOError:
                _wait(self._writable, deadline)
                continue
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if left:
                left[0] = left[0][sent:]

    def receive_now(self, view: memoryview) -> int | None:
        """Read what is there; 0 at the end, None when nothing has come. Raises OSError."""
        try:
            return self._socket.recv_into(view)
        except BlockingIOError:
            return None

    def wait(self, deadline: float) -> None:
        """Return when something has come; raises TimeoutError."""
        _wait(self._readable, deadline)

    def close(self) -> None:
        """Drop the connection."""
        self._close()


class TlsChannel:
    """TLS over another channel; of use after its handshake."""

    def __init__(self, below: Channel, context: ssl.SSLContext, host: str) -> None:
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._piece = memoryview(bytearray(_PIECE))
        self.first_bytes = b""
        """What the other side began with: it tells a port that does not speak TLS."""

    def handshake(self, deadline: float) -> None:
        """Agree on keys and verify the certificate; raises SSLError, and OSError. Nothing else is sent."""
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush(deadline)
            except ssl.SSLError:
                with suppress(OSError):  # the alert: it tells the other side why, if it still listens
                    self._flush(deadline)
                raise
            # In this order: what came may lie in the channel below already, of which no poll knows.
            while not self._fill():
                self._below.wait(deadline)
        self._flush(deadline)

    def names(self) -> tuple[str, ...]:
        """Return the names that the certificate is for."""
        certificate = self._tls.getpeercert() or {}
        return tuple(str(entry[1]) for entry in certificate.get("subjectAltName", ()))

    def send(self, parts: Sequence[bytes], deadline: float) -> None:
        """Encrypt all parts, then send them in as few calls as they take; raises OSError."""
        for part in parts:
            view = memoryview(part)
            while view:
                view = view[self._tls.write(view) :]  # a record of 16 KiB at a time
        self._flush(deadline)

    def receive_now(self, view: memoryview) -> int | None:
        """Read what is there; 0 when the other side closed TLS properly, None when nothing has come.

        Raises OSError, also for a connection that ends without TLS having been closed: somebody in between
        may have cut it, so that its end is not the end of what was said.
        """
        while True:
            try:
                # With a buffer it returns a count, which its stubs do not know.
                count: Any = self._tls.read(len(view), view)
                return int(count)
            except ssl.SSLWantReadError:
                if not self._fill():
                    return None
            except ssl.SSLZeroReturnError:
                return 0

    def wait(self, deadline: float) -> None:
        """Return when something has come; raises TimeoutError."""
        self._below.wait(deadline)

    def close(self) -> None:
        """Drop the connection."""
        self._below.close()

    def _fill(self) -> bool:
        """Take what the channel below has; False when it has nothing."""
        count = self._below.receive_now(self._piece)
        if count is None:
            return False
        if count == 0:
            self._incoming.write_eof()
        else:
            self.first_bytes = self.first_bytes or bytes(self._piece[:8])
            self._incoming.write(self._piece[:count])
        return True

    def _flush(self, deadline: float) -> None:
        if self._outgoing.pending:
            self._below.send((self._outgoing.read(),), deadline)


def _wait(poller: select.poll, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0 or not poller.poll(math.ceil(left * 1000)):
        raise TimeoutError("not in time")
