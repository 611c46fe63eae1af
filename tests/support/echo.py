"""A server that is no store: what reaches it is kept byte by byte."""

from __future__ import annotations

import io
import socket
import threading


class Echo:
    """A server that keeps what it gets byte by byte and always answers the same."""

    reply = (
        b"HTTP/1.1 207 Some Thing\r\nX-Odd-NAME: a  b\r\ncontent-length: 5\r\n"
        b"Connection: close\r\n\r\n\x00\xffabc"
    )

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(0.3)
                got = io.BytesIO()
                try:
                    while part := connection.recv(65_536):
                        got.write(part)
                except TimeoutError:
                    pass
                self.received.append(got.getvalue())
                connection.sendall(self.reply)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
