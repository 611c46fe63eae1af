"""A small strict S3 server for tests: it records every request and believes nothing.

It recomputes the signature and the checksums by itself, keeps keys byte for byte (`a//b`, `/lead` and `..`
are keys like any other), enforces per-key conditions, and answers as the S3 API documents. `script` puts a
function in front that may answer instead, late, or not at all. It speaks TLS, with a certificate of the
tests' own authority, unless it is `plain`.

    with S3Recorder(access_key="AK", secret_key="SK") as s3:
        s3.create_bucket("bucket")
        ...
        assert s3.deletes()[0].keys == ["a", "b"]
"""

from __future__ import annotations

import itertools
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import unquote
from xml.sax.saxutils import escape

import pytest
from tests.support import s3_api, s3_signature
from tests.support.certificates import authority, server_context
from tests.support.s3_api import Buckets, Reply
from tests.support.s3_signature import Identity, Refused
from tests.support.s3_state import Traits, Version

__all__ = ["Recorded", "Reply", "S3Recorder", "Script", "Traits", "recorder_of_this_process"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as it came; `keys` are those of a DeleteObjects body, `key` that of a single call.

    `path` and `query` are as they stood on the wire; header names are lowercase; `status` is the answer's, 0
    when the connection was dropped.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    bucket: str
    key: str
    keys: list[str]
    connection: int
    status: int = 0

    @property
    def is_delete_objects(self) -> bool:
        """True for the batch call."""
        return self.method == "POST" and "delete" in self.query

    @property
    def is_probe(self) -> bool:
        """True when it is about objects that a probe makes for itself, or about the bucket."""
        named = [self.key, *self.keys, self.query.get("prefix", "")]
        return (
            any(".sexton-probe/" in name for name in named)
            or set(self.query) & {"versioning", "object-lock"} != set()
        )


Script = Callable[[Recorded], Reply | None]


@dataclass
class S3Recorder:
    """The server; it listens on a free port of 127.0.0.1 between `__enter__` and `__exit__`.

    `elsewhere` is the answer to what is signed for another region than its own; `voice` says each reply in
    its own words. A header without a value is left out.
    """

    access_key: str = "test-access-key"
    secret_key: str = "test-secret-key"
    session_token: str | None = None
    region: str = "us-east-1"
    escape: Callable[[str], str] = escape
    plain: bool = False
    tls: ssl.SSLContext | None = None
    elsewhere: Reply | None = None
    voice: Callable[[Reply], Reply] = lambda reply: reply
    requests: list[Recorded] = field(default_factory=list)
    buckets: Buckets = field(default_factory=Buckets)
    _script: Script | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _server: ThreadingHTTPServer | None = None

    def __enter__(self) -> S3Recorder:
        handler = type("Handler", (_Handler,), {"recorder": self})
        if self.tls is None and not self.plain:
            self.tls = server_context()
        self._server = _Server(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The endpoint URL."""
        assert self._server is not None
        return f"http{'' if self.plain else 's'}://127.0.0.1:{self._server.server_address[1]}"

    @property
    def environ(self) -> dict[str, str]:
        """The AWS variables of the one identity that this server knows, and who vouches for the server."""
        names = {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}
        names["AWS_CA_BUNDLE"] = str(authority().bundle)
        return {**names, **({"AWS_SESSION_TOKEN": self.session_token} if self.session_token else {})}

    def create_bucket(
        self,
        bucket: str,
        objects: Mapping[str, bytes] | None = None,
        *,
        versioning: str = "",
        locks: bool = False,
    ) -> None:
        """Create a bucket with some objects in it, without a request."""
        self.buckets.create(bucket, versioning=versioning, locks=locks)
        self.buckets.fill(bucket, objects or {})

    def objects(self, bucket: str) -> dict[str, bytes]:
        """Return the objects of a bucket by key."""
        return self.buckets.contents(bucket)

    def versions(self, bucket: str, key: str) -> list[Version]:
        """Return the versions of a key, markers too, the newest last."""
        with self.buckets.lock:
            return list(self.buckets.of(bucket).versions.get(key, ()))

    def singles(self) -> list[Recorded]:
        """Return the DeleteObject requests but a probe's, in the order in which they were answered."""
        with self._lock:
            found = [request for request in self.requests if request.method == "DELETE"]
        return [request for request in found if not request.is_probe]

    def deletes(self) -> list[Recorded]:
        """Return the DeleteObjects requests but a probe's, in the order in which they were answered."""
        with self._lock:
            found = [request for request in self.requests if request.is_delete_objects]
        return [request for request in found if not request.is_probe]

    def connections(self) -> set[int]:
        """Return the numbers of the TCP connections that carried a request."""
        with self._lock:
            return {request.connection for request in self.requests}

    def script(self, script: Script | None) -> None:
        """Ask `script` about every request that is well signed; where it returns None, continue as usual."""
        self._script = script

    def handle(self, request: Recorded) -> Reply:
        """Answer one request and record it."""
        reply = self.voice(self._answer(request))
        with self._lock:
            self.requests.append(replace(request, status=0 if reply.drop else reply.status))
        return reply

    def _answer(self, request: Recorded) -> Reply:
        identity = Identity(self.access_key, self.secret_key, self.session_token, self.region)
        if self.elsewhere is not None and f"/{self.region}/" not in request.headers.get("authorization", ""):
            return self.elsewhere
        try:
            s3_signature.verify(
                request.method, request.path, request.query, request.headers, request.body, identity
            )
            s3_signature.verify_checksums(request.headers, request.body, required=request.is_delete_objects)
            scripted = self._script(request) if self._script else None
            if scripted is None:
                return s3_api.answer(self.buckets, request, self.escape)
            if scripted.act_first:
                s3_api.answer(self.buckets, request, self.escape)
            return scripted
        except Refused as refused:
            return s3_api.error_reply(refused.status, refused.code, refused.message)


@contextmanager
def recorder_of_this_process(environment: pytest.MonkeyPatch, *, plain: bool = False) -> Iterator[S3Recorder]:
    """Run a recorder whose credentials are in this process' environment."""
    with S3Recorder(plain=plain) as recorder:
        for name, value in recorder.environ.items():
            environment.setenv(name, value)
        yield recorder


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        self.accepted = itertools.count(1)
        super().__init__(*args)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that hangs up in the middle is what some tests are about.
        return


class _Handler(BaseHTTPRequestHandler):
    recorder: S3Recorder
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        if self.recorder.tls is not None:
            # Here, in the thread of this connection: a handshake that hangs holds up nobody else.
            self.request = self.recorder.tls.wrap_socket(self.request, server_side=True)
        super().setup()
        self.number = next(self.server.accepted)  # type: ignore[attr-defined]

    def finish(self) -> None:
        super().finish()
        if self.recorder.tls is not None:
            self.request.close()  # the server closes the socket that was wrapped, which is an empty shell

    def do_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        reply = self.recorder.handle(self._recorded(body))
        if reply.delay_s:
            time.sleep(reply.delay_s)
        if reply.drop:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._send(reply)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_any  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        return

    def _recorded(self, body: bytes) -> Recorded:
        # The target is taken from the request line: `self.path` has its leading slashes squeezed.
        path, _, query = self.requestline.split(" ")[1].partition("?")
        bucket, _, key = path[1:].partition("/")
        parsed = s3_signature.parse_query(query)
        return Recorded(
            method=self.command,
            path=path,
            query=parsed,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
            bucket=unquote(bucket),
            key=unquote(key, errors="strict"),
            keys=s3_api.keys_of(body) if self.command == "POST" and "delete" in parsed else [],
            connection=self.number,
        )

    def _send(self, reply: Reply) -> None:
        if reply.headers.get("Connection") == "close":
            self.close_connection = True
        headers = {
            "Date": self.date_time_string(time.time() + self.recorder.buckets.traits.clock_s),
            "x-amz-request-id": f"REQ{len(self.recorder.requests):013d}",
            "Content-Type": "application/xml",
            "Content-Length": str(len(reply.body)),
            **reply.headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value)
        start = f"HTTP/1.1 {reply.status} Status\r\n{head}\r\n".encode("latin-1")
        self.wfile.write(start + (b"" if self.command == "HEAD" else reply.body))
