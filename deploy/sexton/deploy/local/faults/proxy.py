"""The server: takes requests, lets the rules decide, asks the store, writes the log, answers."""

from __future__ import annotations

import itertools
import json
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import IO, NamedTuple
from urllib.parse import urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from sexton.deploy.local.faults.requests import EMPTY_RESULT, S3Request, describe, to_bytes, without
from sexton.deploy.local.faults.rules import STATUSES, InvalidFaults, Memory, Plan, Rule, decide, read
from sexton.deploy.output import say
from sexton.schemas.errors import EnvironmentFault, SextonError, UsageError
from sexton.schemas.text import counted
from sexton.storage import StoreSettings
from sexton.storage.signing import RequestSigner, md5_headers

__all__ = ["FaultProxy", "serve"]

_KEPT = ("x-amz-bypass-governance-retention", "x-amz-mfa", "x-amz-expected-bucket-owner")
_FRAMING = ("content-length", "transfer-encoding")


def serve(listen: str, store: str, file: Path, log: IO[bytes]) -> None:
    """Serve until SIGTERM or SIGINT, which end the process; raises UsageError and EnvironmentFault."""
    with FaultProxy(listen, store, file, log) as proxy:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: sys.exit(0))
        say(f"faults: {proxy.url} before {store}, {counted(len(proxy.rules()), 'rule')}")
        proxy.serve_forever()


class FaultProxy(ThreadingTCPServer):
    """A proxy on HOST:PORT in front of a store; raises InvalidFaults, UsageError and EnvironmentFault."""

    allow_reuse_address = daemon_threads = True
    request_queue_size = 512

    def __init__(self, listen: str, store: str, file: Path, log: IO[bytes]) -> None:
        parts, (host, _, port) = urlsplit(store), listen.rpartition(":")
        if parts.scheme != "http" or not parts.netloc or parts.path not in ("", "/") or parts.query:
            hint = "clients sign the proxy's address, which only a local store takes for its own"
            raise UsageError(f"the store behind the proxy must be http://HOST:PORT: {store}", hint=hint)
        if not host or not port.isdecimal() or int(port) > 65_535:
            raise UsageError(f"an address to listen on is HOST:PORT: {listen}")
        self.store, self.log, self._file, self.lock = parts.netloc, log, file, threading.Lock()
        self.numbers = itertools.count(1)
        self.signer = cache(lambda: RequestSigner(StoreSettings(f"http://{parts.netloc}")))
        self._rules = {rule: Memory() for rule in read(file)}
        self._found: bytes | None = file.read_bytes()
        try:
            super().__init__((host, int(port)), _Connection)
        except OSError as error:
            raise EnvironmentFault(f"cannot listen on {listen}: {error.strerror}") from error
        self.url = f"http://{host}:{self.server_address[1]}"

    def rules(self) -> Mapping[Rule, Memory]:
        """Return the rules in the file as it is now; while it cannot be played, those before it stay."""
        text = self._file.read_bytes() if self._file.exists() else None
        if text != self._found:
            self._found = text
            try:
                self._rules = {rule: self._rules.get(rule, Memory()) for rule in read(self._file)}
                say(f"faults: {counted(len(self._rules), 'rule')} from {self._file}")
            except InvalidFaults as error:
                say(f"error: {error}; the rules before it stay")
        return self._rules


class _Reply(NamedTuple):
    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes


