"""A server that speaks in its own way: whatever a test's function does with a connection."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["GONE", "OK", "Speak", "raw_server", "read_request"]

Speak = Callable[[socket.socket], None]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"
GONE = b"<DeleteResult><Deleted><Key>a</Key></Deleted></DeleteResult>"


def read_request(connection: socket.socket) -> bytes:
    """Return a whole DeleteObjects request."""
    data = b""
    while not data.endswith(b"</Delete>"):
        data += connection.recv(65536)
    return data


@contextmanager
def raw_server(speak: Speak, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Give each connection to `speak`, one by one, with `tls` after its handshake; yields the URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            # Else a small answer waits for the other side, and is lost when the connection is closed.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                with tls.wrap_socket(connection, server_side=True) if tls else connection as ready:
                    speak(ready)
            except OSError:
                continue  # the client has had enough

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)
