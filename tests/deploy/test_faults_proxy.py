"""The proxy over real HTTP, before moto and before the strict recorder."""

from __future__ import annotations

import http.client
import io
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import urllib3
from tests.support.s3_recorder import S3Recorder

from sexton.deploy.local import LocalStack
from sexton.deploy.local.faults import Running, running
from sexton.storage import BatchDeleter, BatchResult, KeyState, Kind, NoReply, StoreSettings

BUCKET = "bucket"
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
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Recorder]:
    """A store that checks signatures and checksums; its credentials are in the environment."""
    with S3Recorder() as recorder:
        for name, value in recorder.environ.items():
            monkeypatch.setenv(name, value)
        recorder.create_bucket(BUCKET)
        yield recorder


@pytest.fixture
def proxy(strict: S3Recorder, tmp_path: Path) -> Iterator[Running]:
    """A proxy before the strict store that plays nothing yet."""
    with running(strict.url, tmp_path / "faults") as started:
        yield started


@pytest.fixture
def deleter(proxy: Running) -> Iterator[BatchDeleter]:
    """A client of the proxy."""
    with BatchDeleter(StoreSettings(proxy.url, requests_in_flight=4, read_timeout_s=20)) as opened:
        yield opened


def kinds(result: BatchResult) -> list[str]:
    """The kind of each key's state, in order."""
    return [str(state.kind) for state in states(result)]


def states(result: BatchResult) -> list[KeyState]:
    """The state of each key, in order."""
    return [result.state(index) for index in range(result.count)]


def put(strict: S3Recorder, *keys: str) -> None:
    """Put objects into the strict store."""
    strict.buckets.fill(BUCKET, dict.fromkeys(keys, b"data"))


def delete(deleter: BatchDeleter, *keys: str) -> BatchResult:
    """Delete keys in one batch."""
    return deleter.delete_all(BUCKET, list(keys)).result(30)


def raw_exchange(url: str, request: bytes) -> bytes:
    """Send bytes and return everything that comes back until the other side ends it."""
    address = url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=20) as connection:
        connection.sendall(request)
        received = b""
        while part := connection.recv(65_536):
            received += part
    return received


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

    def test_chunked_bodies_stay_chunked(self, proxy: Running, store: Echo) -> None:
        """A chunked request is one for the store too, and its trailers follow it."""
        request = (
            b"PUT /b/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
            b"3\r\nabc\r\n2\r\nde\r\n0\r\nx-sum: 7\r\n\r\n"
        )
        with running(store.url, proxy.file.parent / "echo") as echo:
            raw_exchange(echo.url, request)

        assert store.received == [request.replace(b"3\r\nabc\r\n2\r\nde\r\n", b"5\r\nabcde\r\n")]

    def test_connections_are_kept_and_requests_run_side_by_side(
        self, strict: S3Recorder, proxy: Running, deleter: BatchDeleter
    ) -> None:
        """One connection carries many requests; slow ones on others do not hold it up."""
        proxy.play('[[rule]]\nprefix = "slow"\nlatency_ms = 600\n')
        began = time.monotonic()
        slow = [deleter.delete_all(BUCKET, [f"slow{number}"]) for number in range(3)]
        quick = [delete(deleter, f"quick{number}") for number in range(20)]
        for future in slow:
            future.result(30)

        assert time.monotonic() - began < 1.5
        assert {kind for result in quick for kind in kinds(result)} == {"gone"}
        assert len({request.connection for request in proxy.requests()}) <= 4
        assert len(strict.connections()) <= 4

    def test_a_client_that_waits_for_100_continue(self, strict: S3Recorder, proxy: Running) -> None:
        """A client that asks before it sends its body is told to go on."""
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


