"""What the proxy plays nothing on goes through it byte for byte, before moto and before the strict store."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import urllib3
from tests.support.echo import Echo
from tests.support.proxied import BUCKET, Running, delete, kinds, put, raw_exchange, running
from tests.support.s3_recorder import S3Recorder

from sexton.deploy.local import LocalStack
from sexton.storage import BatchDeleter, StoreSettings

ODD = [
    "a/../b", "./b", "..", "/x", "x//y", "x/", "a%2Fb", "t#1", "a+b", "a b", " lead", "trail ", "é",
    "e\u0301", "a?b=c&d", "<&>\"'", "a\\b", "\u2028", "\U0001f480", "a\rb", "a\nb", "b\x01c", "x\uffff",
    "~*'()!",
]  # fmt: skip
# moto takes any signature, but looks for one before it shows anything.
SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=AK/20000101/us-east-1/s3/aws4_request"}


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a moto server of its own."""
    leave_out = {"kafka", "redis", "issuer", "topics", "bucket"}
    stack = LocalStack.start(tmp_path_factory.mktemp("moto"), without=leave_out)
    try:
        yield stack.store_url
    finally:
        stack.stop()


@pytest.fixture
def store() -> Iterator[Echo]:
    """A server that keeps what it gets."""
    echo = Echo()
    yield echo
    echo.close()


def http_connection(url: str) -> http.client.HTTPConnection:
    """A plain client that sends a target as it is given."""
    host, port = url.removeprefix("http://").split(":")
    return http.client.HTTPConnection(host, int(port), timeout=20)


def put_and_get(url: str, bucket: str) -> dict[str, tuple[int, bytes]]:
    """Put every odd key and get it again; return what came back."""
    connection = http_connection(url)
    found = {}
    for target, body in [("", b""), *((f"/{quote(key, safe='/')}", key.encode()) for key in ODD)]:
        connection.request("PUT", f"/{bucket}{target}", body, SIGNED)
        connection.getresponse().read()
    for key in ODD:
        connection.request("GET", f"/{bucket}/{quote(key, safe='/')}", headers=SIGNED)
        response = connection.getresponse()
        found[key] = (response.status, response.read())
    connection.close()
    return found


