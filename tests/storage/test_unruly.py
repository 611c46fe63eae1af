"""Servers and proxies that keep to the letter of their protocols and to nothing else."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.storage.conftest import BUCKET, one
from tests.support.certificates import Authority, authority, server_context
from tests.support.raw_server import raw_server, read_request
from tests.support.s3_recorder import Reply, S3Recorder

from sexton.storage import BatchDeleter, Kind, StoreSettings
from sexton.storage.xml_body import DeleteBody

MakeDeleter = Callable[[StoreSettings], BatchDeleter]
_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def proxy_in_records() -> Iterator[Callable[[int], str]]:
    """An HTTPS proxy that passes on what the store sends in TLS records of a size, which arrive together."""
    open_ones: list[socket.socket] = []

    def pump(source: socket.socket, sink: socket.socket, size: int, corked: socket.socket | None) -> None:
        try:
            while data := source.recv(65536):
                if corked is not None:
                    corked.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
                for start in range(0, len(data), size):
                    sink.sendall(data[start : start + size])
                if corked is not None:
                    corked.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        except OSError:
            return

    def start(size: int) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        open_ones.append(listener)

        def serve() -> None:
            try:
                raw, _ = listener.accept()
                tls = server_context().wrap_socket(raw, server_side=True)
                host, port = tls.recv(4096).split()[1].decode().rsplit(":", 1)
                store = socket.create_connection((host, int(port)))
                open_ones.extend((tls, store))
                tls.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                threading.Thread(target=pump, args=(tls, store, 65536, None), daemon=True).start()
                pump(store, tls, size, tls)
            except OSError:
                return

        threading.Thread(target=serve, daemon=True).start()
        return f"https://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for each in open_ones:
        each.close()


@pytest.mark.parametrize("size", [65536, 600, 100])
def test_q_1_a_handshake_in_several_records_of_a_proxy(
    size: int,
    proxy_in_records: Callable[[int], str],
    s3: S3Recorder,
    make_deleter: MakeDeleter,
    settings: StoreSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Q-1: TLS within TLS: what the outer one holds already is read before anybody waits for more."""
    monkeypatch.setenv("HTTPS_PROXY", proxy_in_records(size))
    monkeypatch.setenv("NO_PROXY", "")

    assert one(make_deleter(settings)).kind is Kind.GONE


def test_a_request_that_failed_leaves_nothing_for_the_collector(
    s3: S3Recorder, make_deleter: MakeDeleter
) -> None:
    """A task collects no circles: a reply that breaks off may not keep the body of its request."""

    def cut(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n<Del")

    with raw_server(cut) as url:
        deleter = make_deleter(StoreSettings(url, connect_timeout_s=2, read_timeout_s=5))
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                assert one(deleter).code == "TornReply"
            left = [each for each in gc.get_objects() if type(each) is DeleteBody]
        finally:
            gc.enable()
    assert left == []


@pytest.mark.parametrize(
    ("first", "unit"),
    [(b"", b"1;" + b"e" * 4000 + b"\r\nx\r\n"), (b"0\r\n", b"T: " + b"t" * 4000 + b"\r\n")],
    ids=["extensions of chunks", "trailers"],
)
def test_x_13_a_reply_without_a_pause_has_an_end(
    first: bytes, unit: bytes, s3: S3Recorder, make_deleter: MakeDeleter
) -> None:
    """X-13: who sends on and on is cut off at the read time-out as one who says nothing."""

    def flood(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(_CHUNKED + first)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            connection.sendall(unit * 64)

    with raw_server(flood) as url:
        deleter = make_deleter(StoreSettings(url, connect_timeout_s=2, read_timeout_s=0.03))
        started = time.monotonic()
        state = one(deleter)

    assert (state.kind, state.code) == (Kind.UNKNOWN, "ReadTimeout")  # and not by the size of the reply
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    "body",
    [
        b"<DeleteResult><!--<Deleted><Key>a</Key></Deleted>--></DeleteResult>",
        b"<Fault/><DeleteResult><Deleted><Key>a</Key></Deleted></DeleteResult>",
        b"<DeleteResult><![CDATA[<Deleted><Key>a</Key></Deleted>]]></DeleteResult>",
    ],
    ids=["in a comment", "behind another document", "as text"],
)
def test_what_looks_like_a_receipt_is_none(body: bytes, s3: S3Recorder, deleter: BatchDeleter) -> None:
    """An entry counts in a DeleteResult alone, as a parser reads it."""
    s3.script(lambda _: Reply(200, body))

    assert one(deleter).kind is not Kind.GONE


def test_q_1_a_list_of_cas_that_was_mended(
    s3: S3Recorder,
    settings: StoreSettings,
    make_deleter: MakeDeleter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Q-1: a process that rejected a certificate reads the list again before the next request."""
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(Authority().bundle.read_bytes())
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    deleter = make_deleter(settings)
    assert one(deleter).code == "CertificateRejected"

    bundle.write_bytes(authority().bundle.read_bytes())

    assert one(deleter).kind is Kind.GONE


def test_q_1_a_server_of_one_connection_at_a_time_names_its_certificate(
    s3: S3Recorder, make_deleter: MakeDeleter
) -> None:
    """Q-1: the handshake that reads the names comes after the refused one has hung up."""
    with raw_server(lambda connection: None, authority().context(["other.test"])) as url:
        message = one(make_deleter(StoreSettings(url, connect_timeout_s=3))).message

    assert "it is for other.test" in message


def test_an_unexpected_key_of_any_length_is_cut(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """A key that nobody asked for stands in the detail of each neighbour: its beginning is enough."""
    long = b"k" * 5_000
    entries = b"".join(b"<Deleted><Key>%b</Key></Deleted>" % key for key in (b"a", long))
    body = b"<DeleteResult>%b</DeleteResult>" % entries
    s3.script(lambda _: Reply(200, body))

    state = deleter.delete_all(BUCKET, ["a"]).result(20).state(0)

    assert (state.code, len(state.message) < 200) == ("NotAskedFor", True)
