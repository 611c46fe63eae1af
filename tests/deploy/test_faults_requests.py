"""Faults of whole requests over real HTTP, and the file that they are read from."""

from __future__ import annotations

import pytest
import urllib3
from tests.support.proxied import BUCKET, Running, delete, kinds, put, raw_exchange, states
from tests.support.s3_recorder import S3Recorder
from tests.support.waits import until

from sexton.storage import BatchDeleter, NoReply, StoreSettings


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
        assert [(p.rule, p.what) for p in logged[0].played] == [("trouble", f"error = {code}")]
        assert logged[2].played == []

    def test_retry_after_is_a_header(self, proxy: Running) -> None:
        """An error brings `Retry-After` when it is asked for, and an S3 document; HEAD has no body."""
        proxy.play('[[rule]]\nerror = "SlowDown"\nretry_after = 7\nmessage = "<not> now"\n')

        reply = urllib3.request("POST", f"{proxy.url}/bucket?delete", body=b"<Delete/>", retries=False)
        head = urllib3.request("HEAD", f"{proxy.url}/bucket/key", retries=False)

        assert (reply.status, reply.headers["Retry-After"]) == (503, "7")
        assert b"<Code>SlowDown</Code><Message>&lt;not&gt; now</Message>" in reply.data
        assert (head.status, head.data) == (503, b"")
        assert raw_exchange(
            proxy.url, b"HEAD /bucket/key HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        ).endswith(b"\r\n\r\n")

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

    @pytest.mark.parametrize(("when", "left"), [("before", ["a"]), ("after", [])])
    def test_a_cut_connection(
        self, strict: S3Recorder, proxy: Running, deleter: BatchDeleter, when: str, left: list[str]
    ) -> None:
        """The connection ends without an answer, before or after the store has acted; the log says which."""
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
        proxy.play('[[rule]]\nlatency_ms = 800\nwhen = "after"\ntimes = 1\n')

        with BatchDeleter(StoreSettings(proxy.url, read_timeout_s=0.3)) as impatient:
            result = delete(impatient, "a")

        assert (kinds(result), result.state(0).code) == (["unknown"], "ReadTimeout")
        assert strict.objects(BUCKET) == {}
        until(lambda: len(proxy.requests()) == 1, 10)
        assert proxy.requests()[0].ms >= 800

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


class TestTheFile:
    def test_a_change_is_picked_up_at_once(self, proxy: Running, deleter: BatchDeleter) -> None:
        """A fault begins and ends with the file, without a restart."""
        states = []
        for text in ('[[rule]]\nerror = "SlowDown"\n', "", "[[rule]]\nleave_out = true\n"):
            proxy.play(text)
            states += kinds(delete(deleter, "a"))

        assert states == ["bucket", "gone", "unaccounted"]

    def test_a_bad_or_missing_file_changes_nothing(
        self, proxy: Running, deleter: BatchDeleter, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """Rules that cannot be played are reported on stderr once, and those before them stay."""
        proxy.play('[[rule]]\nerror = "SlowDown"\n')
        states = kinds(delete(deleter, "a"))
        proxy.play("[[rule]]\nerrror = 'SlowDown'\n")
        states += kinds(delete(deleter, "a")) + kinds(delete(deleter, "a"))
        proxy.file.unlink()
        states += kinds(delete(deleter, "a"))

        reported = capfd.readouterr().err
        assert states == ["bucket"] * 4
        assert reported.count("unknown field: errror; the rules before it stay") == 1
        assert reported.count("cannot be read") == 1