class TestWholeRequests:
    @pytest.mark.parametrize(
        ("code", "status", "kind", "error_class"),
        [
            ("SlowDown", 503, "bucket", "c"),
            ("NoSuchBucket", 404, "bucket", "c"),
            ("AccessDenied", 403, "bucket", "c"),
            ("RequestTimeTooSkewed", 403, "environment", "c"),
            ("ExpiredToken", 400, "environment", "c"),
            ("InternalError", 500, "unknown", "d"),
        ],
    )
    def test_errors(
        self, strict: S3Recorder, proxy: Running, deleter: BatchDeleter, code: str, status: int,
        kind: str, error_class: str,
    ) -> None:  # fmt: skip
        """A whole error plays so many times and nothing reaches the store; then all is well."""
        put(strict, "a")
        proxy.play(f'[[rule]]\nname = "trouble"\nerror = "{code}"\ntimes = 2\nretry_after = 7\n')

        failed = [delete(deleter, "a") for _ in range(2)]
        assert strict.requests == []
        fine = delete(deleter, "a")

        assert [kinds(result) for result in (*failed, fine)] == [[kind], [kind], ["gone"]]
        assert {state.code for result in failed for state in states(result)} == {code}
        logged = proxy.requests()
        assert [(r.status, r.store_status, r.forwarded) for r in logged] == [
            (status, None, False), (status, None, False), (200, 200, True),
        ]  # fmt: skip
        assert [(p.rule, p.what) for p in logged[0].played] == [("trouble", f"error {status} {code}")]
        assert logged[2].played == ()

    def test_retry_after_is_a_header(self, proxy: Running) -> None:
        """An error brings `Retry-After` when it is asked for, and an S3 document; HEAD has no body."""
        proxy.play('[[rule]]\nerror = "SlowDown"\nretry_after = 7\nmessage = "<not> now"\n')

        reply = urllib3.request("POST", f"{proxy.url}/bucket?delete", body=b"<Delete/>", retries=False)
        head = urllib3.request("HEAD", f"{proxy.url}/bucket/key", retries=False)

        assert (reply.status, reply.headers["Retry-After"]) == (503, "7")
        assert b"<Code>SlowDown</Code><Message>&lt;not&gt; now</Message>" in reply.data
        assert (head.status, head.data) == (503, b"")

    def test_an_error_after_the_store_has_acted(
        self, strict: S3Recorder, proxy: Running, deleter: BatchDeleter
    ) -> None:
        """With `when = "after"` the object is gone and the answer is an error all the same."""
        put(strict, "a")
        proxy.play('[[rule]]\nerror = "InternalError"\nwhen = "after"\n')

        assert kinds(delete(deleter, "a")) == ["unknown"]
        assert strict.objects(BUCKET) == {}
        (logged,) = proxy.requests()
        assert (logged.status, logged.store_status, logged.forwarded) == (500, 200, True)

    def test_an_empty_200(self, strict: S3Recorder, proxy: Running, deleter: BatchDeleter) -> None:
        """A 200 without a body says nothing of any key."""
        put(strict, "a")
        proxy.play("[[rule]]\nempty = true\n")

        assert kinds(delete(deleter, "a")) == ["unaccounted"]
        assert list(strict.objects(BUCKET)) == ["a"]

    @pytest.mark.parametrize(("when", "left"), [("before", ["a"]), ("after", [])])
    def test_a_cut_connection(
        self, strict: S3Recorder, proxy: Running, deleter: BatchDeleter, when: str, left: list[str]
    ) -> None:
        """The connection ends without an answer, before or after the store has acted; the log tells which."""
        put(strict, "a")
        proxy.play(f'[[rule]]\ncut = true\nwhen = "{when}"\ntimes = 1\n')

        result = delete(deleter, "a")

        assert (kinds(result), result.state(0).code) == (["unknown"], "ConnectionBroken")
        assert list(strict.objects(BUCKET)) == left
        (logged,) = proxy.requests()
        assert (logged.status, logged.forwarded) == (None, when == "after")
        assert kinds(delete(deleter, "a")) == ["gone"]

    def test_a_torn_reply(self, strict: S3Recorder, proxy: Running, deleter: BatchDeleter) -> None:
        """The reply ends in the middle of its body; the store has acted."""
        put(strict, "a")
        proxy.play("[[rule]]\ntorn_after = 30\n")

        result = delete(deleter, "a")

        assert (kinds(result), result.state(0).code) == (["unknown"], "TornReply")
        assert strict.objects(BUCKET) == {}

    def test_a_late_answer(self, strict: S3Recorder, proxy: Running) -> None:
        """An answer that comes after the client has given up: the delete took place all the same."""
        put(strict, "a")
        proxy.play('[[rule]]\nlatency_ms = 1500\nwhen = "after"\ntimes = 1\n')

        with BatchDeleter(StoreSettings(proxy.url, read_timeout_s=0.5)) as impatient:
            result = delete(impatient, "a")

        assert (kinds(result), result.state(0).code) == (["unknown"], "ReadTimeout")
        assert strict.objects(BUCKET) == {}
        wait_for(lambda: len(proxy.requests()) == 1)
        assert proxy.requests()[0].ms >= 1500

    def test_latency_before_and_its_jitter(self, proxy: Running, deleter: BatchDeleter) -> None:
        """A wait is at least what was asked for, and at most the jitter longer; the log has it."""
        proxy.play("[[rule]]\nlatency_ms = 100\njitter_ms = 100\n")

        for _ in range(3):
            assert kinds(delete(deleter, "a")) == ["gone"]

        waits = [request.ms for request in proxy.requests()]
        assert all(100 <= wait < 600 for wait in waits)
        assert len(set(waits)) == 3

    def test_only_what_matches(self, proxy: Running, deleter: BatchDeleter) -> None:
        """Rules go by bucket, operation and key; everything else passes."""
        proxy.play('[[rule]]\nbucket = "other"\ncut = true\n[[rule]]\noperation = "HeadObject"\ncut = true\n')

        assert kinds(delete(deleter, "a")) == ["gone"]
        with pytest.raises(NoReply):
            deleter.calls.head(BUCKET, "a")


