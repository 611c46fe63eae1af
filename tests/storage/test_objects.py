from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.s3_recorder import Reply, S3Recorder

from sexton.storage import BucketUnusable, NoReply, ObjectStore, StoreRefused, StoreSettings

ODD_KEYS = [
    "a/../b",
    "./b",
    "..",
    "/x",
    "x//y",
    "a%2Fb",
    "t#1",
    "a+b",
    "a b",
    "<&>\"'",
    " lead",
    "e\u0301",
    "é",
]


@pytest.fixture
def store(settings: StoreSettings) -> ObjectStore:
    """Single calls against the recorder."""
    return ObjectStore(settings)


class TestObjects:
    def test_put_get_exists(self, s3: S3Recorder, store: ObjectStore) -> None:
        """What was put under an odd key is found under exactly that key."""
        for key in ODD_KEYS:
            assert not store.exists("bucket", key)
            etag = store.put("bucket", key, key.encode())

            assert etag.startswith('"')
            assert store.get("bucket", key) == key.encode()
            assert store.exists("bucket", key)
        assert s3.objects("bucket") == {key: key.encode() for key in ODD_KEYS}

    def test_a_plain_put_replaces(self, s3: S3Recorder, store: ObjectStore) -> None:
        """Without the condition the newer bytes stand there."""
        first = store.put("bucket", "a", b"first")

        assert store.put("bucket", "a", b"second") != first
        assert s3.objects("bucket") == {"a": b"second"}

    def test_a_missing_object(self, store: ObjectStore) -> None:
        """Getting what is not there is refused with the store's code."""
        with pytest.raises(StoreRefused, match="NoSuchKey") as caught:
            store.get("bucket", "a")

        assert caught.value.status == 404

    def test_listing_pages_in_byte_order(self, s3: S3Recorder, store: ObjectStore) -> None:
        """A listing of several pages yields every key with the prefix once, in UTF-8 byte order."""
        keys = [f"p/{i:04d}" for i in range(2100)] + [f"p/{key}" for key in ODD_KEYS]
        s3.create_bucket("bucket", dict.fromkeys([*keys, "other"], b""))

        assert list(store.list_keys("bucket", "p/")) == sorted(keys, key=str.encode)
        assert list(store.list_keys("bucket", "none")) == []


class TestBuckets:
    def test_create_and_ping(self, store: ObjectStore) -> None:
        """Creating twice is fine; a bucket that is not there is reported."""
        with pytest.raises(StoreRefused):
            store.ping("new")
        store.create_bucket("new")
        store.create_bucket("new")
        store.ping("new")

    def test_a_bucket_of_somebody_else_is_not_ours(self, s3: S3Recorder, store: ObjectStore) -> None:
        """Only a bucket that is already ours counts as created; any other refusal is told."""
        s3.script(lambda _: Reply(409, b"<Error><Code>BucketAlreadyExists</Code></Error>"))
        with pytest.raises(StoreRefused, match="BucketAlreadyExists"):
            store.create_bucket("new")

    def test_the_region_is_the_bucket_s_place(self, s3: S3Recorder, settings: StoreSettings) -> None:
        """Outside of us-east-1 the region is named when a bucket is created."""
        s3.region = "eu-west-3"
        ObjectStore(replace(settings, region="eu-west-3")).create_bucket("new")

        assert b"eu-west-3" in s3.requests[-1].body


class TestErrors:
    def test_an_error_of_the_store_itself_may_pass(self, s3: S3Recorder, store: ObjectStore) -> None:
        """A 5xx ends a command with the exit code of an environment fault, a 4xx with that of a refusal."""
        with pytest.raises(StoreRefused) as refused:
            store.get("bucket", "a")
        s3.script(lambda _: Reply(503, b"<Error><Code>SlowDown</Code></Error>"))
        with pytest.raises(StoreRefused) as slow:
            store.get("bucket", "a")

        assert (refused.value.exit_code, slow.value.exit_code) == (1, 75)

    def test_a_dropped_put_is_sent_once_and_unknown(self, s3: S3Recorder, store: ObjectStore) -> None:
        """A put whose answer is lost may have been done, and is not repeated."""
        s3.script(lambda _: Reply(drop=True, act_first=True))
        with pytest.raises(NoReply, match="effect unknown") as caught:
            store.put("bucket", "a", b"x")

        assert caught.value.effect_unknown
        assert len(s3.requests) == 1

    def test_nobody_listens(self, settings: StoreSettings) -> None:
        """Without a store nothing was sent, and the hint names the setting."""
        with pytest.raises(NoReply, match="nothing was sent") as caught:
            ObjectStore(replace(settings, endpoint_url="http://127.0.0.1:1")).ping("bucket")

        assert not caught.value.effect_unknown
        assert "SEXTON_S3_ENDPOINT_URL" in str(caught.value.hint)

    def test_what_is_no_bucket(self, store: ObjectStore) -> None:
        """A name that no bucket can have is told from a bucket that is not there."""
        with pytest.raises(BucketUnusable, match="not a bucket name"):
            store.ping("no/bucket")
