"""HTTP/1.1 as it is read: a reply is whole or none, and what is left of one is never another's.

Each test has a real TCP connection of its own; what comes over it is written before it is read.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.storage.conftest import BUCKET
from tests.support.s3_recorder import S3Recorder

from sexton.storage import Ability, BatchDeleter, Delete, Kind
from sexton.storage.abilities import unprobed
from sexton.storage.channels import TcpChannel
from sexton.storage.http import Broken, Reply, ReplyReader, request_head

Read = Callable[..., Reply]
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
X27 = b"x" * 27
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def connected() -> Iterator[tuple[socket.socket, ReplyReader]]:
    """The store's end of a connection, and the reader of the other end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        channel = TcpChannel.connect("127.0.0.1", listener.getsockname()[1], time.monotonic() + 5)
        store, _ = listener.accept()
    with store:
        yield store, ReplyReader(channel)
    channel.close()


@pytest.fixture
def read(connected: tuple[socket.socket, ReplyReader]) -> Read:
    """Read the reply to one request from these bytes, at the end of which the connection is closed."""
    store, reader = connected

    def of(data: bytes, method: str = "POST", *, closes: bool = True) -> Reply:
        store.sendall(data)
        if closes:
            store.shutdown(socket.SHUT_WR)
        return reader.read(method, time.monotonic() + 5)

    return of


