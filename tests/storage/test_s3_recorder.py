"""The recorder is strict: what a client does wrongly is refused, as a store would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from tests.support.s3_recorder import S3Recorder

# Over TLS boto3 signs no body, and the recorder's own checks of it would not be seen.
pytestmark = pytest.mark.parametrize("s3", ["http"], indirect=True)


@pytest.fixture
def client(s3: S3Recorder) -> Any:
    """A plain boto3 client, so that the recorder is not judged by our own one."""
    config = Config(retries={"total_max_attempts": 1})
    s3.create_bucket("bucket", {"a": b"x", "b": b"y"})
    return boto3.session.Session().client("s3", endpoint_url=s3.url, region_name="us-east-1", config=config)


def tampered(client: Any, event: str, change: Callable[[Any], None]) -> str:
    """Return the code of the error that a batch is answered with after `change` has had the request."""

    def handler(request: Any = None, **_: Any) -> None:
        change(request)

    client.meta.events.register_last(f"{event}.s3.DeleteObjects", handler)
    with pytest.raises(ClientError) as caught:
        client.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": "a"}]})
    return str(caught.value.response["Error"]["Code"])


def set_header(name: str, value: str) -> Callable[[Any], None]:
    """Return a change that replaces one header."""

    def change(request: Any) -> None:
        if name in request.headers:
            del request.headers[name]
        request.headers[name] = value

    return change


def test_boto3_is_served(s3: S3Recorder, client: Any) -> None:
    """A plain boto3 client passes; Quiet, conditions and paging are understood."""
    listed = client.list_objects_v2(Bucket="bucket", MaxKeys=1)
    entries = [
        {"Key": "a", "ETag": '"wrong"'},
        {"Key": "b", "ETag": client.head_object(Bucket="bucket", Key="b")["ETag"]},
    ]
    reply = client.delete_objects(Bucket="bucket", Delete={"Objects": entries, "Quiet": True})

    assert (listed["IsTruncated"], [entry["Key"] for entry in listed["Contents"]]) == (True, ["a"])
    assert [(e["Key"], e["Code"]) for e in reply["Errors"]] == [("a", "PreconditionFailed")]
    assert "Deleted" not in reply
    assert s3.objects("bucket") == {"a": b"x"}
    assert s3.deletes()[-1].keys == ["a", "b"]


@pytest.mark.parametrize(
    ("event", "change", "code"),
    [
        ("before-sign", set_header("x-amz-checksum-crc32", "AAAAAA=="), "BadDigest"),
        ("before-sign", set_header("Content-MD5", "AAAAAAAAAAAAAAAAAAAAAA=="), "BadDigest"),
        ("before-send", set_header("x-amz-checksum-crc32", "AAAAAA=="), "SignatureDoesNotMatch"),
        ("before-send", set_header("x-amz-unsigned", "1"), "AccessDenied"),
        ("before-send", set_header("X-Amz-Date", "20200101T000000Z"), "RequestTimeTooSkewed"),
        ("before-send", set_header("Authorization", "Basic xyz"), "AccessDenied"),
    ],
)
def test_a_changed_request_is_refused(
    event: str, change: Callable[[Any], None], code: str, s3: S3Recorder, client: Any
) -> None:
    """A wrong checksum, a header changed or added after signing, an old date, no signature: refused."""
    assert tampered(client, event, change) == code
    assert set(s3.objects("bucket")) == {"a", "b"}


def test_a_changed_body_is_refused(s3: S3Recorder, client: Any) -> None:
    """A body that is not the signed one is refused."""

    def change(request: Any) -> None:
        request.body = request.body.replace(b"<Key>a<", b"<Key>b<")

    assert tampered(client, "before-send", change) == "XAmzContentSHA256Mismatch"
    assert set(s3.objects("bucket")) == {"a", "b"}


def test_a_batch_without_a_checksum_is_refused(client: Any) -> None:
    """Neither MD5 nor another checksum: refused as by the S3 API."""

    def change(request: Any) -> None:
        del request.headers["x-amz-checksum-crc32"]

    assert tampered(client, "before-sign", change) == "InvalidRequest"


@pytest.mark.parametrize("count", [0, 1001])
def test_a_batch_of_the_wrong_size_is_refused(count: int, s3: S3Recorder, client: Any) -> None:
    """An empty batch and one of 1001 keys are malformed."""
    with pytest.raises(ClientError, match="MalformedXML"):
        client.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": str(i)} for i in range(count)]})

    assert set(s3.objects("bucket")) == {"a", "b"}


def test_conditional_puts(client: Any) -> None:
    """If-None-Match and If-Match are enforced."""
    etag = client.head_object(Bucket="bucket", Key="a")["ETag"]
    for condition in ({"IfNoneMatch": "*"}, {"IfMatch": '"wrong"'}):
        with pytest.raises(ClientError, match="PreconditionFailed"):
            client.put_object(Bucket="bucket", Key="a", Body=b"z", **condition)
    client.put_object(Bucket="bucket", Key="a", Body=b"z", IfMatch=etag)
    client.delete_object(Bucket="bucket", Key="b")

    assert client.get_object(Bucket="bucket", Key="a")["Body"].read() == b"z"
