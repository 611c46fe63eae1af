"""The one wire: connections that were idle, the fence, and replies that are cut, over TLS and plain HTTP."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.storage.conftest import one
from tests.support.certificates import server_context
from tests.support.raw_server import GONE, OK, Speak, raw_server, read_request
from tests.support.s3_recorder import Reply, S3Recorder

from sexton.schemas.errors import EnvironmentFault
from sexton.storage import BatchDeleter, Effect, Kind, StoreSettings
from sexton.storage import connection as connection_module

MakeDeleter = Callable[[StoreSettings], BatchDeleter]


class TestIdleConnections:
    @pytest.mark.parametrize("s3", ["https", "http"], indirect=True)
    def test_q_1_an_idle_connection_is_renewed(
        self,
        s3: S3Recorder,
        settings: StoreSettings,
        make_deleter: MakeDeleter,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Q-1: session tickets renew no connection, time does, and so does a store that hangs up."""
        deleter = make_deleter(replace(settings, requests_in_flight=1))
        for _ in range(3):
            assert one(deleter).kind is Kind.GONE
        assert len(s3.connections()) == 1
        s3.script(lambda _: Reply(200, GONE, {"Connection": "close"}))
        assert one(deleter).kind is Kind.GONE
        s3.script(None)
        assert one(deleter).kind is Kind.GONE
        assert len(s3.connections()) == 2
        monkeypatch.setattr(connection_module, "_IDLE_S", 0.0)
        assert one(deleter).kind is Kind.GONE

        assert len(s3.connections()) == 3

    @pytest.mark.parametrize("secure", [True, False], ids=["https", "http"])
    def test_q_1_what_nobody_asked_for_is_no_reply(
        self, secure: bool, make_deleter: MakeDeleter, s3: S3Recorder
    ) -> None:
        """Q-1: bytes that came while the connection was idle are not taken for the next answer."""
        extra = threading.Event()
        served: list[int] = []

        def answer(connection: socket.socket) -> None:
            served.append(len(served))
            read_request(connection)
            connection.sendall(OK % (len(GONE), GONE))
            if len(served) == 1:
                extra.wait(10)
                connection.sendall(OK % (len(GONE), GONE))
                extra.clear()
                extra.wait(0.3)

        with raw_server(answer, server_context() if secure else None) as url:
            deleter = make_deleter(StoreSettings(url, requests_in_flight=1))
            assert one(deleter).kind is Kind.GONE
            extra.set()
            time.sleep(0.2)
            assert one(deleter).kind is Kind.GONE

        assert served == [0, 1]

    def test_q_1_a_connection_that_was_reset_is_not_used(
        self, make_deleter: MakeDeleter, s3: S3Recorder
    ) -> None:
        """Q-1: a reset while it was idle is found before the next request, which takes another one."""
        served: list[int] = []

        def answer(connection: socket.socket) -> None:
            served.append(len(served))
            read_request(connection)
            connection.sendall(OK % (len(GONE), GONE))
            time.sleep(0.1)  # the reply is read before the reset takes it away
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        with raw_server(answer) as url:
            deleter = make_deleter(StoreSettings(url, requests_in_flight=1))
            assert one(deleter).kind is Kind.GONE
            time.sleep(0.3)
            assert one(deleter).kind is Kind.GONE

        assert served == [0, 1]

    def test_x_20_what_is_fenced_is_not_sent(self, make_deleter: MakeDeleter, s3: S3Recorder) -> None:
        """X-20: the fence is asked last, with the connection open; then not a byte of the request is sent."""
        opened = threading.Event()
        came: list[bytes] = []

        def listen(connection: socket.socket) -> None:
            opened.set()
            came.append(connection.recv(65536))

        def fence() -> None:
            raise EnvironmentFault(f"open: {opened.wait(5)}")

        with raw_server(listen) as url:
            deleter = make_deleter(StoreSettings(url, read_timeout_s=5))
            deleter.ask_first(fence)
            state = one(deleter)
            deleter.close()

        assert (state.code, state.effect) == ("Fenced", Effect.NONE)
        assert "open: True" in state.message
        assert came == [b""]


class TestCutReplies:
    def test_q_1_after_two_lengths_nothing_more_is_read(
        self, make_deleter: MakeDeleter, s3: S3Recorder
    ) -> None:
        """Q-1: a reply that can be read in two ways is none, and its connection carries no other request."""
        served: list[int] = []

        def answer(connection: socket.socket) -> None:
            served.append(len(served))
            read_request(connection)
            two = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: %d\r\n\r\n%b"
            connection.sendall((OK if served[1:] else two) % (len(GONE), GONE))
            connection.recv(1)

        with raw_server(answer) as url:
            deleter = make_deleter(StoreSettings(url, requests_in_flight=1, read_timeout_s=5))
            torn, whole = one(deleter), one(deleter)
            deleter.close()

        assert (torn.kind, torn.code, torn.effect) == (Kind.UNKNOWN, "TornReply", Effect.UNKNOWN)
        assert (whole.kind, served) == (Kind.GONE, [0, 1])

    def test_q_1_a_body_without_a_length_needs_the_end_of_tls(
        self, make_deleter: MakeDeleter, s3: S3Recorder
    ) -> None:
        """Q-1: where only the end says that a reply is whole, somebody on the way may have made the end."""
        ends: list[Speak] = []

        def answer(connection: socket.socket) -> None:
            read_request(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + GONE)
            if ends:
                assert isinstance(connection, ssl.SSLSocket)
                connection.unwrap()

        with raw_server(answer, server_context()) as url:
            deleter = make_deleter(StoreSettings(url, requests_in_flight=1))
            cut = one(deleter)
            ends.append(answer)
            whole = one(deleter)

        assert (cut.kind, cut.code, cut.effect) == (Kind.UNKNOWN, "TornReply", Effect.UNKNOWN)
        assert whole.kind is Kind.GONE

    @pytest.mark.parametrize("secure", [True, False], ids=["https", "http"])
    def test_q_1_an_early_refusal_counts(
        self, secure: bool, make_deleter: MakeDeleter, s3: S3Recorder
    ) -> None:
        """Q-1: a store that answers and hangs up before it has read the whole request has answered."""

        def answer(connection: socket.socket) -> None:
            connection.recv(1000)
            body = b"<Error><Code>SlowDown</Code></Error>"
            connection.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

        with raw_server(answer, server_context() if secure else None) as url:
            deleter = make_deleter(StoreSettings(url, requests_in_flight=1))
            keys = [f"{i:04d}" + "k" * 900 for i in range(1000)]
            state = deleter.delete_all("bucket", keys).result(20).state(0)

        assert state.code == "SlowDown"
