"""What a service sees of an issuer that does not answer."""

from __future__ import annotations

import socket
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.support.raw_server import Speak, raw_server

from sexton.producers import Sexton
from sexton.schemas.errors import IssuerUnavailable

_NOTHING = {"SEXTON_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}


def _hang_up(connection: socket.socket) -> None:
    connection.recv(65536)


def _stutter(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nno answer")


def _not_ready(connection: socket.socket) -> None:
    connection.recv(65536)
    body = b'{"type": "not-ready", "title": "not ready", "status": 503, "detail": "the log is being read"}'
    connection.sendall(b"HTTP/1.1 503 Busy\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))


@contextmanager
def _issuer(speak: Speak | None) -> Iterator[str]:
    """Listen as an issuer that answers every connection in one way; without one nobody listens."""
    if speak is None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        yield f"http://127.0.0.1:{port}"
        return
    with raw_server(speak) as url:
        yield url


@pytest.mark.parametrize("speak", [None, _hang_up, _stutter, _not_ready])
@pytest.mark.parametrize("call", ["attach", "re_attach", "promise_delete_prefix"])
def test_an_issuer_that_does_not_answer_is_one_error(
    speak: Speak | None, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One typed error with a hint is printed, without the HTTP library's own and without a private class."""
    for name, value in _NOTHING.items():
        monkeypatch.setenv(name, value)
    begun = time.monotonic()
    with _issuer(speak) as url:
        sexton = Sexton.connect(node="node-7", issuer_url=url, issuer_timeout_s=0.5)
        with pytest.raises(IssuerUnavailable) as caught:
            _ask(sexton, call)
        sexton.close(0)

    printed = "".join(traceback.format_exception(caught.value))
    assert type(caught.value) is IssuerUnavailable
    assert printed.count("Traceback") == 1
    assert "httpx" not in printed.splitlines()[-1]
    assert caught.value.hint
    assert time.monotonic() - begun < 10


def _ask(sexton: Sexton, call: str) -> None:
    match call:
        case "attach":
            sexton.attach("tenant-42")
        case "re_attach":
            sexton.re_attach()
        case _:
            sexton.promise_delete_prefix(
                "bucket", "tenants/42/", operation="drop", tenant="tenant-42", drop=True
            )
