"""The one wire to the store, for HTTP and HTTPS: a request is sent once, and answered whole or not at all."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import botocore.session
from botocore.awsrequest import AWSPreparedRequest

from sexton.schemas.errors import EnvironmentFault, InvalidSettings
from sexton.storage.connection import Connection
from sexton.storage.errors import NoReply
from sexton.storage.http import Broken, Unsent
from sexton.storage.opening import open_channel
from sexton.storage.proxies import Route, find_route
from sexton.storage.settings import StoreSettings
from sexton.storage.trust import Trust, load_trust

__all__ = ["RawReply", "Wire", "check_way", "date_in", "open_to_all", "retry_after"]

_OF_ONE_BUCKET = {
    "EndpointUnreachable": "BucketHostUnreachable",
    "CertificateRejected": "BucketCertificateRejected",
}
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def open_to_all() -> None:
    """Let every request pass."""


def _no_headers() -> Mapping[str, str]:
    return _NO_HEADERS


@dataclass(frozen=True, slots=True)
class RawReply:
    """An HTTP reply as it came; the names of its headers are in lowercase."""

    status: int
    request_id: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=_no_headers)


class Wire:
    """The connections to the store, by origin; safe for several threads.

    Each is used by one thread at a time, and the one that was used last goes first: those that only a burst
    needed grow old and are dropped. Raises InvalidSettings for CAs that cannot be read, or a proxy that is
    none.

    A store cannot fence a client: a process that was paused continues where it stood, also when another one
    has taken its place. So the last thing before a request leaves, its connection open, is a call of `fence`.
    Not only before deletes: what a look or a probe shows is decided upon, too.
    """

    def __init__(self, settings: StoreSettings, ca_bundle: str | None) -> None:
        self._settings = settings
        self._ca_bundle = ca_bundle
        self._routes: dict[str, Route] = {}
        self._idle: dict[str, deque[Connection]] = {}
        self._closed = False
        self._lock = threading.Lock()
        self._trust: Trust | None = None
        self._dates: dict[str, tuple[float, str]] = {}
        self.fence: Callable[[], None] = open_to_all
        try:
            endpoint = settings.endpoint_url
            if endpoint is None or find_route(endpoint).speaks_tls:
                self._trusted()  # now, not at the first request: a wrong setting ends the start
        except Unsent as error:
            raise InvalidSettings(str(error), hint=error.hint) from error

    def exchange(self, bucket: str, request: AWSPreparedRequest) -> RawReply:
        """Send a request once and return the whole reply; raises NoReply."""
        url: str = request.url
        start = url.index("/", 8)
        origin = url[:start]
        headers: Any = request.headers
        body: Any = request.body or b""
        connection = None
        try:
            connection = self._take(origin)
            self.fence()
            reply = connection.exchange(
                request.method, url[start:], headers, body, self._settings.read_timeout_s
            )
        except Broken as broken:
            if broken.code == "CertificateRejected":
                self._trust = None  # read anew for the next one: the list may be mended meanwhile
            raise self._no_reply(bucket, url, broken) from broken
        except EnvironmentFault as fault:
            raise NoReply(f"nothing was sent: {fault}", effect_unknown=False, code="Fenced") from fault
        finally:
            if connection is not None:
                self._give_back(origin, connection)
        if (date := reply.headers.get("date")) is not None:
            self._dates[bucket] = (time.monotonic(), date)
        return RawReply(reply.status, reply.headers.get("x-amz-request-id", ""), reply.body, reply.headers)

    def date_of(self, bucket: str) -> datetime | None:
        """Return the time by the clock of the bucket's last reply, None where none has told it.

        That is its Date (RFC 9110, 6.6.1: whole seconds) and what has passed here since it came.
        """
        came, date = self._dates.get(bucket, (0.0, ""))
        then = date_in({"date": date})
        return then + timedelta(seconds=time.monotonic() - came) if then is not None else None

    def folds_paths(self, url: str) -> bool:
        """Return whether a proxy reads the path of a URL: if it normalises it, the signature is wrong."""
        try:
            return self._route(url[: url.index("/", 8)]).is_forwarded
        except Unsent:
            return False  # nothing will be sent

    def close(self) -> None:
        """Drop the connections, those in use when they come back."""
        self._closed = True
        for idle in list(self._idle.values()):
            while idle:
                idle.pop().close()

    def _take(self, origin: str) -> Connection:
        idle = self._idle.setdefault(origin, deque())
        while True:
            try:
                connection = idle.pop()
            except IndexError:
                break
            if connection.is_fresh():
                return connection
            # The store has hung up, or a router may have: another one, before anything is sent.
            connection.close()
        self._drop_old()
        route = self._route(origin)
        trust = self._trusted() if route.speaks_tls else None
        return Connection(route, open_channel(route, trust, self._settings.connect_timeout_s))

    def _give_back(self, origin: str, connection: Connection) -> None:
        if connection.reusable and not self._closed:
            self._idle[origin].append(connection)
        else:
            connection.close()

    def _drop_old(self) -> None:
        """Close what nobody has used for long: buckets with hosts of their own come and go."""
        for idle in list(self._idle.values()):
            with suppress(IndexError):  # another thread may take them at the same time
                while idle[0].is_old():
                    idle.popleft().close()

    def _route(self, origin: str) -> Route:
        route = self._routes.get(origin)
        if route is None:
            route = self._routes.setdefault(origin, find_route(origin))
        return route

    def _trusted(self) -> Trust:
        with self._lock:
            if self._trust is None:
                self._trust = load_trust(os.environ, self._ca_bundle)
            return self._trust

    def _no_reply(self, bucket: str, url: str, broken: Broken) -> NoReply:
        address = urlsplit(url)
        where = f"bucket={bucket} store={address.scheme}://{address.netloc}"
        code = broken.code
        if isinstance(broken, Unsent):
            # A host of the bucket's own that cannot be reached says nothing about the other buckets.
            own = (address.hostname or "").startswith(f"{bucket}.") or bucket.startswith("arn:")
            if broken.of_host and own:
                code = _OF_ONE_BUCKET.get(code, code)
            message = f"no connection to the store, nothing was sent: {where}: {broken}"
            return NoReply(message, effect_unknown=False, hint=broken.hint, code=code)
        if code == "ReadTimeout":
            seconds = self._settings.read_timeout_s
            message = f"the store did not answer (whole) within {seconds:g} s, effect unknown: {where}"
        elif code == "TornReply":
            message = f"{broken}, effect unknown: {where}"
        else:
            message = f"the connection broke, effect unknown: {where}: {broken}"
        return NoReply(message, effect_unknown=True, code=code)


def check_way(settings: StoreSettings) -> None:
    """Return when the CAs and the proxy that this process' environment names can be used; asks nobody.

    Raises InvalidSettings. For whoever starts others that reach the store: they would fail one by one.
    """
    Wire(settings, botocore.session.Session().get_config_variable("ca_bundle")).close()


def date_in(headers: Mapping[str, str]) -> datetime | None:
    """Return a reply's Date (RFC 9110, 6.6.1: whole seconds), None where it has none that can be read."""
    try:
        found = parsedate_to_datetime(headers.get("date", ""))
    except (TypeError, ValueError, OverflowError):
        return None
    return found if found.tzinfo is not None else None


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
