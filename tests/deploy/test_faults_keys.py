"""Faults of single keys inside a 200, and requests and keys above a rate, over real HTTP."""

from __future__ import annotations

import pytest
from tests.support.proxied import BUCKET, delete, kinds, put, states
from tests.support.s3_recorder import S3Recorder

from sexton.deploy.local.faults import Running
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
        """X-5: the reply names one of two keys and an unexpected key."""
        put(strict, "a", "b")
        proxy.play('[[rule]]\nkey = "a"\nstranger = "<who>"\n')

        assert kinds(delete(deleter, "a", "b"))[0] == "unaccounted"
        assert list(strict.objects(BUCKET)) == ["a"]


class TestThrottling:
    def test_requests_above_the_rate(self, proxy: Running, deleter: BatchDeleter) -> None:
        """A prefix takes its burst and refuses more with SlowDown; another prefix continues."""
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
