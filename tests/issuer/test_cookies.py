"""The issuer's client remembers nothing of a proxy before it, and shares its connections between threads."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from sexton.issuer.client import IssuerClient


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[str | None]]]:
    """Something that sets a cookie of a new name with every answer; what it was sent of them."""
    numbers, sent = itertools.count(), []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            sent.append(self.headers.get("Cookie"))
            self.send_response(200)
            self.send_header("Set-Cookie", f"balancer-{next(numbers)}=x; Path=/")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", sent
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.slow
def test_cookies_of_a_proxy_are_not_kept(proxy: tuple[str, list[str | None]]) -> None:
    """They would grow with each call, until the header is too large to be taken."""
    url, sent = proxy
    client = IssuerClient(url)
    for _ in range(200):
        assert client.ready()
    assert sent == [None] * 200
    (own,) = client._clients.values()
    assert len(own.cookies) == 0
    client.close()


def test_threads_that_call_at_once_share_one_connection_pool(proxy: tuple[str, list[str | None]]) -> None:
    """Of clients that were made side by side the first one stays, and the others are closed."""
    client, made = IssuerClient(proxy[0]), list[Any]()

    class Slow(httpx.Client):
        def __init__(self, **given: Any) -> None:
            time.sleep(0.05)
            super().__init__(**given)
            made.append(self)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(4) as pool:
        patch.setattr(httpx, "Client", Slow)
        assert all(pool.map(lambda _: client.ready(), range(4)))
    (own,) = client._clients.values()
    assert len(made) > 1
    assert [each for each in made if not each.is_closed] == [own]
    client.close()
