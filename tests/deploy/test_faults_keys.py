"""Faults of single keys inside a 200, and requests above a rate, over real HTTP."""

from __future__ import annotations

import pytest
import urllib3
from tests.support.proxied import BUCKET, Running, delete, kinds, put, states
from tests.support.s3_recorder import S3Recorder

from sexton.storage import BatchDeleter, Kind


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
            ("key_error = InternalError", ["k3", "k5", "k7"]), ("key_error = AccessDenied", ["k9"]),
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

    def test_x_5_an_unexpected_key(self, strict: S3Recorder, proxy: Running, deleter: BatchDeleter) -> None:
        """X-5: the reply names one of two keys and an unexpected key."""
        put(strict, "a", "b")
        proxy.play('[[rule]]\nkey = "a"\nunexpected_key = "<who>"\n')

        assert kinds(delete(deleter, "a", "b"))[0] == "unaccounted"
        assert list(strict.objects(BUCKET)) == ["a"]

    def test_odd_keys_of_the_rest_are_exact(
        self, strict: S3Recorder, proxy: Running, deleter: BatchDeleter
    ) -> None:
        """What is sent in place of a batch names the keys that are left, and no other: CR stays CR."""
        keys = ["a", "lone\rcr", "é&<>\"'", " sp ", "t\tn\nl"]
        put(strict, *keys, "lone\ncr")
        proxy.play('[[rule]]\nkey = "a"\nkey_error = "AccessDenied"\n')

        assert kinds(delete(deleter, *keys)) == ["final", "gone", "gone", "gone", "gone"]
        assert sorted(strict.objects(BUCKET)) == ["a", "lone\ncr"]

    def test_without_credentials_nothing_is_sent(
        self, strict: S3Recorder, proxy: Running, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A batch that has to be signed anew and cannot be gets a 502: no key of it reaches the store."""
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(proxy.file.with_suffix(".none")))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(proxy.file.with_suffix(".none")))
        proxy.play('[[rule]]\nkey = "a"\nkey_error = "AccessDenied"\n')

        body = b"<Delete><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>"
        reply = urllib3.request("POST", f"{proxy.url}/bucket?delete", body=body, retries=False)

        assert (reply.status, b"credentials" in reply.data) == (502, True)
        assert strict.requests == []
        assert proxy.requests()[0].forwarded is False


class TestThrottling:
    def test_requests_above_the_rate(self, strict: S3Recorder, proxy: Running, deleter: BatchDeleter) -> None:
        """A bucket takes its writes of a second and refuses more with SlowDown; other keys pass."""
        put(strict, "p/1", "p/2", "q/1")
        proxy.play('[[rule]]\nprefix = "p/"\nwrites_per_s = 0.1\nretry_after = 2\n')

        states = [kinds(delete(deleter, key))[0] for key in ("p/1", "p/2", "q/1")]

        assert states == ["gone", "bucket", "gone"]
        assert list(strict.objects(BUCKET)) == ["p/2"]
        assert [request.status for request in proxy.requests()] == [200, 503, 200]
        assert [played.what for played in proxy.requests()[1].played] == ["writes_per_s = 0.1"]

    def test_its_refusal_says_when_to_come_back(self, proxy: Running) -> None:
        """`retry_after` is the header of the 503, as a store sends it."""
        proxy.play("[[rule]]\nwrites_per_s = 0.1\nretry_after = 2\n")

        replies = [urllib3.request("PUT", f"{proxy.url}/bucket/a", retries=False) for _ in range(2)]

        assert (replies[1].status, replies[1].headers["Retry-After"]) == (503, "2")
        assert b"<Code>SlowDown</Code>" in replies[1].data