class _Connection(BaseHTTPRequestHandler):
    """A connection of a client; each request has one of its own to the store, and is sent once."""

    protocol_version = default_request_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FaultProxy

    def handle(self) -> None:
        """Answer requests until one side hangs up."""
        with suppress(OSError):
            super().handle()

    def do_any(self) -> None:
        """Answer one request."""
        lengths, target = self.headers.get_all("Content-Length", ["0"]), self.requestline.split()[1]
        odd = len(lengths) != 1 or not lengths[0].encode().isdigit() or "Transfer-Encoding" in self.headers
        if odd or self.headers.defects or not (target.startswith("/") and target.isascii()):
            # What the store might frame otherwise it could take for another request.
            self.send_error(400, "needs a path, and one Content-Length as its only framing")
            return
        body = self.rfile.read(int(lengths[0]))
        if len(body) < int(lengths[0]):
            raise ConnectionResetError
        try:
            request = describe(self.command, target, self.headers, body)
        except ElementTree.ParseError as error:
            self.send_error(400, f"the keys of this DeleteObjects cannot be read: {error}")
            return
        at, began, store, self.sent = datetime.now(UTC).isoformat(), time.monotonic(), None, False
        with self.server.lock:
            number, plan = next(self.server.numbers), decide(self.server.rules(), request, began)
        time.sleep(plan.waits_ms["before"] / 1000)
        try:
            unasked = plan.unasked or len(plan.withheld) == len(request.keys) > 0
            store = None if unasked else self._ask(target, request, body, plan)
            reply = _answer(plan, request, store)
        except (OSError, HTTPException, SextonError, ValueError) as error:
            trouble = f"the store behind the proxy cannot be reached: {type(error).__name__}: {error}"
            plan.played.append({"rule": "", "what": trouble, "keys": []})
            reply = None if self.sent else _error("BadGateway", 502, trouble)
        time.sleep(plan.waits_ms["after"] / 1000)
        line = {"at": at, "ms": round((time.monotonic() - began) * 1000, 3), "number": number}
        line |= {
            "connection": self.client_address[1],
            "method": self.command,
            "target": target,
            **asdict(request),
        }
        line |= {"status": reply and reply.status, "store_status": store and store.status}
        line |= {"forwarded": self.sent, "played": plan.played}
        with self.server.lock:  # the line comes first: who has the answer finds the request in the log
            self.server.log.write(json.dumps(line).encode() + b"\n")
            self.server.log.flush()
        self._send(reply, plan.answer.torn_after if plan.answer else None)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any  # noqa: N815

    def _ask(self, target: str, request: S3Request, body: bytes, plan: Plan) -> _Reply:
        """Send a request, as it came but for the keys that are withheld, and return the whole reply."""
        headers = self.headers.items()
        if plan.withheld:
            body = without(body, plan.withheld)
            kept = {name: self.headers[name] for name in _KEPT if name in self.headers}
            own = {"Content-Type": "application/xml", **kept, **md5_headers(body)}
            signer = self.server.signer()
            made = signer.signed(signer.address(request.bucket), "POST", "", {"delete": ""}, own, body)
            headers, target = made.headers.items(), made.url.removeprefix(f"http://{self.server.store}")
        with closing(HTTPConnection(self.server.store)) as store:
            store.connect()
            store.putrequest(self.command, target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                store.putheader(name, value)
            self.sent = True
            store.endheaders(body)
            response = store.getresponse()
            return _Reply(response.status, response.reason, response.getheaders(), response.read())

    def _send(self, reply: _Reply | None, keep: int | None) -> None:
        self.close_connection |= reply is None or keep is not None
        if reply is None:
            return
        headers, length = reply.headers, [("content-length", f"{len(reply.body)}")]
        framing = [(name.lower(), value) for name, value in headers if name.lower() in _FRAMING]
        if framing != length and self.command != "HEAD" and reply.status not in (204, 304):
            headers = [each for each in headers if each[0].lower() not in _FRAMING] + length
        head = "".join(f"{name}: {value}\r\n" for name, value in headers)
        start = f"HTTP/1.1 {reply.status} {reply.reason}\r\n{head}\r\n".encode("latin-1")
        self.wfile.write(start + (b"" if self.command == "HEAD" else reply.body[:keep]))


def _answer(plan: Plan, request: S3Request, store: _Reply | None) -> _Reply | None:
    answer = plan.answer
    if answer is not None and answer.cut:
        return None
    if answer is not None and answer.torn_after is None:
        code = answer.error or answer.key_error or "SlowDown"
        status = answer.status or STATUSES.get(code, 400)
        return _error(code, status, answer.message or code, answer.retry_after)
    reply = store or _Reply(200, "OK", [("Content-Type", "application/xml")], EMPTY_RESULT)
    with suppress(ElementTree.ParseError):
        root = ElementTree.fromstring(reply.body) if plan.keys else None
        if root is not None and root.tag.endswith("DeleteResult"):
            _edit(root, plan, request)
            return reply._replace(body=to_bytes(root))
    return reply


def _edit(root: ElementTree.Element, plan: Plan, request: S3Request) -> None:
    concerned, namespace = {request.keys[index] for index in plan.keys}, root.tag.partition("DeleteResult")[0]
    for child in [each for each in root if each.findtext("{*}Key") in concerned]:
        root.remove(child)
    for index, rule in sorted(plan.keys.items()):
        fields = {"Key": request.keys[index], "VersionId": request.versions[index]}
        fields |= {"Code": rule.key_error, "Message": rule.message} if rule.key_error else {}
        fields = {"Key": rule.unexpected_key} if rule.unexpected_key else fields
        told = ElementTree.Element(namespace + ("Error" if rule.key_error else "Deleted"))
        for name, text in fields.items():
            if text is not None:
                ElementTree.SubElement(told, namespace + name).text = text
        if not rule.leave_out:
            root.append(told)


def _error(code: str, status: int, message: str, retry_after: float | None = None) -> _Reply:
    body = f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error>".encode()
    headers = [] if retry_after is None else [("Retry-After", f"{retry_after:g}")]
    return _Reply(status, "Played", [("Content-Type", "application/xml"), *headers], body)