class TestKeys:
    def test_x_4_errors_inside_a_200(self, strict: S3Recorder, proxy: Running, deleter: BatchDeleter) -> None:
        """X-4: three keys fail once and one for good inside a 200; the other keys are really deleted."""
        keys = [f"k{number}" for number in range(10)]
        put(strict, *keys)
        proxy.play(
            '[[rule]]\nkey = ["k3", "k5", "k7"]\nkey_error = "InternalError"\ntimes = 1\n'
            '[[rule]]\nkey = "k9"\nkey_error = "AccessDenied"\nmessage = "not <you>"\n'
        )

        first = delete(deleter, *keys)
        assert sorted(strict.objects(BUCKET)) == ["k3", "k5", "k7", "k9"]
        second = delete(deleter, "k3", "k5", "k7")

        assert [(s.code, s.message) for s in states(first) if s.kind is Kind.FINAL] == [
            ("AccessDenied", "not <you>")
        ]
        assert kinds(first).count("transient") == 3
        assert kinds(first).count("gone") == 6
        assert kinds(second) == ["gone"] * 3
        assert [request.keys for request in strict.deletes()] == [
            [key for key in keys if key not in ("k3", "k5", "k7", "k9")], ["k3", "k5", "k7"],
        ]  # fmt: skip
        assert [(p.what, list(p.keys)) for p in proxy.requests()[0].played] == [
            ("key error InternalError", ["k3", "k5", "k7"]), ("key error AccessDenied", ["k9"]),
        ]  # fmt: skip

    def test_all_keys_denied(self, strict: S3Recorder, proxy: Running, deleter: BatchDeleter) -> None:
        """When every key fails the store sees nothing of it."""
        put(strict, "a", "b\x01")
        proxy.play('[[rule]]\nkey_error = "AccessDenied"\n')

        assert kinds(delete(deleter, "a", "b\x01")) == ["final", "final"]
        assert strict.requests == []

    def test_an_error_about_a_key_that_is_gone(
        self, strict: S3Recorder, proxy: Running, deleter: BatchDeleter
    ) -> None:
        """With `when = "after"` a key is reported as failed though it was deleted."""
        put(strict, "a", "b")
        proxy.play('[[rule]]\nkey = "a"\nkey_error = "InternalError"\nwhen = "after"\n')

        assert kinds(delete(deleter, "a", "b")) == ["transient", "gone"]
        assert strict.objects(BUCKET) == {}

    @pytest.mark.parametrize(("when", "left"), [("before", ["a"]), ("after", [])])
    def test_a_key_that_is_left_out(
        self, strict: S3Recorder, proxy: Running, deleter: BatchDeleter, when: str, left: list[str]
    ) -> None:
        """The reply accounts for one of two keys; the other may be there or gone."""
        put(strict, "a", "b")
        proxy.play(f'[[rule]]\nkey = "a"\nleave_out = true\nwhen = "{when}"\n')

        assert kinds(delete(deleter, "a", "b")) == ["unaccounted", "gone"]
        assert list(strict.objects(BUCKET)) == left

    def test_x_5_a_stranger(self, strict: S3Recorder, proxy: Running, deleter: BatchDeleter) -> None:
        """X-5: the reply names one of two keys and a stranger."""
        put(strict, "a", "b")
        proxy.play('[[rule]]\nkey = "a"\nstranger = "<who>"\n')

        assert kinds(delete(deleter, "a", "b"))[0] == "unaccounted"
        assert list(strict.objects(BUCKET)) == ["a"]

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