class TestWhole:
    @pytest.mark.parametrize(
        ("data", "body"),
        [
            (WHOLE, b"ok"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
            (b"HTTP/1.1 200\r\ncontent-length:2 \r\n\r\nok", b"ok"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", b"ok"),
            (CHUNKED + b"0\r\n\r\n", b""),
            (CHUNKED + b"2\r\nok\r\n0\r\n\r\n", b"ok"),
            (CHUNKED + b"1;a=b\r\no\r\n1 \r\nk\r\n00\r\nTrailer: x\r\nOther: y\r\n\r\n", b"ok"),
            (CHUNKED + b"A\r\n0123456789\r\n1b\r\n%b\r\n0\r\n\r\n" % X27, b"0123456789" + X27),
            (CHUNKED.replace(b"chunked", b"Chunked") + b"2\r\nok\r\n0\r\n\r\n", b"ok"),
        ],
    )
    def test_a_body_has_the_length_that_is_told(self, data: bytes, body: bytes, read: Read) -> None:
        """By its length or in chunks, with what HTTP allows around them; the connection stays of use."""
        reply = read(data, closes=False)

        assert (reply.status, reply.body, reply.reusable) == (200, body, True)

    @pytest.mark.parametrize("size", [1, 16_383, 16_384, 16_385, 100_000])
    @pytest.mark.parametrize("chunked", [False, True])
    def test_a_body_of_any_size(self, size: int, chunked: bool, read: Read) -> None:
        """Whether it comes with its head or in many pieces after it, every byte is there once."""
        body = bytes(i * i % 251 for i in range(size))
        plain = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
        head = CHUNKED + b"%x\r\n" % size if chunked else plain % size

        assert read(head + body + (b"\r\n0\r\n\r\n" if chunked else b"")).body == body

    def test_what_goes_on_to_the_end(self, read: Read) -> None:
        """Without a length the end of the connection is the end of the body, and of the connection's use."""
        reply = read(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 50_000)

        assert (reply.body, reply.reusable) == (b"x" * 50_000, False)

    @pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("DELETE", 204), ("GET", 304)])
    def test_what_has_no_body(self, method: str, status: int, read: Read) -> None:
        """The length in the answer to a HEAD is that of what a GET would bring: nothing of it comes."""
        reply = read(b"HTTP/1.1 %d OK\r\nContent-Length: 5\r\n\r\n" % status, method, closes=False)

        assert (reply.status, reply.body, reply.reusable) == (status, b"", True)
        assert reply.headers == {"content-length": "5"}

    @pytest.mark.parametrize(
        ("head", "reusable"),
        [
            (b"HTTP/1.1 200 OK\r\n", True),
            (b"HTTP/1.0 200 OK\r\n", False),
            (b"HTTP/1.1 200 OK\r\nConnection: Close\r\n", False),
            (b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nConnection: close\r\n", False),
        ],
    )
    def test_a_connection_is_kept_only_where_the_store_keeps_it(
        self, head: bytes, reusable: bool, read: Read
    ) -> None:
        """HTTP/1.0, and whoever says `close`, hang up after the reply: nothing more is sent there."""
        assert read(head + b"Content-Length: 2\r\n\r\nok", closes=False).reusable is reusable

    @pytest.mark.parametrize("at", [1, 7, 8, *range(34, 42)])
    def test_a_head_in_two_pieces(self, at: int, connected: tuple[socket.socket, ReplyReader]) -> None:
        """Wherever it is cut on its way, its end is found."""
        store, reader = connected
        store.sendall(WHOLE[:at])
        rest = threading.Timer(0.02, store.sendall, [WHOLE[at:]])
        rest.start()
        reply = reader.read("GET", time.monotonic() + 5)
        rest.join()

        assert (reply.status, reply.body) == (200, b"ok")

    def test_interim_answers_are_passed_over(self, read: Read) -> None:
        """A `100 Continue` is no answer to the request, nor are its headers those of the answer."""
        interim = b"HTTP/1.1 100 Continue\r\nContent-Length: 9\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n"
        reply = read(interim + WHOLE, closes=False)

        assert (reply.status, reply.body, reply.headers) == (200, b"ok", {"content-length": "2"})


class TestTorn:
    @pytest.mark.parametrize(
        "data",
        [
            WHOLE[:-1],
            WHOLE[:30],
            b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n" + b"x" * 19_999,
            CHUNKED,
            CHUNKED + b"2\r\no",
            CHUNKED + b"2\r\nok\r\n",
            CHUNKED + b"2\r\nok\r\n0\r\n",
            CHUNKED + b"2\r\nok\r\n0\r\nTrailer: x\r\n",
            CHUNKED + b"2\r\nokay\r\n0\r\n\r\n",
            CHUNKED + b"\r\nok\r\n0\r\n\r\n",
            CHUNKED + b"2x\r\nok\r\n0\r\n\r\n",
            CHUNKED + b"-2\r\nok\r\n0\r\n\r\n",
            CHUNKED + b"0x2\r\nok\r\n0\r\n\r\n",
            CHUNKED + b"1" * 5000,
            CHUNKED[:-2] + b"Content-Length: 12\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 1\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nContent-Length\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA: b\r\n Content-Length: 2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\n: x\r\nContent-Length: 2\r\n\r\nok",
            b"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nok",
            b"HTTP/1.1 600 OK\r\nContent-Length: 2\r\n\r\nok",
            b"HTTP/1.1  200 OK\r\nContent-Length: 2\r\n\r\nok",
            b"HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nok",
            b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
            b"ICY 200 OK\r\nContent-Length: 2\r\n\r\nok",
            b"HTTP/1.1 100 Continue\r\n\r\n" * 8 + WHOLE,
            b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000 + b"\r\nContent-Length: 2\r\n\r\nok",
        ],
        ids=lambda data: repr(data[-60:]),
    )
    def test_what_can_be_read_in_two_ways_is_no_reply(self, data: bytes, read: Read) -> None:
        """Cut short, longer than it says, or with a head that another reader takes otherwise: it is torn."""
        with pytest.raises(Broken) as caught:
            read(data)

        assert caught.value.code == "TornReply"

    def test_nothing_at_all_is_no_answer(self, read: Read) -> None:
        """Who hangs up without a byte may have read the request."""
        with pytest.raises(Broken, match="without an answer") as caught:
            read(b"")

        assert (type(caught.value), caught.value.code) == (Broken, "ConnectionBroken")

    @pytest.mark.parametrize(
        "data",
        [
            CHUNKED + b"%x\r\n" % (33 * 1024 * 1024),
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (33 * 1024 * 1024),
        ],
    )
    def test_a_reply_of_more_than_anybody_needs_is_not_waited_for(self, data: bytes, read: Read) -> None:
        """Its length says so before any of it is held."""
        with pytest.raises(Broken, match="a reply of more than"):
            read(data, closes=False)


class TestAfterwards:
    @pytest.mark.parametrize("reply", [WHOLE, CHUNKED + b"2\r\nok\r\n0\r\n\r\n"])
    def test_bytes_after_a_reply_end_the_use_of_a_connection(self, reply: bytes, read: Read) -> None:
        """Nobody has asked for them: as the start of the next reply they would tell of another request."""
        found = read(reply + b"H", closes=False)

        assert (found.body, found.reusable) == (b"ok", False)

    def test_replies_one_after_the_other(self, connected: tuple[socket.socket, ReplyReader]) -> None:
        """Each is read to its end and no further."""
        store, reader = connected
        for body in (b"one", b"", b"three" * 10_000):
            store.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

            assert reader.read("GET", time.monotonic() + 5).body == body
            assert reader.is_quiet()

    @pytest.mark.parametrize(("status", "more"), [(200, b"\x15"), (200, b"HTTP/1.1 200 OK\r\n\r\n")])
    def test_behind_the_answer_of_a_proxy_nothing_has_come(
        self, status: int, more: bytes, connected: tuple[socket.socket, ReplyReader]
    ) -> None:
        """What stands there before TLS has begun is no outcome of the store."""
        store, reader = connected
        store.sendall(b"HTTP/1.1 %d Connection established\r\n\r\n%b" % (status, more))

        with pytest.raises(Broken, match="of nobody"):
            reader.read_tunnel(time.monotonic() + 5)

    def test_a_proxy_that_refuses_may_say_why(self, connected: tuple[socket.socket, ReplyReader]) -> None:
        """The page behind its status is nobody's harm."""
        store, reader = connected
        store.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\npage")

        assert reader.read_tunnel(time.monotonic() + 5) == 502


class TestRequests:
    @pytest.mark.parametrize("bad", ["\r", "\n", "\r\n", "\0"])
    def test_no_text_ends_its_line(self, bad: str) -> None:
        """What stands in a target or a header cannot become a header of its own."""
        for method, target, headers in (
            ("GET", f"/a{bad}b", {"Host": "h"}),
            ("GET", "/a", {"Host": f"h{bad}X: y"}),
            ("GET", "/a", {f"Ho{bad}st": "h"}),
            (f"GET{bad}", "/a", {}),
        ):
            with pytest.raises(ValueError, match="line break"):
                request_head(method, target, headers)

    def test_a_condition_with_a_line_break_is_not_sent(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """An ETag that would add a header to its request is refused before a byte is sent."""
        s3.create_bucket(BUCKET, {"a\x01": b"x"})
        deleter.learn(replace(unprobed(BUCKET, is_aws=True), single_condition=Ability.YES))
        odd = Delete("a\x01", etag="x\r\nx-amz-bypass-governance-retention: true")
        state = deleter.delete_all(BUCKET, [odd]).result(10).state(0)

        assert state.kind is not Kind.GONE
        assert "nothing was sent" in state.message
        assert (s3.singles(), set(s3.objects(BUCKET))) == ([], {"a\x01"})
