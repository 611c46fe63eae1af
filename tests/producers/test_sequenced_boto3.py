"""Writers of sequenced metadata through boto3: its own retries, its errors, what is on the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.support.s3_api import error_reply
from tests.support.s3_recorder import Recorded, Reply, S3Recorder
from tests.support.sequenced import MANIFESTS, client_of, running_of

from sexton.producers import (
    BoundaryVanished,
    SequencedConflict,
    SequencedNotWritten,
    SequencedUnknown,
    SequencedWriter,
    UsageError,
    sequenced,
)

KEY = MANIFESTS.key(1)
DEAD = MANIFESTS.boundary_key


@pytest.fixture
def s3() -> Iterator[S3Recorder]:
    """A recorder with a bucket."""
    with S3Recorder(plain=True) as recorder:
        recorder.create_bucket("bucket")
        yield recorder


def _writer(s3: S3Recorder, attempts: int = 1) -> SequencedWriter:
    client = client_of(
        running_of(s3), retries={"total_max_attempts": attempts, "mode": "standard"}, read_timeout=5
    )
    return sequenced(client, "bucket", "db", "manifest")


def _once(method: str, reply: Reply) -> Callable[[Recorded], Reply | None]:
    left = [reply]
    return lambda request: left.pop() if request.method == method and left else None


LOST = Reply(drop=True, act_first=True)
BROKEN = Reply(500, b"<Error><Code>InternalError</Code></Error>", act_first=True)


@pytest.mark.parametrize("reply", [LOST, BROKEN], ids=["dropped", "500"])
@pytest.mark.parametrize("attempts", [1, 3])
def test_b_7_a_retry_of_the_client_makes_no_conflict_of_a_success(
    s3: S3Recorder, reply: Reply, attempts: int
) -> None:
    """B-7: the reply is lost; boto3 sends it again by itself, or not: the file is one's own."""
    s3.script(_once("PUT", reply))
    writer = _writer(s3, attempts)
    assert writer.create(1, b"body") == KEY
    puts = [request.status for request in s3.requests if request.method == "PUT"]
    assert puts == ([reply.status if not reply.drop else 0] if attempts == 1 else [puts[0], 412])


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_b_7_another_conditional_write_under_way_is_not_a_conflict_yet(s3: S3Recorder, code: str) -> None:
    """B-7: 409 is no effect that one could rely on: read back, put again."""
    s3.script(_once("PUT", error_reply(409, code, "busy")))
    assert _writer(s3).create(1, b"body") == KEY


@pytest.mark.parametrize(
    ("status", "code"), [(403, "AccessDenied"), (404, "NoSuchBucket"), (501, "NotImplemented")]
)
def test_what_a_store_refuses_at_once_is_not_written(s3: S3Recorder, status: int, code: str) -> None:
    """For sure: the client has sent it once."""
    s3.script(_once("PUT", error_reply(status, code, "no")))
    with pytest.raises(SequencedNotWritten, match=code) as caught:
        _writer(s3).create(1, b"body")
    assert isinstance(caught.value.__cause__, ClientError)


def test_a_refusal_at_the_second_try_of_the_client_proves_nothing(s3: S3Recorder) -> None:
    """The first try has landed: it is read back."""
    replies = [error_reply(403, "AccessDenied", "expired"), BROKEN]
    s3.script(lambda request: replies.pop() if request.method == "PUT" and replies else None)
    assert _writer(s3, 2).create(1, b"body") == KEY


@pytest.mark.parametrize(
    "reply",
    [error_reply(403, "AccessDenied", "no"), error_reply(404, "NoSuchBucket", "no"), Reply(drop=True),
     error_reply(503, "SlowDown", "no"), error_reply(404, "", "a proxy's own page")],
)  # fmt: skip
def test_a_boundary_that_a_store_does_not_tell_is_not_absent(s3: S3Recorder, reply: Reply) -> None:
    """Only NoSuchKey is: everything else is a check that was not made."""
    s3.script(lambda request: reply if request.method == "GET" else None)
    writer = _writer(s3)
    with pytest.raises(SequencedUnknown, match="the boundary could not be read"):
        writer.create(1, b"body")
    s3.script(None)
    assert writer.confirm() == KEY


def test_a_torn_boundary_is_not_read(s3: S3Recorder) -> None:
    """`12` of which `1` comes: the connection ends too early, and nothing is concluded."""
    s3.create_bucket("bucket", {DEAD: b"12"})
    torn = Reply(200, b"1", {"ETag": '"x"', "Content-Length": "2", "Connection": "close"})
    s3.script(_once("GET", torn))
    writer = _writer(s3)
    with pytest.raises(SequencedUnknown):
        writer.create(5, b"body")
    with pytest.raises(SequencedConflict):
        writer.confirm()


def test_the_boundary_is_asked_for_under_its_etag_each_time(s3: S3Recorder) -> None:
    """And not sent again while it is the same; no other cache stands between."""
    s3.create_bucket("bucket", {DEAD: b"3"})
    writer = _writer(s3)
    for id in (4, 5):
        writer.create(id, b"")
    reads = [request for request in s3.requests if request.method == "GET"]
    assert [(request.key, request.status) for request in reads] == [(DEAD, 200), (DEAD, 304)]
    assert "if-none-match" not in reads[0].headers
    assert "if-none-match" in reads[1].headers
    s3.buckets.of("bucket").delete(DEAD, None)
    with pytest.raises(BoundaryVanished):
        writer.create(6, b"")


def test_each_put_carries_its_condition_and_its_nonce(s3: S3Recorder) -> None:
    """A create without `If-None-Match: *` would write over another one's file."""
    writer = _writer(s3)
    writer.create(1, b"body")
    writer.create(2, b"body")
    puts = [request.headers for request in s3.requests if request.method == "PUT"]
    assert [headers["if-none-match"] for headers in puts] == ["*", "*"]
    nonces = [headers["x-amz-meta-sexton-nonce"] for headers in puts]
    assert len(set(nonces)) == 2
    assert all(len(nonce) == 32 for nonce in nonces)


def test_latest_reads_all_pages_from_the_boundary_on(s3: S3Recorder) -> None:
    """1,500 files, of which 1,200 are dead: the listing starts behind these."""
    bodies = {MANIFESTS.key(id): b"" for id in range(1, 1501)}
    s3.create_bucket("bucket", bodies)
    assert _writer(s3).latest() == (1500, MANIFESTS.key(1500))
    s3.buckets.fill("bucket", {DEAD: b"1200"})
    before = len(s3.requests)
    assert _writer(s3).latest() == (1500, MANIFESTS.key(1500))
    asked = s3.requests[before:]
    assert [request.query.get("start-after") for request in asked] == [None, MANIFESTS.key(1200)]


def test_a_boto3_without_conditional_writes_is_refused() -> None:
    """It would say so at the first create, as an unknown fate."""

    class Old:
        put_object = get_object = list_objects_v2 = None

        class meta:  # noqa: N801 - as clients have it
            class service_model:  # noqa: N801
                @staticmethod
                def operation_model(name: str) -> Any:
                    shape: Any = type("Shape", (), {"members": {}})
                    return type("Operation", (), {"input_shape": shape})

    with pytest.raises(UsageError, match="no conditional writes"):
        sequenced(Old(), "bucket", "db", "manifest")
