"""A black-hole S3 server for benchmarks: deletes nothing, answers like a store, keeps what it was sent.

    python benchmarks/blackhole.py --port 9500 --keep bodies.bin [--latency-ms 5] [--transient-share 0.01]
        [--certificate server.pem]

With a certificate it listens on a second port, over TLS, and is one server behind both: what comes in by
either is counted and kept together.

Every DeleteObjects request is answered verbosely (one `<Deleted>` per key; nothing per key when it asks for
`<Quiet>`), every DeleteObject with 204, what a client asks of a bucket as a plain bucket would, and any other
request with an empty 200. The body of every DeleteObjects request is appended to the kept file as a 4-byte
big-endian length and the bytes, and so is the key of every DeleteObject, so that `verify` can compare the
exact set of keys with the set that was due. With a transient share, that share of the keys gets InternalError
the first time, and `<Deleted>` when it is sent again.

`GET /__stats` flushes the file and answers its counters and CPU seconds as JSON; `GET /__reset` empties the
file and the counters; `GET /__set?latency_ms=50&transient_share=0.01` changes what it plays from then on.

It checks nothing: no signature, no checksum, no limit. A figure measured against it is a client's figure.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import html
import itertools
import json
import re
import signal
import ssl
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import IO, cast
from urllib.parse import parse_qsl, unquote_to_bytes

import numpy as np
import numpy.typing as npt

__all__ = ["Stats", "VerifyResult", "kept_keys", "serve", "verify"]

_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_ROOT = re.compile(rb"<Delete(?:\s[^>]*)?>")
_KEY = re.compile(rb"<Key>([^<]*)</Key>")
_SEAM, _REPLY_SEAM = b"</Object><Object>", b"</Deleted><Deleted>"
_ENDS = 256
_LIST_REPLY = (
    b'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><IsTruncated>false</IsTruncated>'
    b"<KeyCount>0</KeyCount></ListBucketResult>"
)
_VERSIONING_REPLY = (
    b'<?xml version="1.0" encoding="UTF-8"?><VersioningConfiguration></VersioningConfiguration>'
)
_NO_LOCK_REPLY = b"<Error><Code>ObjectLockConfigurationNotFoundError</Code><Message>none</Message></Error>"
_FAILED = b"<Error><Key>%b</Key><Code>InternalError</Code><Message>once</Message></Error>"


@dataclass(slots=True)
class Stats:
    """What the server has seen so far."""

    requests: int = 0
    keys: int = 0
    singles: int = 0
    failed_once: int = 0
    body_bytes: int = 0
    other_requests: int = 0
    connections: int = 0

    def as_json(self) -> bytes:
        """Return the counters with the CPU seconds of this process, user and system."""
        counters = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({**counters, "cpu_seconds": time.process_time()}).encode()


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """How the keys that were sent differ from those that were due.

    `missing` and `unexpected` count distinct keys, `duplicated` the deletions of a key beyond its first.
    `hash` is the sum of the 128-bit BLAKE2b digests of the distinct keys sent, mod 2^128, in hexadecimal.
    """

    keys: int
    missing: int
    unexpected: int
    duplicated: int
    hash: str
    expected_hash: str

    @property
    def exact(self) -> bool:
        """True when the distinct keys sent are exactly those that were due."""
        return self.missing == 0 and self.unexpected == 0 and self.hash == self.expected_hash


@dataclass(slots=True)
class _Hole:
    stats: Stats
    keep: IO[bytes] | None
    latency_s: float
    transient_share: float = 0.0
    failed: set[bytes] = field(default_factory=set)
    request_ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def answer(self, target: bytes, method: bytes, body: bytes) -> bytes:
        """Return the whole HTTP reply to one request."""
        if method == b"POST" and b"delete" in target:
            return self._reply(self._delete(body))
        if method == b"DELETE":
            return self._delete_one(target)
        if target.startswith(b"/__"):
            return self._control(target)
        self.stats.other_requests += 1
        if b"?object-lock" in target:
            return self._reply(_NO_LOCK_REPLY, status=b"404 Not Found")
        if b"?versioning" in target:
            return self._reply(_VERSIONING_REPLY)
        return self._reply(_LIST_REPLY if b"list-type" in target else b"")

    def _control(self, target: bytes) -> bytes:
        path, _, query = target.decode().partition("?")
        if path == "/__stats":
            if self.keep is not None:
                self.keep.flush()
            return self._reply(self.stats.as_json(), b"application/json")
        if path == "/__set":
            played = {name: float(value) for name, value in parse_qsl(query)}
            self.latency_s = played.get("latency_ms", 0.0) / 1000
            self.transient_share = played.get("transient_share", 0.0)
        if path == "/__reset":
            self.stats = Stats()
            self.failed.clear()
            if self.keep is not None:
                self.keep.flush()
                self.keep.truncate(0)  # opened for appending: the next body goes to its start
        return self._reply(b"")

    def _delete_one(self, target: bytes) -> bytes:
        key = unquote_to_bytes(target.partition(b"?")[0].lstrip(b"/").partition(b"/")[2])
        self.stats.singles += 1
        self._keep(b"<Key>" + key.replace(b"&", b"&amp;").replace(b"<", b"&lt;") + b"</Key>")
        reply = b"HTTP/1.1 204 No Content\r\nx-amz-request-id: HOLE%012X\r\n\r\n"
        return reply % next(self.request_ids)

    def _delete(self, body: bytes) -> bytes:
        # Clients write the entries without a gap: then one pass over the seams is all it takes, and each
        # seam made the text two bytes longer. Only the ends are left, which slices reach without a scan.
        reply = body.replace(_SEAM, _REPLY_SEAM)
        seams = (len(reply) - len(body)) // 2
        if seams == 0:
            seams = body.count(b"<Object>") - 1
            reply = body.replace(b"<Object>", b"<Deleted>").replace(b"</Object>", b"</Deleted>")
        self._count(body, seams + 1)
        head, tail = _ROOT.sub(b"<DeleteResult>", reply[:_ENDS], count=1), reply[-_ENDS:]
        if len(reply) < 2 * _ENDS:
            head, tail = _ROOT.sub(b"<DeleteResult>", reply, count=1), b""
        if b"<Quiet>true</Quiet>" in head or b"<Quiet>true</Quiet>" in tail:
            return b"<DeleteResult></DeleteResult>"
        whole = b"".join((_renamed(head), reply[_ENDS:-_ENDS] if tail else b"", _renamed(tail)))
        return self._some_failed(whole, seams + 1) if self.transient_share else whole

    def _some_failed(self, reply: bytes, keys: int) -> bytes:
        """Return the reply with an error for keys at even distances that have not failed before."""
        every = max(1, round(1 / self.transient_share))
        entries = reply.split(_REPLY_SEAM)
        for index in range(-(self.stats.keys - keys) % every, len(entries), every):
            entry = entries[index]
            key = _KEY.search(entry)
            if key is not None and key[1] not in self.failed:
                self.failed.add(key[1])
                self.stats.failed_once += 1
                error = b"</Deleted>" + _FAILED % key[1] + b"<Deleted>"
                entries[index] = entry[: key.start()] + error + entry[key.end() :]
        # Where an entry was an error, the tags around it are those of an empty neighbour: none.
        return _REPLY_SEAM.join(entries).replace(b"<Deleted></Deleted>", b"")

    def _count(self, body: bytes, keys: int) -> None:
        self.stats.requests += 1
        self.stats.keys += keys
        self.stats.body_bytes += len(body)
        self._keep(body)

    def _keep(self, body: bytes) -> None:
        if self.keep is not None:
            self.keep.write(len(body).to_bytes(4, "big") + body)

    def _reply(
        self, body: bytes, content_type: bytes = b"application/xml", status: bytes = b"200 OK"
    ) -> bytes:
        return (
            b"HTTP/1.1 %b\r\nContent-Type: %b\r\nx-amz-request-id: HOLE%012X\r\n"
            b'ETag: "d41d8cd98f00b204e9800998ecf8427e"\r\nContent-Length: %d\r\n\r\n%b'
        ) % (status, content_type, next(self.request_ids), len(body), body)


def _renamed(end: bytes) -> bytes:
    end = end.replace(b"<Object>", b"<Deleted>").replace(b"</Object>", b"</Deleted>")
    return end.replace(b"<Quiet>false</Quiet>", b"").replace(b"</Delete>", b"</DeleteResult>")


class _Connection(asyncio.Protocol):
    """One keep-alive connection; a request is collected in chunks and answered when its body is whole."""

    def __init__(self, hole: _Hole) -> None:
        self._hole = hole
        self._chunks: list[bytes] = []
        self._have = 0
        self._need = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._hole.stats.connections += 1

    def data_received(self, data: bytes) -> None:
        """Collect until the request is whole; the chunks of a large body are joined once."""
        self._chunks.append(data)
        self._have += len(data)
        while self._have and self._have >= self._need:
            if not self._one_request():
                return

    def _one_request(self) -> bool:
        data = b"".join(self._chunks) if len(self._chunks) > 1 else self._chunks[0]
        self._chunks = [data]
        head_end = data.find(_HEAD_END)
        if head_end < 0:
            return False
        head = data[:head_end]
        length = _LENGTH.search(head)
        total = head_end + len(_HEAD_END) + (int(length.group(1)) if length else 0)
        if len(data) < total:
            self._wait_for(total, head, first=self._need == 0)
            return False
        method, target, _ = head.split(b"\r\n", 1)[0].split(b" ", 2)
        self._write(self._hole.answer(target, method, data[head_end + len(_HEAD_END) : total]))
        rest = data[total:]
        self._chunks, self._have, self._need = ([rest] if rest else []), len(rest), 0
        return bool(rest)

    def _wait_for(self, total: int, head: bytes, *, first: bool) -> None:
        self._need = total
        if first and b"100-continue" in head:
            self._now(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _write(self, reply: bytes) -> None:
        if self._hole.latency_s:
            asyncio.get_running_loop().call_later(self._hole.latency_s, self._now, reply)
        else:
            self._now(reply)

    def _now(self, reply: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(reply)


async def serve(
    port: int,
    keep: Path | None,
    latency_ms: float = 0.0,
    ready: Callable[[Sequence[int]], None] | None = None,
    transient_share: float = 0.0,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve on 127.0.0.1 until SIGTERM or SIGINT, with `tls` on a second, free port over TLS, too.

    Port 0 takes a free one; `ready` gets the ports, the plain one first.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(keep.open("ab", buffering=1 << 20)) if keep else None
        hole = _Hole(Stats(), file, latency_ms / 1000, transient_share)
        servers = []
        for at, context in [(port, None)] + ([(0, tls)] if tls else []):
            servers.append(
                await loop.create_server(lambda: _Connection(hole), "127.0.0.1", at, backlog=512, ssl=context)
            )
        if ready is not None:
            ready([server.sockets[0].getsockname()[1] for server in servers])
        await stop.wait()
        for server in servers:
            server.close()


def kept_keys(path: Path) -> Iterator[list[bytes]]:
    """Yield the keys of each kept request, as UTF-8 bytes without XML escapes, in order of arrival."""
    with path.open("rb") as file:
        while prefix := file.read(4):
            body = file.read(int.from_bytes(prefix, "big"))
            keys = _KEY.findall(body)
            if b"&" in body:
                keys = [html.unescape(k.decode()).encode() if b"&" in k else k for k in keys]
            yield keys


def verify(path: Path, expected: Iterable[str]) -> VerifyResult:
    """Compare the kept keys with those that were due; about 1 GB for ten million keys on each side.

    Keys are compared by the first half of their 128-bit digest, and the whole digests by their sum.
    """
    sent, total = _distinct(_digests(keys) for keys in kept_keys(path))
    due, _ = _distinct(_digests([key.encode() for key in part]) for part in _chunked(expected, 10_000))
    missing = len(np.setdiff1d(due[:, 0], sent[:, 0], assume_unique=True))
    unexpected = len(np.setdiff1d(sent[:, 0], due[:, 0], assume_unique=True))
    return VerifyResult(total, missing, unexpected, total - len(sent), _sum(sent), _sum(due))


_Digests = npt.NDArray[np.uint64]


def _digests(keys: list[bytes]) -> _Digests:
    joined = b"".join([blake2b(key, digest_size=16).digest() for key in keys])
    return np.frombuffer(joined, dtype=">u8").astype(np.uint64).reshape(-1, 2)


def _distinct(parts: Iterable[_Digests]) -> tuple[_Digests, int]:
    collected = list(parts)
    everything = np.concatenate(collected) if collected else np.empty((0, 2), dtype=np.uint64)
    del collected
    _, first = np.unique(everything[:, 0], return_index=True)
    return everything[first], len(everything)


def _sum(digests: _Digests) -> str:
    total = 0
    for column, shift in ((0, 64), (1, 0)):
        values = digests[:, column]
        low = int((values & np.uint64(0xFFFFFFFF)).sum(dtype=np.uint64))
        high = int((values >> np.uint64(32)).sum(dtype=np.uint64))
        total += (low + (high << 32)) << shift
    return f"{total % (1 << 128):032x}"


def _chunked(keys: Iterable[str], size: int) -> Iterator[list[str]]:
    iterator = iter(keys)
    while part := list(itertools.islice(iterator, size)):
        yield part


def main() -> int:
    """Run the server; its ports go to stdout once it listens, one a line, the plain one first."""
    parser = argparse.ArgumentParser(description="black-hole S3 server for benchmarks")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--keep", type=Path, help="append every DeleteObjects body to this file")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="wait this long before each reply")
    parser.add_argument("--transient-share", type=float, default=0.0, help="of the keys, failed once")
    parser.add_argument("--certificate", type=Path, help="PEM with its key: listen over TLS, too")
    args = parser.parse_args()
    tls = None
    if args.certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(args.certificate)
    run = asyncio.run
    with contextlib.suppress(ImportError):
        import uvloop

        run = uvloop.run
    run(serve(args.port, args.keep, args.latency_ms, _tell, args.transient_share, tls))
    return 0


def _tell(ports: Sequence[int]) -> None:
    print("\n".join(map(str, ports)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
