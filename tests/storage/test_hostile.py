"""Answers that trip a reader: each is one bucket's trouble, ends in time, and never in an exception."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest
from tests.support.certificates import server_context
from tests.support.raw_server import Speak, raw_server
from tests.support.s3_recorder import Reply, S3Recorder

from sexton.storage import BatchDeleter, Effect, Kind, NoReply, StoreSettings, batches

MakeDeleter = Callable[[StoreSettings], BatchDeleter]
SLOW = b"<Error><Code>SlowDown</Code></Error>"


@pytest.mark.parametrize(
    "wait",
    ["Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "Mon, 01 Jan 2027 00:00:00 +99999999999999", "9" * 400],
)
@pytest.mark.parametrize("key", ["a", "a\x01"], ids=["batch", "single"])
def test_an_impossible_retry_after(wait: str, key: str, s3: S3Recorder, deleter: BatchDeleter) -> None:
    """What is no time is no wait; the answer is read as any other."""
    s3.script(lambda _: Reply(503, SLOW, {"Retry-After": wait}))
    state = deleter.delete_all("bucket", [key]).result(10).state(0)

    assert state.code == "SlowDown"


@pytest.mark.parametrize(
    "encoding", ["EUC-JP", "Shift_JIS", "gb2312", "big5", "utf-7", "idna", "no-such-encoding"]
)
def test_a_page_in_an_encoding_that_nobody_reads(
    encoding: str, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """A proxy's page is no answer of the store, whatever it declares."""
    page = f'<?xml version="1.0" encoding="{encoding}"?><html>busy</html>'.encode()
    s3.script(lambda _: Reply(503, page))
    state = deleter.delete_all("bucket", ["a", "b"]).result(10).state(0)

    assert (state.kind, state.status) == (Kind.BUCKET, 503)


@pytest.mark.parametrize(
    "body",
    [
        b"<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>p/%FF</Key></Contents></ListBucketResult>",
        b"<ListBucketResult><Contents><Key>p/a</Key><Size>1.0</Size></Contents></ListBucketResult>",
        b"<ListBucketResult><Contents><Key>p/a</Key><Size>-1</Size></Contents></ListBucketResult>",
    ],
    ids=["no UTF-8", "a fraction", "negative"],
)
def test_a_listing_that_cannot_be_read(body: bytes, s3: S3Recorder, deleter: BatchDeleter) -> None:
    """It is no answer, of no effect: the bucket's, with the reason."""
    s3.script(lambda _: Reply(200, body))

    with pytest.raises(NoReply, match="in the reply") as caught:
        deleter.calls.list_slice("bucket", "p/")

    assert (caught.value.code, caught.value.effect_unknown) == ("UnreadableReply", False)


