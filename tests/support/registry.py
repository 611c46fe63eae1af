"""A small schema registry that speaks Confluent's HTTP interface, for tests.

with SchemaRegistry() as registry:
    settings = load({"SEXTON_SCHEMA_REGISTRY_URL": registry.url})
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from fastavro.schema import SchemaParseException, parse_schema, to_parsing_canonical_form

__all__ = ["SchemaRegistry"]

_Answer = tuple[int, Any]


class _Refused(Exception):
    def __init__(self, status: int, code: int | None, message: str) -> None:
        self.status = status
        self.body: Any = message if code is None else {"error_code": code, "message": message}
        super().__init__(message)


class SchemaRegistry:
    """Register, look up by id and by subject and version, compatibility level; `requests` counts calls.

    While it is `away` each connection is closed without an answer; `refuses` is the HTTP status, if not
    0, that every request is answered with; `registering` status and code by which it refuses to register,
    without a code in words of no registry. `login` is the Authorization that each request needs. With a
    `context` it speaks TLS.

    What registries differ in: `path` is where its interface begins, `by_text` whether a schema is found by
    the very text alone, `first_id` its first id; `worded` makes the body of a refusal, and `instead`, where
    it returns one, the whole answer to a method and path: status, headers, body.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.registering: tuple[int, int | None] | None = None
        self.login: str | None = None
        self.path = ""
        self.by_text = False
        self.first_id = 1
        self.worded: Callable[[int, int | None, str], Any] | None = None
        self.instead: Callable[[str, str], tuple[int, dict[str, str], bytes] | None] = lambda *_: None
        self._scheme = "http" if context is None else "https"
        self.requests: list[str] = []
        self.away = False
        self.refuses = 0
        self._lock = threading.Lock()
        self._texts: list[str] = []  # id - 1
        self._subjects: dict[str, list[int]] = {}
        self._levels: dict[str, str] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Base URL."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}{self.path}"

    def add(self, subject: str, text: str) -> int:
        """Register a schema without HTTP and return its id."""
        with self._lock:
            return self._register(subject, text)

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> _Answer:
        """Return status and body of one request."""
        if self.refuses:
            raise _Refused(self.refuses, self.refuses, "refused")
        for verb, pattern, handle in self._routes():
            match = re.fullmatch(re.escape(self.path) + pattern, path)
            if verb == method and match:
                with self._lock:
                    return 200, handle(body or {}, query, *map(unquote, match.groups()))
        raise _Refused(404, 404, "HTTP 404 Not Found")

    def _routes(self) -> list[tuple[str, str, Callable[..., Any]]]:
        return [
            ("GET", "/subjects", lambda b, q: sorted(self._subjects)),
            ("POST", "/subjects/([^/]+)/versions", self._asked_to_register),
            ("POST", "/subjects/([^/]+)", self._find),
            ("GET", "/subjects/([^/]+)/versions", lambda b, q, s: self._versions(s)),
            ("GET", "/subjects/([^/]+)/versions/([^/]+)", self._version),
            ("GET", "/schemas/ids/([0-9]+)", self._by_id),
            ("POST", "/compatibility/subjects/([^/]+)/versions/([^/]+)", self._compatible),
            ("GET", "/config", lambda b, q: {"compatibilityLevel": self._levels.get("", "BACKWARD")}),
            ("PUT", "/config", lambda b, q: self._set_level("", b)),
            ("GET", "/config/([^/]+)", self._level),
            ("PUT", "/config/([^/]+)", lambda b, q, s: self._set_level(s, b)),
        ]

    def _asked_to_register(self, body: Any, query: Any, subject: str) -> Any:
        if self.registering is not None:
            raise _Refused(*self.registering, f"may not register {subject}")
        return {"id": self._register(subject, body["schema"])}

    def _register(self, subject: str, text: str) -> int:
        canonical = _canonical(text)
        known = [_canonical(one) for one in self._texts]
        if canonical not in known:
            self._texts.append(text)
            known.append(canonical)
        schema_id = known.index(canonical) + self.first_id
        ids = self._subjects.setdefault(subject, [])
        if schema_id not in ids:
            ids.append(schema_id)
        return schema_id

    def _find(self, body: Any, query: Any, subject: str) -> Any:
        canonical = _canonical(body["schema"])
        for version, schema_id in enumerate(self._ids(subject), start=1):
            kept = self._texts[schema_id - self.first_id]
            if kept == body["schema"] or (not self.by_text and _canonical(kept) == canonical):
                return self._shown(subject, version, schema_id)
        raise _Refused(404, 40403, "Schema not found")

    def _version(self, body: Any, query: Any, subject: str, version: str) -> Any:
        ids = self._ids(subject)
        number = len(ids) if version in ("latest", "-1") else int(version)
        if not 1 <= number <= len(ids):
            raise _Refused(404, 40402, f"Version {version} not found.")
        return self._shown(subject, number, ids[number - 1])

    def _by_id(self, body: Any, query: Any, schema_id: str) -> Any:
        if not 0 <= int(schema_id) - self.first_id < len(self._texts):
            raise _Refused(404, 40403, f"Schema {schema_id} not found")
        return {"schema": self._texts[int(schema_id) - self.first_id], "schemaType": "AVRO"}

    def _compatible(self, body: Any, query: Any, subject: str, version: str) -> Any:
        """Backward only, and only what the tests need: a new field of the top record has a default."""
        old = json.loads(self._version(body, query, subject, version)["schema"])
        new = json.loads(body["schema"])
        known = {field["name"] for field in old["fields"]}
        return {"is_compatible": all("default" in f for f in new["fields"] if f["name"] not in known)}

    def _level(self, body: Any, query: dict[str, list[str]], subject: str) -> Any:
        level = self._levels.get(subject)
        if level is None and query.get("defaultToGlobal") == ["true"]:
            level = self._levels.get("", "BACKWARD")
        if level is None:
            raise _Refused(404, 40408, f"Subject '{subject}' does not have subject-level compatibility")
        return {"compatibilityLevel": level}

    def _set_level(self, subject: str, body: Any) -> Any:
        self._levels[subject] = body["compatibility"]
        return {"compatibility": body["compatibility"]}

    def _versions(self, subject: str) -> list[int]:
        return list(range(1, len(self._ids(subject)) + 1))

    def _ids(self, subject: str) -> list[int]:
        if subject not in self._subjects:
            raise _Refused(404, 40401, f"Subject '{subject}' not found.")
        return self._subjects[subject]

    def _shown(self, subject: str, version: int, schema_id: int) -> Any:
        text = self._texts[schema_id - self.first_id]
        return {"subject": subject, "version": version, "id": schema_id, "schema": text}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                # Else Nagle holds every reply back for 40 ms.
                self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                super().setup()

            def log_message(self, format: str, *args: object) -> None:
                registry.requests.append(f"{self.command} {self.path}")

            def do_GET(self) -> None:
                self._reply()

            def do_POST(self) -> None:
                self._reply()

            def do_PUT(self) -> None:
                self._reply()

            def _reply(self) -> None:
                if registry.away:
                    registry.requests.append(f"{self.command} {self.path}")
                    self.close_connection = True
                    return
                url = urlsplit(self.path)
                length = int(self.headers.get("Content-Length", 0))
                if (odd := registry.instead(self.command, url.path)) is not None:
                    self.rfile.read(length)
                    self._send(*odd)
                    return
                try:
                    body = json.loads(self.rfile.read(length) or b"null")
                    if registry.login not in (None, self.headers.get("Authorization")):
                        raise _Refused(401, 40101, "Unauthorized")
                    status, answer = registry.answer(self.command, url.path, parse_qs(url.query), body)
                except _Refused as error:
                    status, answer = error.status, error.body
                    if registry.worded is not None and isinstance(answer, dict):
                        answer = registry.worded(status, answer["error_code"], answer["message"])
                data = (f"<p>{answer}" if isinstance(answer, str) else json.dumps(answer)).encode()
                self._send(status, {"Content-Type": "application/vnd.schemaregistry.v1+json"}, data)

            def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

        return Handler


def _canonical(text: str) -> str:
    try:
        raw = json.loads(text)
        parse_schema(raw)
    except (SchemaParseException, ValueError) as error:
        raise _Refused(422, 42201, f"Invalid schema: {error}") from error
    # Canonical form drops defaults, which tell versions apart here.
    fields = raw.get("fields", []) if isinstance(raw, dict) else []
    return str(to_parsing_canonical_form(raw)) + json.dumps([field.get("default", "-") for field in fields])