class TestForwarding:
    def test_odd_keys_are_exact_in_single_calls(self, moto: str, tmp_path: Path) -> None:
        """Every target reaches the store byte for byte: the answers are those that it gives directly."""
        with running(moto, tmp_path) as proxy:
            answers = {
                url: put_and_get(url, bucket) for url, bucket in ((moto, "direct"), (proxy.url, "odd"))
            }
            logged = proxy.requests("PutObject")

        assert answers[proxy.url] == answers[moto]
        assert sum(body == key.encode() for key, (_, body) in answers[moto].items()) > len(ODD) - 5
        assert [list(each.keys) for each in logged] == [[key] for key in ODD]
        assert [each.target for each in logged] == [f"/odd/{quote(key, safe='/')}" for key in ODD]

    def test_odd_keys_are_exact_in_batches(
        self, strict: S3Recorder, proxy: Running, deleter: BatchDeleter
    ) -> None:
        """Signatures over path and body stay valid, and every key goes, its siblings stay."""
        siblings = ["b", "x", "x/y", "a/b", "t", "ab"]
        put(strict, *ODD, *siblings)
        deleter.probe(BUCKET)

        result = delete(deleter, *ODD)

        assert kinds(result) == ["gone"] * len(ODD)
        assert sorted(strict.objects(BUCKET)) == sorted(siblings)
        sent = [(r.method, r.path, list(r.keys) or [k for k in [r.key] if k]) for r in strict.requests]
        logged = [(r.method, r.target.partition("?")[0], list(r.keys)) for r in proxy.requests()]
        assert sorted(sent) == sorted(logged)

    def test_a_request_arrives_as_it_was_sent(self, proxy: Running, store: Echo) -> None:
        """Target, header names in their case, values and body are the client's; the reply is the store's."""
        with running(store.url, proxy.file.parent / "echo") as echo:
            request = (
                b"POST //a/../b/./%2f%2F+?x=%20&y=a+b#no HTTP/1.1\r\nhOsT: some.where:1\r\n"
                b"x-AMZ-Meta-a: \xc3\xa9  b\r\nContent-Length: 3\r\nConnection: close\r\n\r\n\x00\xff\n"
            )
            reply = raw_exchange(echo.url, request)

        assert store.received == [request]
        assert reply == store.reply

    @pytest.mark.parametrize(
        "framing",
        [
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"Content-Length: 3\r\nContent-Length: 0\r\n\r\nabc",
            b"Content-Length: +3\r\n\r\nabc",
            b"no header\r\nContent-Length: 3\r\n\r\nabc",
        ],
    )
    def test_what_could_be_framed_in_two_ways_is_refused(
        self, proxy: Running, store: Echo, framing: bytes
    ) -> None:
        """A body that the store might end elsewhere never reaches it: the rest would be another request."""
        with running(store.url, proxy.file.parent / "echo") as echo:
            reply = raw_exchange(echo.url, b"PUT /b/k HTTP/1.1\r\nHost: h\r\n" + framing)

        assert reply.startswith(b"HTTP/1.1 400 ")
        assert store.received == []

    def test_a_request_that_is_cut_off_is_not_sent(self, proxy: Running, store: Echo) -> None:
        """Half a body is nobody's request."""
        with running(store.url, proxy.file.parent / "echo") as echo:
            host, port = echo.url.removeprefix("http://").split(":")
            with socket.create_connection((host, int(port)), timeout=10) as connection:
                connection.sendall(b"POST /b?delete HTTP/1.1\r\nContent-Length: 9\r\n\r\n<Del")
                connection.shutdown(socket.SHUT_WR)
                assert connection.recv(100) == b""

        assert store.received == []

    def test_a_batch_whose_keys_cannot_be_read(self, strict: S3Recorder, proxy: Running) -> None:
        """No rule could keep a key of it from the store, so that it is refused."""
        reply = urllib3.request("POST", f"{proxy.url}/bucket?delete", body=b"<Delete><Key>", retries=False)

        assert reply.status == 400
        assert strict.requests == []

    def test_connections_are_kept_and_requests_run_side_by_side(
        self, strict: S3Recorder, proxy: Running, deleter: BatchDeleter
    ) -> None:
        """One connection carries many requests; slow ones on others do not hold it up."""
        proxy.play('[[rule]]\nprefix = "slow"\nlatency_ms = 3000\n')
        began = time.monotonic()
        slow = [deleter.delete_all(BUCKET, [f"slow{number}"]) for number in range(3)]
        quick = [delete(deleter, f"quick{number}") for number in range(20)]
        for future in slow:
            future.result(30)

        assert time.monotonic() - began < 8  # three of them one after the other take nine seconds
        assert {kind for result in quick for kind in kinds(result)} == {"gone"}
        assert len({request.connection for request in proxy.requests()}) <= 4

    def test_a_client_that_waits_for_100_continue(self, strict: S3Recorder, proxy: Running) -> None:
        """A client that asks before it sends its body is told to continue."""
        head = b"PUT /bucket/k HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        host, port = proxy.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(head)
            first = connection.recv(100)
            connection.sendall(b"body")
            second = connection.recv(1000)

        assert first.startswith(b"HTTP/1.1 100 ")
        assert second.startswith(b"HTTP/1.1 403 ")  # unsigned, as the store says

    def test_what_is_no_http_is_refused(self, proxy: Running) -> None:
        """Bytes that are no request get a 400, and nothing reaches the store."""
        assert raw_exchange(proxy.url, b"hello\r\n\r\n").startswith(b"HTTP/1.1 400 ")
        assert proxy.requests() == []

    def test_a_store_that_is_away(self, tmp_path: Path) -> None:
        """A store that cannot be reached is a 502 that says so: nothing was sent."""
        with running("http://127.0.0.1:9", tmp_path) as proxy:
            reply = urllib3.request("GET", f"{proxy.url}/bucket", retries=False)

            assert reply.status == 502
            assert b"cannot be reached" in reply.data
            (logged,) = proxy.requests()
            assert (logged.forwarded, logged.status, logged.store_status) == (False, 502, None)

    def test_moto_takes_the_rest_too(
        self, moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The local stack's own store gets the shortened batch, also from a client with other credentials."""
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        with running(moto, tmp_path, '[[rule]]\nkey = "a"\nkey_error = "AccessDenied"\n') as proxy:
            urllib3.request("PUT", f"{moto}/rest")
            for key in "abc":
                urllib3.request("PUT", f"{moto}/rest/{key}", body=b"x")
            with BatchDeleter(StoreSettings(proxy.url)) as deleter:
                result = deleter.delete_all("rest", ["a", "b", "c"]).result(30)
                left = [key for key in "abc" if deleter.calls.exists("rest", key)]

        assert kinds(result) == ["final", "gone", "gone"]
        assert left == ["a"]