def test_a_code_of_any_length_is_cut(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """It becomes the reason of records, and a label of metrics."""
    code = "C" * 100_000
    for body in (
        f"<Error><Code>{code}</Code></Error>",
        f"<DeleteResult><Error><Key>a</Key><Code>{code}</Code></Error></DeleteResult>",
    ):
        s3.script(lambda _, body=body: Reply(200, body.encode()))  # type: ignore[misc]
        assert deleter.delete_all("bucket", ["a"]).result(10).state(0).code == code[:100]


def test_a_lone_key_that_a_proxy_refuses_is_no_dead_letter(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """X-10: without a code of the store nobody knows that it is about the key; with one it is."""
    s3.script(lambda _: Reply(400, b"<html>plain HTTP to a TLS port</html>"))
    unknown = deleter.delete_all("bucket", ["a"]).result(10).state(0)
    s3.script(lambda _: Reply(400, b"<Error><Code>InvalidArgument</Code></Error>"))
    known = deleter.delete_all("bucket", ["a"]).result(10).state(0)

    assert (unknown.kind, unknown.status) == (Kind.BUCKET, 400)
    assert (known.kind, known.code) == (Kind.FINAL, "InvalidArgument")


@pytest.mark.parametrize(("bucket", "kind"), [("bucket", Kind.TRANSIENT), ("missing", Kind.BUCKET)])
@pytest.mark.parametrize("status", [404, 301])
def test_a_lone_key_that_is_not_routed_holds_no_bucket(
    status: int, bucket: str, kind: Kind, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """X-13: a bare answer to a single call is about the bucket only if the bucket says so too."""
    s3.script(lambda request: Reply(status) if request.method == "DELETE" else None)
    result = deleter.delete_all(bucket, ["a\n"]).result(10)

    assert (result.state(0).kind, result.state(0).code) == (kind, str(status))
    assert (result.fault is None) == (kind is Kind.TRANSIENT)


def test_what_trips_our_own_reading_is_of_unknown_effect(
    s3: S3Recorder, deleter: BatchDeleter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """X-13: a fault of our own ends nobody else's work; it is logged, and the keys are verified."""

    def fails(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(batches, "_read", fails)
    s3.script(lambda _: Reply(200))
    state = deleter.delete_all("bucket", ["a"]).result(10).state(0)

    assert (state.kind, state.code, state.effect) == (Kind.UNKNOWN, "UnreadableReply", Effect.UNKNOWN)
    assert "a bug" in state.message
    assert "Traceback" in caplog.text


def dripping(*parts: bytes) -> Speak:
    """Answer with the first part, and then with the second byte by byte."""

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(parts[0])
        for byte in parts[1]:
            time.sleep(0.1)
            connection.sendall(bytes([byte]))

    return answer


@pytest.mark.parametrize(
    "parts",
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", b"x" * 500),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 100),
        (b"HTTP/1.1 200 OK\r\n", b"X-Header: x\r\n" * 50),
        (b"", b"HTTP/1.1 200 " + b"O" * 500),
    ],
    ids=["body", "chunks", "headers", "status line"],
)
@pytest.mark.parametrize("secure", [True, False], ids=["https", "http"])
def test_x_13_a_reply_that_drips_has_an_end(
    parts: tuple[bytes, bytes], secure: bool, make_deleter: MakeDeleter, s3: S3Recorder
) -> None:
    """X-13: an answer has to be whole within the read time-out, not only each piece of it."""
    with raw_server(dripping(*parts), server_context() if secure else None) as url:
        deleter = make_deleter(StoreSettings(url, connect_timeout_s=2, read_timeout_s=0.5))
        started = time.monotonic()
        state = deleter.delete_all("bucket", ["a"]).result(20).state(0)

    assert (state.code, state.effect) == ("ReadTimeout", Effect.UNKNOWN)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000000000000\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000000\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx",
    ],
)
def test_an_absurd_length(head: bytes, make_deleter: MakeDeleter, s3: S3Recorder) -> None:
    """Nothing is accepted of a reply whose length nobody can hold."""

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(head)

    with raw_server(answer) as url:
        deleter = make_deleter(StoreSettings(url, connect_timeout_s=2, read_timeout_s=2))
        result = deleter.delete_all("bucket", ["a"]).result(20)

    assert result.state(0).kind in (Kind.UNKNOWN, Kind.UNACCOUNTED)
    assert result.state(0).code in ("TornReply", "ConnectionBroken")
    assert result.effect is Effect.UNKNOWN


def test_an_endless_reply(make_deleter: MakeDeleter, s3: S3Recorder) -> None:
    """More than a DeleteResult of 1,000 keys could have is not read to its end."""

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"x" * 1_000_000)

    with raw_server(answer) as url:
        deleter = make_deleter(StoreSettings(url, connect_timeout_s=2, read_timeout_s=20))
        state = deleter.delete_all("bucket", ["a"]).result(30).state(0)

    assert (state.code, state.effect) == ("ConnectionBroken", Effect.UNKNOWN)
    assert "more than" in state.message
