"""Opening a connection: TCP, a proxy's tunnel, TLS, within one time-out; whatever fails, nothing was sent.

The messages name the host, what is wrong with its certificate, and the setting to look at.
"""

from __future__ import annotations

import ssl
import time

from sexton.storage.channels import Channel, TcpChannel, TlsChannel
from sexton.storage.http import Broken, ReplyReader, Unsent
from sexton.storage.proxies import Address, Proxy, Route
from sexton.storage.trust import Trust

__all__ = ["open_channel"]

_HOSTNAME_MISMATCH = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_OUT_OF_TIME = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
_ENDPOINT_HINT = "is the store up, and SEXTON_S3_ENDPOINT_URL right?"
_MOST_NAMES = 8


def open_channel(route: Route, trust: Trust | None, timeout_s: float) -> Channel:
    """Connect, through the proxy if there is one, and agree on TLS, in time; raises Unsent.

    `trust` is needed where TLS is spoken.
    """
    deadline = time.monotonic() + timeout_s
    proxy, store = route.proxy, route.store
    channel = _connected(route, deadline)
    try:
        if proxy is not None and proxy.address.secure:
            channel = _secured(channel, route, proxy.address, trust, deadline)
        if proxy is not None and store.secure:
            _ask_for_tunnel(channel, store, proxy, deadline)
        if store.secure:
            channel = _secured(channel, route, store, trust, deadline)
    except BaseException:
        channel.close()
        raise
    return channel


def _connected(route: Route, deadline: float) -> Channel:
    proxy = route.proxy
    first = route.store if proxy is None else proxy.address
    try:
        return TcpChannel.connect(first.host, first.port, deadline)
    except (OSError, UnicodeError) as error:
        if proxy is None:
            raise Unsent(_reason(error), "EndpointUnreachable", _ENDPOINT_HINT) from error
        raise _proxy_failed(proxy, f"does not answer: {_reason(error)}") from error


def _secured(
    channel: Channel, route: Route, host: Address, trust: Trust | None, deadline: float
) -> TlsChannel:
    assert trust is not None
    try:
        tls = TlsChannel(channel, trust.context, host.host)
    except ValueError as error:
        raise Unsent(
            f"no host name for TLS: {host.host}: {error}", "EndpointUnreachable", _ENDPOINT_HINT
        ) from error
    try:
        tls.handshake(deadline)
    except ssl.SSLCertVerificationError as error:
        channel.close()  # a server that serves one at a time answers the next one, which reads the names
        raise _not_trusted(error, route, host, trust, deadline) from error
    except OSError as error:
        raise _no_tls(error, route, host, tls.first_bytes) from error
    return tls


def _ask_for_tunnel(channel: Channel, store: Address, proxy: Proxy, deadline: float) -> None:
    credentials = f"Proxy-Authorization: {proxy.credentials}\r\n" if proxy.credentials else ""
    request = f"CONNECT {store} HTTP/1.1\r\nHost: {store}\r\n{credentials}\r\n"
    try:
        channel.send((request.encode("latin-1"),), deadline)
        status = ReplyReader(channel).read_tunnel(deadline)
    except (Broken, OSError) as error:
        raise _proxy_failed(proxy, f"did not answer CONNECT {store}: {_reason(error)}") from error
    if 200 <= status < 300:
        return
    message = f"the proxy {proxy.address} refused CONNECT {store}: HTTP {status}"
    if status == 407:
        hint = f"its credentials belong into {proxy.setting}: http://user:password@host:port"
        raise Unsent(message, "ProxyFailed", hint, of_host=False)
    hint = f"may it reach the store? {proxy.setting} names the proxy, NO_PROXY the hosts without one"
    raise Unsent(message, "EndpointUnreachable", hint)


def _not_trusted(
    error: ssl.SSLCertVerificationError, route: Route, host: Address, trust: Trust, deadline: float
) -> Unsent:
    wrong, hint = (
        error.verify_message,
        f"the CAs are those of {trust.source}; AWS_CA_BUNDLE names another file",
    )
    if error.verify_code in _HOSTNAME_MISMATCH:
        names = _names(route, host, trust, deadline)
        wrong = f"it is for {', '.join(names[:_MOST_NAMES])}" if names else "it is for another host"
        hint = f"has {_setting(route, host)} the host's name as it stands in the certificate?"
    elif error.verify_code in _OUT_OF_TIME:
        hint = "renew it at the store; or is the clock of this machine wrong?"
    message = f"the certificate of {host} is not accepted: {wrong}"
    return Unsent(message, "CertificateRejected", hint, of_host=host is route.store)


def _names(route: Route, host: Address, trust: Trust, deadline: float) -> tuple[str, ...]:
    """Return the names in the certificate of a host, by a second handshake; none when that fails too."""
    if host is not route.store:
        route = Route(route.origin, host, None)
    proxy = route.proxy
    channel: Channel | None = None
    try:
        channel = _connected(route, deadline)
        if proxy is not None and proxy.address.secure:
            channel = _secured(channel, route, proxy.address, trust, deadline)
        if proxy is not None:
            _ask_for_tunnel(channel, route.store, proxy, deadline)
        tls = TlsChannel(channel, trust.for_any_host(), host.host)
        tls.handshake(deadline)
        return tls.names()
    except (Broken, OSError, ValueError):
        return ()
    finally:
        if channel is not None:
            channel.close()


def _no_tls(error: OSError, route: Route, host: Address, first: bytes) -> Unsent:
    setting = _setting(route, host)
    hint = f"does the port speak TLS? {setting} says https://"
    if first.startswith(b"HTTP/") or (first and first[0] not in range(20, 25)):
        wrong = "it answers in plain text"
        hint = f"the port speaks no TLS: {setting} has to begin with http:// for it"
    elif isinstance(error, TimeoutError):
        wrong = "the handshake was not whole in time"
    else:
        wrong = _reason(error)
    message = f"no TLS with {host}: {wrong}"
    of_host = host is route.store
    return Unsent(message, "EndpointUnreachable" if of_host else "ProxyFailed", hint, of_host=of_host)


def _setting(route: Route, host: Address) -> str:
    proxied = route.proxy is not None and host is route.proxy.address
    return route.proxy.setting if route.proxy and proxied else "SEXTON_S3_ENDPOINT_URL"


def _proxy_failed(proxy: Proxy, what: str) -> Unsent:
    hint = f"{proxy.setting} names the proxy, NO_PROXY the hosts that are reached without one"
    return Unsent(f"the proxy {proxy.address} {what}", "ProxyFailed", hint, of_host=False)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "not in time"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return f"{type(error).__name__}: {error}"
