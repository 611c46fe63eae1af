"""P-9: a key as people write it by mistake is refused at emit, and named; who means it says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sexton.producers.testing import FakeSexton
from sexton.schemas.checks import check_likely
from sexton.schemas.errors import InvalidEvent

MISTAKES = {
    "s3://bucket/a/k": "a/k",
    "S3://bucket/k": "k",
    "s3a://bucket/k": "k",
    "gs://bucket/k": "k",
    "s3:/bucket/k": "k",
    "https://bucket.s3.amazonaws.com/k": "k",
    "file:///bucket/k": "bucket/k",
    "hdfs://host:9000/k": "k",
    "/k": "k",
    "//a/k": "a/k",
    "arn:aws:s3:::bucket/k": "k",
    "arn:aws-cn:s3:::bucket/a/k": "a/k",
}
FINE = ["k", "a/b", "s3/b/k", "a b://c", "x/s3://b/k", "a//b", "arn", "arn:x", "k:/", "C:/x", "é/k"]
CALLS: dict[str, Callable[..., Any]] = {
    "delete": lambda sexton, key, **more: sexton.attach("t").delete("bucket", ["a", key], **more),
    "replace_index": lambda sexton, key, **more: sexton.attach("t").replace_index(
        lambda: None, ["a", key], bucket="bucket", **more
    ),
    "promise_delete": lambda sexton, key, **more: sexton.promise_delete(
        "bucket", ["a", key], operation="drop", **more
    ),
    "a prefix": lambda sexton, key, **more: sexton.promise_delete_prefix(
        "bucket", f"{key}/", operation="drop", **more
    ),
    "a tombstone": lambda sexton, key, **more: sexton.promise_delete_prefix(
        "bucket", "p/", operation="drop", tombstone=key, **more
    ),
}


@pytest.mark.parametrize("key", MISTAKES)
@pytest.mark.parametrize("call", CALLS)
def test_p_9_a_key_that_is_hardly_one_is_refused_with_what_was_meant(call: str, key: str) -> None:
    """P-9: nothing is emitted, and the hint has the key that was probably meant."""
    with FakeSexton("node") as sexton:
        with pytest.raises(InvalidEvent, match=r"a key (is a|begins with a slash)") as refused:
            CALLS[call](sexton, key)

        assert f"give '{MISTAKES[key]}" in str(refused.value.hint)
        assert "any_key=True" in str(refused.value.hint)
        assert sexton.intents == []


@pytest.mark.parametrize("key", MISTAKES)
@pytest.mark.parametrize("call", CALLS)
def test_p_9_who_means_such_a_key_says_so(call: str, key: str) -> None:
    """P-9: by one call, or for a connection, whose single calls may still ask for the check."""
    with FakeSexton("node") as sexton:
        CALLS[call](sexton, key, any_key=True)
        assert len(sexton.intents) == 1
    with FakeSexton("node", any_key=True) as sexton:
        CALLS[call](sexton, key)
        assert len(sexton.intents) == 1
        with pytest.raises(InvalidEvent):
            CALLS[call](sexton, f"{key}2", any_key=False)


def test_p_9_other_keys_are_as_good_as_ever() -> None:
    """P-9: only what begins like a URI, an ARN or a path is held for one."""
    check_likely(FINE)
    check_likely([])
    with FakeSexton("node") as sexton:
        sexton.promise_delete("bucket", FINE, operation="drop")
        assert sexton.keys == FINE


def test_p_9_a_bucket_that_is_a_uri_is_told_from_a_bad_name() -> None:
    """P-9: the hint says what a bucket's name is."""
    with FakeSexton("node") as sexton:
        for bucket in ("s3://bucket", "bucket/folder", "s3://bucket/folder/"):
            with pytest.raises(InvalidEvent, match="not a bucket name") as refused:
                sexton.promise_delete(bucket, ["k"], operation="drop")
            assert "without a scheme" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("bucket", "hint"),
    [
        ("s3://logs", "give 'logs'"),
        ("S3A://logs/a/b", "give 'logs'"),
        ("gs://logs/", "give 'logs'"),
        ("https://s3.example/logs", "without a scheme"),
        ("logs/tenants/", "give 'logs'"),
        ("/logs", "without a scheme"),
        ("arn:aws:s3:::logs", "give 'logs'"),
        ("arn:aws:s3:::logs/a", "give 'logs'"),
        ("arn:aws:s3:eu-west-1:123456789012:accesspoint/mine", "access point's alias"),
        ("arn:aws:s3:eu-west-1:123456789012:accesspoint:mine", "access point's alias"),
        ("arn:aws:s3::123456789012:accesspoint/mfzwi23gnjvgw.mrap", "are not supported"),
        ("arn:aws:s3-object-lambda:eu-west-1:123456789012:accesspoint/l", "are not supported"),
        ("arn:aws:s3-outposts:eu-west-1:123456789012:outpost/op-1/accesspoint/a", "are not supported"),
        ("tenant:logs", "with credentials of that tenant, give 'logs'"),
        (":logs", "give 'logs'"),
        ("logs--use1-az4--x-s3", "a general purpose bucket"),
        ("ap--use1-az4--xa-s3", "a general purpose bucket"),
        ("b" * 256, "at most 255 characters"),
    ],
)
def test_p_10_what_can_never_be_a_bucket_is_refused_with_what_was_meant(bucket: str, hint: str) -> None:
    """P-10: at emit, before anything is written; nothing is left to a dead letter weeks later."""
    with FakeSexton("node") as sexton:
        with pytest.raises(InvalidEvent) as refused:
            sexton.promise_delete(bucket, ["k"], operation="drop")
        assert hint in str(refused.value.hint)
        assert sexton.intents == []


@pytest.mark.parametrize(
    "bucket", ["logs", "Upper_Case", "dotted.name", "10.0.0.1", "b" * 255, "mine-abcdefg-s3alias", "a--x"]
)
def test_p_10_whatever_some_store_may_have_is_a_bucket(bucket: str) -> None:
    """P-10: names that S3 had once, that other stores have, and aliases of access points."""
    with FakeSexton("node") as sexton:
        sexton.promise_delete(bucket, ["k"], operation="drop")
        assert len(sexton.intents) == 1


@pytest.mark.parametrize("bucket", ["", "..", "-a", "a b", "a\n", "é"])
def test_p_10_what_is_no_name_at_all_is_refused(bucket: str) -> None:
    """P-10: without a guess at what was meant."""
    with FakeSexton("node") as sexton, pytest.raises(InvalidEvent, match="not a bucket name") as refused:
        sexton.promise_delete(bucket, ["k"], operation="drop")
    assert refused.value.hint is None
