"""One HTTP exchange with the store: sent once, answered whole or not at all."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import (
    BotoCoreError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ProxyConnectionError,
    ReadTimeoutError,
)
from botocore.httpsession import URLLib3Session
from botocore.utils import get_environ_proxies
from urllib3.exceptions import HTTPError
from urllib3.exceptions import ReadTimeoutError as Urllib3Timeout

from sexton.storage.errors import NoReply
from sexton.storage.plain_wire import MOST_BYTES, Broken, PlainWire
from sexton.storage.settings import StoreSettings

__all__ = ["RawReply", "Wire", "retry_after"]

_NEVER_SENT = (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError)
_PIECE = 128 * 1024
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def _no_headers() -> Mapping[str, str]:
    return _NO_HEADERS


@dataclass(frozen=True, slots=True)
class RawReply:
    """An HTTP reply as it came; header names are looked up in any case."""

    status: int
    request_id: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=_no_headers)


class Wire:
    """The connections to the store, by origin; safe for several threads."""

    def __init__(self, settings: StoreSettings, ca_bundle: str | None) -> None:
        self._settings = settings
        self._ca_bundle = ca_bundle
        self._pools: dict[str, URLLib3Session] = {}
        self._plain: dict[str, PlainWire | None] = {}

    def exchange(self, bucket: str, request: AWSPreparedRequest) -> RawReply:
        """Send a request once and return the whole reply; raises NoReply."""
        plain = self._plain_way(request.url)
        if plain is not None:
            return self._exchange_plainly(bucket, plain, request)
        deadline = time.monotonic() + self._settings.read_timeout_s
        request.stream_output = True
        try:
            response: AWSResponse = self._pool(request.url).send(request)
            content = _whole(response, deadline)
        except BotoCoreError as error:
            raise self._no_reply(bucket, request.url, error) from error
        except Urllib3Timeout as error:
            raise self._too_late(_where(bucket, request.url)) from error
        except (HTTPError, OSError, http.client.HTTPException) as error:
            raise self._cut(bucket, request.url, error) from error
        # botocore's pool does not compare the two, and a reply cut short may end where it looks whole.
        promised = response.headers.get("content-length")
        if promised is not None and request.method != "HEAD" and promised.strip() != str(len(content)):
            raise NoReply(
                f"the reply broke off after {len(content)} of {promised} bytes, effect unknown: "
                f"bucket={bucket}",
                effect_unknown=True,
                code="TornReply",
            )
        request_id = response.headers.get("x-amz-request-id", "")
        return RawReply(response.status_code, request_id, content, response.headers)

    def folds_paths(self, url: str) -> bool:
        """Tell whether the path of a URL would be normalised on its way: plain HTTP through a proxy."""
        return url.startswith("http:") and bool(get_environ_proxies(url))

    def close(self) -> None:
        """Drop the connections."""
        for pool in self._pools.values():
            pool.close()
        for plain in self._plain.values():
            if plain is not None:
                plain.close()

    def _plain_way(self, url: str) -> PlainWire | None:
        """Return the short way to the origin of a URL, None where TLS or a proxy asks for the pool."""
        if not url.startswith("http:"):
            return None
        origin = url[: url.index("/", 7)]
        if origin not in self._plain:
            plain = PlainWire(origin, self._settings.connect_timeout_s, self._settings.read_timeout_s)
            self._plain.setdefault(origin, None if get_environ_proxies(url) else plain)
        return self._plain[origin]

    def _exchange_plainly(self, bucket: str, plain: PlainWire, request: AWSPreparedRequest) -> RawReply:
        headers: Any = request.headers
        body: Any = request.body or b""
        try:
            reply = plain.exchange(request.method, request.url, headers, body)
        except Broken as broken:
            raise self._broken(bucket, request.url, broken) from broken
        return RawReply(reply.status, reply.headers.get("x-amz-request-id", ""), reply.body, reply.headers)

    def _broken(self, bucket: str, url: str, broken: Broken) -> NoReply:
        where = _where(bucket, url)
        if not broken.sent:
            return self._unreachable(bucket, url, broken)
        if broken.code == "ReadTimeout":
            return self._too_late(where)
        if broken.code == "TornReply":
            return NoReply(f"{broken}, effect unknown: {where}", effect_unknown=True, code=broken.code)
        return self._cut(bucket, url, broken)

    @staticmethod
    def _cut(bucket: str, url: str, error: Exception) -> NoReply:
        message = f"the connection broke, effect unknown: {_where(bucket, url)}: {error}"
        return NoReply(message, effect_unknown=True)

    def _too_late(self, where: str) -> NoReply:
        seconds = self._settings.read_timeout_s
        message = f"the store did not answer (whole) within {seconds:g} s, effect unknown: {where}"
        return NoReply(message, effect_unknown=True, code="ReadTimeout")

    @staticmethod
    def _unreachable(bucket: str, url: str, error: Exception) -> NoReply:
        address = urlsplit(url)
        # A host of the bucket's own that cannot be reached says nothing about the other buckets.
        own_host = (address.hostname or "").startswith(f"{bucket}.")
        return NoReply(
            f"no connection to the store, nothing was sent: {_where(bucket, url)}: {error}",
            effect_unknown=False,
            hint="is the store up, and SEXTON_S3_ENDPOINT_URL right?",
            code="BucketHostUnreachable" if own_host else "EndpointUnreachable",
        )

    def _pool(self, url: str) -> URLLib3Session:
        address = urlsplit(url)
        origin = f"{address.scheme}://{address.netloc}"
        pool = self._pools.get(origin)
        if pool is None:
            # botocore's own pool rather than a bare urllib3 one: a sixth more CPU for the send, and in return
            # certificate bundles and proxies are what every AWS tool makes of them. It repeats nothing.
            options: dict[str, Any] = {
                "verify": self._ca_bundle or True,
                "proxies": get_environ_proxies(url),
                "timeout": (self._settings.connect_timeout_s, self._settings.read_timeout_s),
                "max_pool_connections": self._settings.requests_in_flight,
                # Head and body are two writes: with Nagle's algorithm the second waits 40 ms for an ACK.
                "socket_options": [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            }
            pool = self._pools.setdefault(origin, URLLib3Session(**options))
        return pool

    def _no_reply(self, bucket: str, url: str, error: BotoCoreError) -> NoReply:
        if isinstance(error, _NEVER_SENT):
            return self._unreachable(bucket, url, error)
        if isinstance(error, ReadTimeoutError):
            return self._too_late(_where(bucket, url))
        return self._cut(bucket, url, error)


def _where(bucket: str, url: str) -> str:
    address = urlsplit(url)
    return f"bucket={bucket} store={address.scheme}://{address.netloc}"


def _whole(response: AWSResponse, deadline: float) -> bytes:
    """Return the body; raises what urllib3 raises, also for a reply that is not whole in time, or too long.

    Headers that drip are not noticed here: each piece of them has the whole time-out.
    """
    pieces: list[bytes] = []
    size = 0
    while piece := response.raw.read1(_PIECE, decode_content=False):
        pieces.append(piece)
        size += len(piece)
        if size > MOST_BYTES or time.monotonic() > deadline:
            response.raw.close()  # not to be used again: the rest would be read as the next reply
            if size > MOST_BYTES:
                raise http.client.HTTPException(f"a reply of more than {MOST_BYTES} bytes")
            raise Urllib3Timeout(None, response.url, "not whole in time")  # type: ignore[arg-type]
    return b"".join(pieces)


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds that a reply asks to wait (RFC 9110, 10.2.3: seconds or a date), None without."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        until = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - (now or datetime.now(UTC))).total_seconds())
