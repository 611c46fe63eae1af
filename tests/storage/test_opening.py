"""How a connection is opened: certificates, wrong ports, proxies. Until it is open nothing was sent."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from tests.storage.conftest import one
from tests.support.certificates import Authority, authority, server_context
from tests.support.raw_server import GONE, OK, raw_server, read_request
from tests.support.s3_recorder import S3Recorder

from sexton.schemas.errors import InvalidSettings
from sexton.storage import BatchDeleter, Effect, Kind, ObjectStore, StoreSettings
from sexton.storage.trust import load_trust

MakeDeleter = Callable[[StoreSettings], BatchDeleter]
DAY = timedelta(days=1)


@contextmanager
def store_with(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Recorder]:
    """A recorder with a certificate of the test's choice."""
    with S3Recorder(tls=tls) as s3:
        for name, value in s3.environ.items():
            monkeypatch.setenv(name, value)
        s3.create_bucket("bucket", {"a": b"x"})
        yield s3


@dataclass
class Tunnels:
    """A proxy for CONNECT that keeps what it was asked, and refuses with `status` if there is one."""

    url: str = ""
    status: int = 200
    heads: list[bytes] = field(default_factory=list)


@contextmanager
def tunnels(tls: ssl.SSLContext | None = None) -> Iterator[Tunnels]:
    """Run a proxy, with `tls` one that is spoken to over TLS; it serves one connection at a time."""
    proxy = Tunnels()

    def speak(client: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(65536)
        proxy.heads.append(head)
        if proxy.status != 200:
            client.sendall(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % proxy.status)
            return
        host, _, port = head.split(b" ")[1].decode().rpartition(":")
        with socket.create_connection((host, int(port))) as store:
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            threading.Thread(target=pump, args=(store, client), daemon=True).start()
            pump(client, store)

    with raw_server(speak, tls) as url:
        proxy.url = url
        yield proxy


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Carry bytes until the source ends."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy of the machine, and none that 127.0.0.1 is reached without."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


class TestCertificates:
    @pytest.mark.parametrize(
        ("kind", "wrong", "hint"),
        [
            ("expired", "certificate has expired", "clock"),
            ("another CA", "unable to get local issuer certificate", "AWS_CA_BUNDLE = "),
            ("another host", "it is for store.example, 10.1.2.3", "SEXTON_S3_ENDPOINT_URL"),
        ],
    )
    def test_q_1_p_8_a_certificate_that_is_not_accepted(
        self, kind: str, wrong: str, hint: str, make_deleter: MakeDeleter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Q-1, P-8: nothing was sent, all of it waits, the message says what is wrong and where to look."""
        context = {
            "expired": lambda: authority().context(valid=(-2 * DAY, -DAY)),
            "another CA": lambda: Authority().context(),
            "another host": lambda: authority().context(["store.example", "10.1.2.3"]),
        }[kind]()
        with store_with(context, monkeypatch) as s3:
            state = one(make_deleter(StoreSettings(s3.url, connect_timeout_s=5)))
            with pytest.raises(Exception, match="nothing was sent") as caught:
                ObjectStore(StoreSettings(s3.url, connect_timeout_s=5)).get("bucket", "a")

        assert (state.kind, state.code, state.effect) == (
            Kind.ENVIRONMENT,
            "CertificateRejected",
            Effect.NONE,
        )
        assert wrong in state.message
        assert s3.url.removeprefix("https://") in state.message
        assert hint in str(caught.value.hint)  # type: ignore[attr-defined]
        assert s3.requests == []

    @pytest.mark.parametrize("setting", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "profile"])
    def test_q_1_the_settings_that_name_the_cas(
        self, setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Q-1: each is read where none before it is set; what cannot be used ends the start, by its name."""
        names = ["AWS_CA_BUNDLE", "profile", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"]
        good, bad = str(authority().bundle), str(tmp_path / "none.pem")
        later = dict.fromkeys(names[names.index(setting) + 1 :], bad)
        environ = {**later, setting: good}
        profile = environ.pop("profile", None)
        assert load_trust(environ, profile).path == good

        empty = tmp_path / "empty.pem"
        empty.write_text("no certificate")
        config = tmp_path / "config"
        config.write_text(f"[default]\nca_bundle = {empty}\n")
        for name in names:
            monkeypatch.delenv(name, raising=False)
        if setting == "profile":
            monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
        else:
            monkeypatch.setenv(setting, str(empty))
        named = "ca_bundle of the AWS configuration" if setting == "profile" else setting
        for open_client in (BatchDeleter, ObjectStore):
            with pytest.raises(InvalidSettings, match=f"{named} = {empty}: no certificate in PEM"):
                open_client(StoreSettings("https://127.0.0.1:1"))
        with pytest.raises(InvalidSettings, match=r"SSL_CERT_FILE = .*none.pem: No such file"):
            load_trust({"SSL_CERT_FILE": bad})


class TestWrongPorts:
    def test_q_1_https_to_a_plain_port(self, make_deleter: MakeDeleter, s3: S3Recorder) -> None:
        """Q-1: the message says that the port speaks no TLS; nothing was sent."""

        def answer(connection: socket.socket) -> None:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        with raw_server(answer) as url:
            state = one(make_deleter(StoreSettings(url.replace("http:", "https:"))))

        assert (state.kind, state.code, state.effect) == (
            Kind.ENVIRONMENT,
            "EndpointUnreachable",
            Effect.NONE,
        )
        assert "it answers in plain text" in state.message

    def test_q_1_http_to_a_tls_port(self, make_deleter: MakeDeleter, s3: S3Recorder) -> None:
        """Q-1: an answer that is a TLS alert shows that no request was read."""

        def answer(connection: socket.socket) -> None:
            read_request(connection)
            connection.sendall(b"\x15\x03\x01\x00\x02\x02\x16")

        with raw_server(answer) as url:
            state = one(make_deleter(StoreSettings(url)))

        assert (state.kind, state.effect) == (Kind.ENVIRONMENT, Effect.NONE)
        assert "the port speaks TLS" in state.message

    def test_q_1_inside_of_tls_an_alert_is_no_alert(self, make_deleter: MakeDeleter, s3: S3Recorder) -> None:
        """Q-1: bytes like these from behind a handshake come from somebody who has read the request."""

        def answer(connection: socket.socket) -> None:
            read_request(connection)
            connection.sendall(b"\x15\x03\x01\x00\x02\x02\x16")

        with raw_server(answer, server_context()) as url:
            state = one(make_deleter(StoreSettings(url)))

        assert (state.kind, state.code, state.effect) == (Kind.UNKNOWN, "TornReply", Effect.UNKNOWN)

    @pytest.mark.parametrize("drips", [True, False])
    def test_q_1_a_handshake_that_drips(self, drips: bool, make_deleter: MakeDeleter, s3: S3Recorder) -> None:
        """Q-1: it has to be whole within the time-out for connecting; then nothing was sent."""

        def answer(connection: socket.socket) -> None:
            connection.recv(65536)
            for byte in b"\x16\x03\x03\x20\x00" + bytes(100) if drips else b"":
                connection.sendall(bytes([byte]))
                time.sleep(0.1)
            connection.recv(1)

        with raw_server(answer) as url:
            started = time.monotonic()
            settings = StoreSettings(url.replace("http:", "https:"), connect_timeout_s=0.5)
            state = one(make_deleter(settings))

        assert (state.code, state.effect) == ("EndpointUnreachable", Effect.NONE)
        assert "not whole in time" in state.message
        assert time.monotonic() - started < 8


@pytest.mark.usefixtures("no_proxies")
class TestProxies:
    @pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
    def test_q_1_through_a_tunnel(
        self,
        secure: bool,
        s3: S3Recorder,
        settings: StoreSettings,
        make_deleter: MakeDeleter,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Q-1: HTTPS goes through CONNECT with the proxy's credentials, which the store never sees."""
        with tunnels(server_context() if secure else None) as proxy:
            named = proxy.url.replace("://", "://user:p%40ss@")
            monkeypatch.setenv("HTTPS_PROXY", named)
            deleter = make_deleter(settings)
            assert one(deleter).kind is Kind.GONE
            assert one(deleter).kind is Kind.GONE
            deleter.close()

        (head,) = proxy.heads
        assert head.startswith(f"CONNECT {s3.url.removeprefix('https://')} HTTP/1.1\r\n".encode())
        assert base64.b64encode(b"user:p@ss") in head
        assert "proxy-authorization" not in s3.deletes()[0].headers

    @pytest.mark.parametrize(
        ("status", "code", "hint"),
        [(407, "ProxyFailed", "user:password"), (502, "EndpointUnreachable", "NO_PROXY")],
    )
    def test_q_1_a_proxy_that_refuses(
        self,
        status: int,
        code: str,
        hint: str,
        s3: S3Recorder,
        settings: StoreSettings,
        make_deleter: MakeDeleter,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Q-1: a tunnel that is refused is reported with the proxy and its status; nothing was sent."""
        with tunnels() as proxy:
            proxy.status = status
            monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("://", "://user:secret@"))
            state = one(make_deleter(settings))
            with pytest.raises(Exception, match="nothing was sent") as caught:
                ObjectStore(settings).get("bucket", "a")

        assert (state.kind, state.code, state.effect) == (Kind.ENVIRONMENT, code, Effect.NONE)
        assert f"refused CONNECT {s3.url.removeprefix('https://')}: HTTP {status}" in state.message
        assert "secret" not in state.message
        assert hint in str(caught.value.hint)  # type: ignore[attr-defined]
        assert s3.requests == []

    def test_q_1_the_certificate_of_a_proxy_is_looked_at(
        self,
        s3: S3Recorder,
        settings: StoreSettings,
        make_deleter: MakeDeleter,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Q-1: a proxy that anybody could be is reported nothing, not even whom it should connect to."""
        with tunnels(Authority().context()) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("://", "://user:secret@"))
            state = one(make_deleter(settings))

        assert (state.kind, state.code, state.effect) == (
            Kind.ENVIRONMENT,
            "CertificateRejected",
            Effect.NONE,
        )
        assert proxy.url.removeprefix("https://") in state.message
        assert (proxy.heads, s3.requests) == ([], [])

    def test_q_1_no_proxy(
        self,
        s3: S3Recorder,
        settings: StoreSettings,
        make_deleter: MakeDeleter,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Q-1: a proxy that is away, or none at all, says so; a host of NO_PROXY is reached without it."""
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
        away = one(make_deleter(settings))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert one(make_deleter(settings)).kind is Kind.GONE
        monkeypatch.delenv("NO_PROXY")
        monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1")

        assert (away.kind, away.code, away.effect) == (Kind.ENVIRONMENT, "ProxyFailed", Effect.NONE)
        with pytest.raises(InvalidSettings, match="HTTPS_PROXY"):
            make_deleter(settings)

    def test_q_1_plain_http_through_a_proxy(
        self, s3: S3Recorder, make_deleter: MakeDeleter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Q-1: a proxy of plain HTTP gets the whole URL, and its credentials."""
        heads = []

        def answer(connection: socket.socket) -> None:
            heads.append(read_request(connection))
            connection.sendall(OK % (len(GONE), GONE))

        with raw_server(answer) as url:
            monkeypatch.setenv("HTTP_PROXY", url.replace("://", "://user:pass@"))
            assert one(make_deleter(StoreSettings("http://store.example"))).kind is Kind.GONE

        assert heads[0].startswith(b"POST http://store.example/bucket?delete= HTTP/1.1\r\n")
        assert b"\r\nProxy-Authorization: Basic " + base64.b64encode(b"user:pass") in heads[0]
