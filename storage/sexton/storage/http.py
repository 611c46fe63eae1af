"""HTTP/1.1 as a store speaks it: the head of a request, and a reply that is read whole or not at all.

The reading is strict: what could be taken in two ways (a length that is none, a line that is no header) is an
answer of unknown effect, never half an answer.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from sexton.storage.channels import Channel, TcpChannel, receive

__all__ = ["MOST_BYTES", "Broken", "Reply", "ReplyReader", "Unsent", "request_head"]

MOST_BYTES = 32 * 1024 * 1024
"""The longest reply that is read; a listing or a DeleteResult of 1,000 keys has a few at most."""

_PIECE = 16 * 1024  # of a longer body only the start is copied once more
_LONGEST_HEAD = 64 * 1024
_LONGEST_LINE = 4096
_MOST_INTERIM = 8
_START, _END = b"HTTP/1.", b"\r\n\r\n"
_TLS_ALERT = b"\x15\x03"
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: [^\r\n]*)?")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?")


class Broken(Exception):
    """An exchange that failed after something may have been sent; `code` is a row of the error table."""

    def __init__(self, message: str, code: str) -> None:
        self.code = code
        super().__init__(message)


class Unsent(Broken):
    """The store was not asked anything: not reached, not trusted, or not understood by the other side.

    `of_host` says whether it may be the fault of the one host, so that others can be reached; `hint` what to
    do about it.
    """

    def __init__(self, message: str, code: str, hint: str, *, of_host: bool = True) -> None:
        self.hint = hint
        self.of_host = of_host
        super().__init__(message, code)


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, headers (their names in lowercase) and the whole body.

    `reusable` says whether the connection may carry another request.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    reusable: bool


def request_head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    """Return the head of a request; ValueError for a text that would end its line."""
    lines = [f"{method} {target} HTTP/1.1", *[f"{name}: {value}" for name, value in headers.items()], "\r\n"]
    head = "\r\n".join(lines)
    if head.count("\r") + head.count("\n") != 2 * len(lines) or "\0" in head:
        raise ValueError("a header with a line break")
    return head.encode("latin-1")


class ReplyReader:
    """Reads the replies of one connection, one after the other."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._piece = memoryview(bytearray(_PIECE))
        self._come = bytearray()
        self._cut = False

    def read(self, method: str, deadline: float) -> Reply:
        """Return the reply to a request; raises Broken, TimeoutError, OSError."""
        for _ in range(_MOST_INTERIM):
            version, status, headers = self._head(deadline)
            if status >= 200:
                break
        else:
            raise Broken("nothing but interim answers", "TornReply")
        keeps = version == b"1" and "close" not in headers.get("connection", "").lower()
        body = self._body(method, status, headers, deadline)
        if body is None:
            body, keeps = self._until_the_end(deadline), False
        return Reply(status, headers, body, keeps and not self._come)

    def read_tunnel(self, deadline: float) -> int:
        """Return the status by which a proxy answers CONNECT; raises as `read`. Behind it TLS begins."""
        _, status, _ = self._head(deadline)
        if 200 <= status < 300 and self._come:
            raise Broken("bytes of nobody behind the proxy's answer", "TornReply")
        return status

    def is_quiet(self) -> bool:
        """Return whether nothing came that nobody asked for: no byte, and no end. Raises OSError."""
        return self._channel.receive_now(self._piece) is None

    def _head(self, deadline: float) -> tuple[bytes, int, dict[str, str]]:
        searched = 0
        while (end := self._come.find(_END, searched)) < 0:
            searched = max(0, len(self._come) - len(_END) + 1)
            if len(self._come) > _LONGEST_HEAD:
                raise Broken("a head without an end", "TornReply")
            if not self._more(deadline):
                if not self._come:
                    raise Broken("the connection was closed without an answer", "ConnectionBroken")
                raise Broken(f"the reply broke off after {len(self._come)} bytes of its head", "TornReply")
            self._check_start()
        head = bytes(self._come[:end])
        del self._come[: end + len(_END)]
        first, *lines = head.split(b"\r\n")
        matched = _STATUS.fullmatch(first)
        if matched is None:
            raise Broken(f"not a status of HTTP: {first[:40]!r}", "TornReply")
        return matched[1], int(matched[2]), _headers(lines)

    def _check_start(self) -> None:
        start = bytes(self._come[: len(_START)])
        if _START.startswith(start):
            return
        if start.startswith(_TLS_ALERT) and isinstance(self._channel, TcpChannel):
            # Who answers so has read a broken handshake, not a request: nothing was done.
            raise Unsent(
                "the port speaks TLS, and plain HTTP was sent to it",
                "EndpointUnreachable",
                "SEXTON_S3_ENDPOINT_URL has to begin with https:// for this port",
            )
        raise Broken(f"not an answer in HTTP: {bytes(self._come[:40])!r}", "TornReply")

    def _body(self, method: str, status: int, headers: Mapping[str, str], deadline: float) -> bytes | None:
        """Return the body, None when it continues until the connection's end."""
        if method == "HEAD" or status in (204, 304):
            return b""
        coding = headers.get("transfer-encoding")
        if coding is not None:
            if coding.lower() != "chunked" or "content-length" in headers:
                raise Broken(f"a body in {coding[:40]!r}", "TornReply")
            return self._chunks(deadline)
        length = headers.get("content-length")
        if length is None:
            return None
        if not (length.isascii() and length.isdigit()):
            raise Broken(f"a length that is none: {length[:40]!r}", "TornReply")
        if len(length) > len(str(MOST_BYTES)) or int(length) > MOST_BYTES:
            raise _too_long()
        return self._exactly(int(length), deadline)

    def _exactly(self, count: int, deadline: float) -> bytes:
        come = self._come
        if len(come) >= count:
            body = bytes(come[:count])
            del come[:count]
            return body
        whole = bytearray(count)
        have = len(come)
        whole[:have] = come
        come.clear()
        view = memoryview(whole)
        while have < count:
            received = self._receive(view[have:], deadline)
            if not received:
                raise Broken(f"the reply broke off after {have} of {count} bytes", "TornReply")
            have += received
        return bytes(whole)

    def _chunks(self, deadline: float) -> bytes:
        parts: list[bytes] = []
        total = 0
        while True:
            matched = _CHUNK.fullmatch(self._line(deadline))
            if matched is None:
                raise Broken("a chunk without a size", "TornReply")
            size = int(matched[1], 16)
            total += size + len(matched[0])
            if total > MOST_BYTES:
                raise _too_long()
            if not size:
                break
            parts.append(self._exactly(size, deadline))
            if self._line(deadline):
                raise Broken("a chunk that is longer than its size", "TornReply")
        while line := self._line(deadline):
            total += len(line)
            if total > MOST_BYTES:
                raise _too_long()
        return b"".join(parts)

    def _line(self, deadline: float) -> bytes:
        while (end := self._come.find(b"\r\n")) < 0:
            if len(self._come) > _LONGEST_LINE:
                raise Broken("a line without an end", "TornReply")
            if not self._more(deadline):
                raise Broken("the reply broke off between two chunks", "TornReply")
        line = bytes(self._come[:end])
        del self._come[: end + 2]
        return line

    def _until_the_end(self, deadline: float) -> bytes:
        while self._more(deadline):
            if len(self._come) > MOST_BYTES:
                raise _too_long()
        if self._cut:
            raise Broken("the reply ended without the end of TLS: it may have been cut", "TornReply")
        body = bytes(self._come)
        self._come.clear()
        return body

    def _more(self, deadline: float) -> int:
        count = self._receive(self._piece, deadline)
        self._come += self._piece[:count]
        return count

    def _receive(self, view: memoryview, deadline: float) -> int:
        try:
            return receive(self._channel, view, deadline)
        except ssl.SSLEOFError:
            self._cut = True
            return 0


def _headers(lines: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(":")
        name, value = name.lower(), value.strip(" \t")
        if not colon or not _NAME.fullmatch(name):
            raise Broken(f"a line that is no header: {line[:40]!r}", "TornReply")
        known = headers.get(name)
        if known is not None and known != value and name == "content-length":
            raise Broken(f"two lengths: {known[:40]} and {value[:40]}", "TornReply")
        headers[name] = value if known is None or known == value else f"{known}, {value}"
    return headers


def _too_long() -> Broken:
    return Broken(f"a reply of more than {MOST_BYTES} bytes", "ConnectionBroken")
