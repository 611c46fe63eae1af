"""A relay in front of an issuer, for faults that come between a barrier and what is asked next."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

__all__ = ["Relay", "relayed"]


class Relay:
    """Passes requests on; `after_barrier`, when set, is called once, before a barrier's answer goes back.

    `asked` are the paths of all requests. Of an issuer that is away a client sees a closed connection.
    """

    def __init__(self, issuer_url: str) -> None:
        self.after_barrier: Callable[[], object] | None = None
        self.asked: list[str] = []
        self.url = ""
        self._issuer = urlsplit(issuer_url).netloc

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes, str]:
        """Return status, body and content type of the issuer's answer; raises OSError, HTTPException."""
        self.asked.append(path)
        upstream = http.client.HTTPConnection(self._issuer, timeout=30)
        try:
            upstream.request(method, path, body, {**headers, "Connection": "close"})
            reply = upstream.getresponse()
            said = (reply.status, reply.read(), reply.getheader("Content-Type", ""))
        finally:
            upstream.close()
        if path == "/v1/barrier" and (then := self.after_barrier) is not None:
            self.after_barrier = None
            then()
        return said


@contextmanager
def relayed(issuer_url: str) -> Iterator[Relay]:
    """Run a relay in front of an issuer."""
    relay = Relay(issuer_url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: object) -> None:
            return

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            kept = {n: v for n, v in self.headers.items() if n.lower() in ("content-type", "authorization")}
            try:
                status, said, kind = relay.answer(self.command, self.path, kept, body)
            except (OSError, http.client.HTTPException):
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = _pass_on  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    relay.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield relay
    finally:
        server.shutdown()
        server.server_close()
