"""The way to an origin: straight, or through the proxy that the environment names for it."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from botocore.utils import get_environ_proxies

from sexton.storage.http import Unsent

__all__ = ["Address", "Proxy", "Route", "find_route"]

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """A host and port, and whether TLS is spoken there."""

    host: str
    port: int
    secure: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy; `credentials` is the value of its own header, empty without. It is never printed."""

    address: Address
    credentials: str
    setting: str


@dataclass(frozen=True, slots=True)
class Route:
    """The way to an origin such as `https://store:9000`."""

    origin: str
    store: Address
    proxy: Proxy | None

    @property
    def is_forwarded(self) -> bool:
        """True when a proxy reads every request and sends it on, so that it may change its path."""
        return self.proxy is not None and not self.store.secure

    @property
    def speaks_tls(self) -> bool:
        """True when the store, or the proxy itself, is spoken to over TLS."""
        return self.store.secure or (self.proxy is not None and self.proxy.address.secure)


def find_route(origin: str) -> Route:
    """Return the way to an origin by HTTP_PROXY, HTTPS_PROXY and NO_PROXY; Unsent for what is no proxy."""
    url = urlsplit(origin)
    named = get_environ_proxies(origin).get(url.scheme)
    return Route(origin, _address(url), _proxy(named, url.scheme) if named else None)


def _proxy(named: str, scheme: str) -> Proxy:
    setting = f"{scheme.upper()}_PROXY"
    try:
        url = urlsplit(named if "://" in named else f"http://{named}")
        if url.scheme not in _PORTS or not url.hostname:
            raise ValueError
        address = _address(url)
    except ValueError:
        raise Unsent(
            f"{setting} names no proxy that can be used",
            "ProxyFailed",
            f"{setting}=http://[user:password@]host:port; https:// where the proxy itself speaks TLS",
            of_host=False,
        ) from None
    if url.username is None:
        return Proxy(address, "", setting)
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return Proxy(address, f"Basic {base64.b64encode(pair.encode()).decode()}", setting)


def _address(url: SplitResult) -> Address:
    return Address(url.hostname or "", url.port or _PORTS[url.scheme], url.scheme == "https")