class TestThrottling:
    def test_requests_above_the_rate(self, proxy: Running, deleter: BatchDeleter) -> None:
        """A prefix takes its burst and refuses more with SlowDown; another prefix goes on."""
        proxy.play("[[rule]]\nthrottle = {writes_per_s = 0.5, burst = 3, retry_after = 2}\n")

        states = [kinds(delete(deleter, *batch))[0] for batch in (["p/1", "p/2"], ["p/3", "p/4"], ["q/1"])]

        assert states == ["gone", "bucket", "gone"]
        assert [request.status for request in proxy.requests()] == [200, 503, 200]
        assert proxy.requests()[1].played[0].what == "throttle: error 503 SlowDown"

    def test_keys_above_the_rate(self, strict: S3Recorder, proxy: Running, deleter: BatchDeleter) -> None:
        """With `refuse = "key"` those that are too many fail inside a 200."""
        put(strict, "p/1", "p/2", "p/3")
        proxy.play('[[rule]]\nthrottle = {writes_per_s = 0.5, burst = 2, refuse = "key"}\n')

        assert kinds(delete(deleter, "p/1", "p/2", "p/3")) == ["gone", "gone", "transient"]
        assert list(strict.objects(BUCKET)) == ["p/3"]


class TestTheFile:
    def test_a_change_is_picked_up_at_once(self, proxy: Running, deleter: BatchDeleter) -> None:
        """A fault begins and ends with the file, without a restart."""
        states = []
        for text in ('[[rule]]\nerror = "SlowDown"\n', "", "[[rule]]\nempty = true\n"):
            proxy.play(text)
            states += kinds(delete(deleter, "a"))

        assert states == ["bucket", "gone", "unaccounted"]

    def test_a_bad_or_missing_file_changes_nothing(
        self, proxy: Running, deleter: BatchDeleter, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """Rules that cannot be played are told on stderr once, and those before them stay."""
        proxy.play('[[rule]]\nerror = "SlowDown"\n')
        states = kinds(delete(deleter, "a"))
        proxy.play("[[rule]]\nerrror = 'SlowDown'\n")
        states += kinds(delete(deleter, "a")) + kinds(delete(deleter, "a"))
        proxy.file.unlink()
        states += kinds(delete(deleter, "a"))

        told = capfd.readouterr().err
        assert states == ["bucket"] * 4
        assert told.count("unknown field: errror; the rules before it stay") == 1
        assert told.count("cannot be read") == 1


class Echo:
    """A server that keeps what it gets byte by byte and always answers the same."""

    reply = (
        b"HTTP/1.1 207 Some Thing\r\nX-Odd-NAME: a  b\r\ncontent-length: 5\r\n"
        b"Connection: close\r\n\r\n\x00\xffabc"
    )

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(0.3)
                got = io.BytesIO()
                try:
                    while part := connection.recv(65_536):
                        got.write(part)
                except TimeoutError:
                    pass
                self.received.append(got.getvalue())
                connection.sendall(self.reply)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)


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


def wait_for(happened: object, seconds: float = 10) -> None:
    """Return when a condition holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    while not happened():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)
