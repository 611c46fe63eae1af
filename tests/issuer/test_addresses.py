"""A list of issuers: whoever answers will do, and nothing is counted twice where one is lost in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.support.issuing import serving

from sexton.deploy.local import Installation
from sexton.issuer.client import IssuerClient
from sexton.schemas.errors import InvalidSettings, IssuerUnavailable, RequestRefused, SextonError
from sexton.schemas.settings import load


@dataclass
class Door:
    """An address that answers as it was told, and counts who came."""

    status: int
    body: bytes
    hangs: threading.Event | None = None
    asked: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def open_door(status: int, body: bytes, *, hangs: bool = False) -> Iterator[Door]:
    """Run such an address; one that hangs answers when the test ends."""
    door = Door(status, body, threading.Event() if hangs else None)

    class Handler(BaseHTTPRequestHandler):
        def do_any(self) -> None:
            door.asked.append(self.path)
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if door.hangs is not None:
                door.hangs.wait(60)
            self.send_response(door.status)
            self.send_header("Content-Length", str(len(door.body)))
            self.end_headers()
            self.wfile.write(door.body)

        do_GET = do_POST = do_any  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    door.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield door
    finally:
        if door.hangs is not None:
            door.hangs.set()
        server.shutdown()
        server.server_close()


@contextmanager
def two(
    first: tuple[int, bytes], second: tuple[int, bytes], timeout_s: float = 10.0, *, hangs: bool = False
) -> Iterator[tuple[IssuerClient, Door, Door]]:
    """A client of two such addresses, the first of which may hang."""
    with open_door(*first, hangs=hangs) as one, open_door(*second) as other:
        issuer = IssuerClient(f"{one.url}, {other.url}/", timeout_s)
        try:
            yield issuer, one, other
        finally:
            issuer.close()


BUSY = (503, b'{"type": "log-unavailable", "detail": "later"}')
BROKEN = (503, b'{"type": "log-broken", "detail": "a person has to look"}')
PAGE = (502, b"<html>bad gateway</html>")
READY = (200, b"{}")


@pytest.mark.parametrize("first", [BUSY, BROKEN, PAGE], ids=["cannot now", "broken", "a proxy's page"])
def test_d_4_the_next_one_is_asked_where_the_first_does_not_answer(first: tuple[int, bytes]) -> None:
    """D-4: a read goes on to the next address at once, and the client stays there."""
    with two(first, READY) as (issuer, one, other):
        assert [issuer.ready() for _ in range(3)] == [True] * 3

    assert (one.asked, other.asked) == (["/readyz"], ["/readyz"] * 3)


def test_d_4_an_address_where_nobody_listens_is_passed_over() -> None:
    """D-4: connection refused is no answer."""
    with open_door(*READY) as gone:
        nowhere = gone.url
    with open_door(*READY) as other, IssuerClient(f"{nowhere},{other.url}") as issuer:
        assert issuer.ready()


def test_d_4_one_that_hangs_leaves_time_for_the_others() -> None:
    """D-4: of the time that a call may take each address has its share."""
    with two(READY, READY, 6.0, hangs=True) as (issuer, one, other):
        assert issuer.ready()
        assert (len(one.asked), len(other.asked)) == (1, 1)


@pytest.mark.parametrize(
    ("said", "tries"), [(BUSY, 2), (BROKEN, 1), (PAGE, 1)], ids=["cannot now", "broken", "a proxy's page"]
)
def test_where_none_answers_the_last_one_s_word_is_raised(said: tuple[int, bytes], tries: int) -> None:
    """A change is tried while there is time, unless all have said what they will say again."""
    with two(said, said, 1.5) as (issuer, one, other), pytest.raises(IssuerUnavailable):
        issuer.attach("n", "t")

    assert len(one.asked) >= tries
    if tries == 1:
        assert (len(one.asked), len(other.asked)) == (1, 1)


def test_a_no_is_an_answer() -> None:
    """What one issuer refuses is not asked of the next: they serve one log."""
    refusal = (409, b'{"type": "tenant-dropped", "detail": "gone"}')
    with two(refusal, READY) as (issuer, one, other), pytest.raises(RequestRefused):
        issuer.attach("n", "t")

    assert (len(one.asked), other.asked) == (1, [])


@pytest.mark.real
@pytest.mark.slow
def test_d_4_one_of_two_issuers_is_killed_while_numbers_are_handed_out(fresh: Installation) -> None:
    """D-4: calls go on at the other one; each gets a number of its own, and none is handed out twice."""
    got: list[int] = []
    failed: list[Exception] = []
    enough = threading.Event()

    def work(urls: str) -> None:
        with IssuerClient(urls, timeout_s=120) as issuer:
            for _ in range(30):
                try:
                    got.append(issuer.attach("node", "tenant").generation)
                except SextonError as error:
                    failed.append(error)
                if len(got) >= 20:
                    enough.set()

    with serving(fresh) as one, serving(fresh) as other:
        threads = [threading.Thread(target=work, args=(f"{one.url},{other.url}",)) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert enough.wait(120)
        one.process.kill()
        for thread in threads:
            thread.join()

    assert (failed, len(got), len(set(got))) == ([], 90, 90)


@pytest.mark.parametrize("value", ["http://one:1,ftp://two:2", "http://one:1,", "http://one:1, two:2"])
def test_each_address_of_the_list_is_checked(value: str) -> None:
    """A list with something that is no URL is refused at the start."""
    with pytest.raises(InvalidSettings, match="SEXTON_ISSUER_URL"):
        load({"SEXTON_ISSUER_URL": value})
    assert load({"SEXTON_ISSUER_URL": "http://one:1, https://two"}).issuer_url
