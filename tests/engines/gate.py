"""A proxy before a store that can hold a request back, and do something before an answer is given.

It passes everything on as it came, so that signatures stay valid.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from tests.support.s3_api import keys_of

__all__ = ["Gate", "Held", "Passing", "opened"]


@dataclass(frozen=True, slots=True)
class Passing:
    """A request on its way: `key` is the object's without the bucket, empty for what names none.

    `deleted` are the keys that it deletes, one by one or in a batch.
    """

    method: str
    key: str
    deleted: Sequence[str]


Predicate = Callable[[Passing], bool]


@dataclass
class Held:
    """What is wanted; once it has `arrived` it is the request `passing`."""

    wanted: Predicate
    before: Callable[[], None] | None
    after: Callable[[], None] | None
    arrived: threading.Event = field(default_factory=threading.Event)
    passing: Passing | None = None

    @property
    def key(self) -> str:
        """The key of the request that has arrived."""
        assert self.passing is not None
        return self.passing.key


class Gate:
    """Holds the next request that somebody wants, before the store sees it or before its answer is given."""

    def __init__(self, store: str) -> None:
        self.store, self.url = urlsplit(store).netloc, ""
        self._lock = threading.Lock()
        self._wanted: list[Held] = []

    def next(
        self,
        wanted: Predicate,
        *,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> Held:
        """Call `before` when such a request has arrived, `after` when the store has answered it.

        Each may take its time: the request, or its answer, waits. What `before` raises as an OSError hangs up
        before the store has seen the request.
        """
        held = Held(wanted, before, after)
        with self._lock:
            self._wanted.append(held)
        return held

    def forget(self) -> None:
        """Want nothing any more."""
        with self._lock:
            self._wanted.clear()

    def take(self, passing: Passing) -> Held | None:
        """Return what is wanted of a request, once."""
        with self._lock:
            for held in self._wanted:
                if held.wanted(passing):
                    self._wanted.remove(held)
                    held.passing = passing
                    held.arrived.set()
                    return held
        return None


@contextmanager
def opened(store: str) -> Iterator[Gate]:
    """Run a gate before a store."""
    gate = Gate(store)
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"gate": gate}))
    gate.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), name="gate", daemon=True).start()
    try:
        yield gate
    finally:
        server.shutdown()
        server.server_close()


def _passing(method: str, target: str, body: bytes) -> Passing:
    path, _, query = target.partition("?")
    key = unquote(path.lstrip("/").partition("/")[2])
    if method == "POST" and query.split("=")[0] == "delete":
        return Passing(method, key, keys_of(body))
    return Passing(method, key, [key] if method == "DELETE" else [])


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    gate: Gate
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with suppress(OSError):  # one side was killed, or hung up
            super().handle()

    def do_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        target = self.requestline.split(" ")[1]
        held = self.gate.take(_passing(self.command, target, body))
        if held is not None and held.before is not None:
            held.before()
        store = HTTPConnection(self.gate.store, timeout=60)
        try:
            store.putrequest(self.command, target, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                store.putheader(name, value)
            store.endheaders(body)
            response = store.getresponse()
            answer = response.read()
        except HTTPException as error:
            raise ConnectionResetError from error
        finally:
            store.close()
        if held is not None and held.after is not None:
            held.after()
        self._send(response, answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        return

    def _send(self, response: HTTPResponse, body: bytes) -> None:
        framing = ("content-length", "transfer-encoding", "connection")
        headers = [(name, value) for name, value in response.getheaders() if name.lower() not in framing]
        if self.command == "HEAD":
            headers.append(("Content-Length", response.getheader("Content-Length", "0")))
        elif response.status not in (204, 304):
            headers.append(("Content-Length", str(len(body))))
        head = "".join(f"{name}: {value}\r\n" for name, value in headers)
        start = f"HTTP/1.1 {response.status} {response.reason}\r\n{head}\r\n".encode("latin-1")
        self.wfile.write(start + (b"" if self.command == "HEAD" else body))
