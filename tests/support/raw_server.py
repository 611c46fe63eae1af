"""A server that speaks in its own way: whatever a test's function does with a connection."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Speak", "raw_server"]

Speak = Callable[[socket.socket], None]


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
