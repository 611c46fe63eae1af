"""Replies that account for less than was sent, or for nothing, or never come: no key is taken for gone."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from tests.support.s3_recorder import Reply, S3Recorder

from sexton.storage import BatchDeleter, Effect, Kind, StoreSettings

MakeDeleter = Callable[[StoreSettings], BatchDeleter]


def entries(*keys: str) -> bytes:
    """Return a reply that reports these keys as deleted."""
    reported = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
    return f"<DeleteResult>{reported}</DeleteResult>".encode()


class TestUnclean:
    @pytest.mark.parametrize(
        ("reply", "codes"),
        [
            (Reply(200), ["EmptyReply"] * 3),
            (Reply(200, entries()), ["MissingFromReply"] * 3),
            (Reply(200, entries(" a", "b", "c")), ["NotAskedFor", "MissingFromReply", "NotAskedFor"]),
            (Reply(200, entries(" a", "a", "b", "c")), ["NotAskedFor"] * 3),
            (Reply(200, entries("a", "a", "b")), ["MissingFromReply", "AmbiguousReply", ""]),
            (Reply(200, entries("a", "b")), ["MissingFromReply", "AmbiguousReply", ""]),
            (Reply(200, entries(" a", "a", "b")[:-5]), ["NotADeleteResult"] * 3),
            (Reply(200, b"<html>a proxy's page</html>"), ["NotADeleteResult"] * 3),
            (Reply(200, b"<Error><Code>AccessDenied</Code></Error>"), ["AccessDenied"] * 3),
            (Reply(500, entries(" a", "a", "b")), [""] * 3),
        ],
    )
    def test_x_5_no_early_success(
        self, reply: Reply, codes: list[str], s3: S3Recorder, deleter: BatchDeleter
    ) -> None:
        """X-5: no key is gone for a reply that does not say so of it alone, and nothing is sent again.

        Here empty, short, with unexpected keys, with an echo folded, cut, not the store's, failed after its
        200.
        """
        s3.script(lambda _: reply)
        result = deleter.delete_all("bucket", [" a", "a", "b"]).result(10)

        assert [result.state(i).code for i in range(3)] == codes
        expected = {2} if "AmbiguousReply" in codes else set()
        assert {i for i in range(3) if result.state(i).kind is Kind.GONE} == expected
        assert (result.effect, len(s3.deletes())) == (Effect.UNKNOWN, 1)

    def test_a_torn_reply(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """A reply that ends before its Content-Length is no success although its keys are all there."""
        s3.script(lambda _: Reply(200, entries("a"), {"Content-Length": "4000", "Connection": "close"}))
        state = deleter.delete_all("bucket", ["a"]).result(10).state(0)

        assert (state.kind, state.code, state.effect_unknown) == (Kind.UNKNOWN, "TornReply", True)
        assert "broke off after 60 of 4000 bytes" in state.message


class TestNoReply:
    def test_nobody_listens(self, s3: S3Recorder, make_deleter: MakeDeleter) -> None:
        """A refused connection says so, and that nothing was sent."""
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
            state = make_deleter(StoreSettings(url)).delete_all("bucket", ["a"]).result(10).state(0)

        assert (state.code, state.effect) == ("EndpointUnreachable", Effect.NONE)
        assert "nothing was sent" in state.message
        assert url in state.message

    def test_a_late_answer(self, s3: S3Recorder, make_deleter: MakeDeleter) -> None:
        """A read timeout is an unknown effect: here the key is gone although no answer came."""
        s3.create_bucket("bucket", {"a": b"x"})
        s3.script(lambda _: Reply(200, delay_s=1.0, act_first=True))
        deleter = make_deleter(StoreSettings(s3.url, read_timeout_s=0.2))
        state = deleter.delete_all("bucket", ["a"]).result(10).state(0)

        assert (state.code, state.effect) == ("ReadTimeout", Effect.UNKNOWN)
        assert "within 0.2 s, effect unknown" in state.message
        assert s3.objects("bucket") == {}
        assert len(s3.deletes()) == 1

    def test_a_broken_connection(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """A connection that breaks before the answer is an unknown effect, and is not tried again."""
        s3.script(lambda _: Reply(drop=True, act_first=True))
        state = deleter.delete_all("bucket", ["a"]).result(10).state(0)

        assert (state.code, state.effect) == ("ConnectionBroken", Effect.UNKNOWN)
        assert "the connection broke, effect unknown" in state.message
        assert len(s3.deletes()) == 1
