"""The bytes between two machines, plain and over TLS: all of them, once, in order, or an error in time."""

from __future__ import annotations

import gc
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from hashlib import sha256

import pytest
from tests.support.certificates import authority, server_context

from sexton.storage.channels import Channel, TcpChannel, TlsChannel, receive
from sexton.storage.trust import load_trust

Ends = tuple[Channel, socket.socket]


@pytest.fixture(params=["http", "https"])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    """A channel, and the other end of its connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        channel: Channel = TcpChannel.connect("127.0.0.1", listener.getsockname()[1], time.monotonic() + 5)
        other, _ = listener.accept()
    if request.param == "https":
        tls = TlsChannel(channel, load_trust({"AWS_CA_BUNDLE": str(authority().bundle)}).context, "127.0.0.1")
        shaking = threading.Thread(target=tls.handshake, args=(time.monotonic() + 5,))
        shaking.start()
        other = server_context().wrap_socket(other, server_side=True)
        shaking.join()
        channel = tls
    with other:
        yield channel, other
    channel.close()


def test_what_does_not_fit_at_once_is_sent_in_order(ends: Ends) -> None:
    """Parts of any size, also empty ones: while the other side is slow nothing is lost or sent twice."""
    channel, other = ends
    parts = [bytes([i]) * (1_500_000 + i) for i in range(4)]
    parts.insert(2, b"")
    came = bytearray()

    def take() -> None:
        time.sleep(0.1)
        while len(came) < sum(map(len, parts)):
            came.extend(other.recv(300_000))

    thread = threading.Thread(target=take)
    thread.start()
    channel.send(parts, time.monotonic() + 20)
    thread.join(20)

    # By their digests: the difference of megabytes is looked for longer than a test may take.
    assert sha256(came).digest() == sha256(b"".join(parts)).digest()


def _send(channel: Channel, deadline: float) -> None:
    channel.send((b"x" * 30_000_000,), deadline)


def _receive(channel: Channel, deadline: float) -> None:
    receive(channel, memoryview(bytearray(100)), deadline)


@pytest.mark.parametrize("act", [_send, _receive], ids=["send", "receive"])
@pytest.mark.parametrize("left", [0.2, -1.0])
def test_nothing_is_waited_for_longer_than_the_deadline(
    act: Callable[[Channel, float], None], left: float, ends: Ends
) -> None:
    """Whoever neither reads nor answers holds nobody up."""
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        act(ends[0], started + left)

    assert time.monotonic() - started < 10


def test_a_channel_that_nobody_closed_is_closed_when_it_is_thrown_away() -> None:
    """Also in a circle of objects, where Python would find the socket first and warn of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        circle: list[object] = [
            TcpChannel.connect("127.0.0.1", listener.getsockname()[1], time.monotonic() + 5)
        ]
        other, _ = listener.accept()
    circle.append(circle)
    del circle
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        gc.collect()

    assert [str(each.message) for each in warned] == []
    with other:
        assert other.recv(1) == b""
