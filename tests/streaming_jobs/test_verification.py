"""Looking at objects on the recorder and on moto: absent is only what the store says is absent."""

from __future__ import annotations

import os
import time
from email.utils import formatdate
from typing import Any

import pytest
from tests.support.abilities import knowing
from tests.support.s3_recorder import Recorded, Reply, S3Recorder

from sexton.schemas.errors import EnvironmentFault
from sexton.storage import Abilities, BatchDeleter, Delete, Kind, StoreSettings
from sexton.streaming_jobs.reaper.execute.outcomes import Presence
from sexton.streaming_jobs.reaper.execute.verification import verify, verify_each

THERE, ABSENT, UNKNOWN = Presence.PRESENT, Presence.ABSENT, Presence.UNKNOWN
ODD = [
    "a b",
    "a+b",
    "a%2Fb",
    "a\rb",
    "a\x01b",
    "a/../b",
    "/a",
    "a//b",
    "é",
    "e\u0301",
    "x\uffff",
    "?versionId=1",
]


def presence(*given: Any, **more: Any) -> dict[str, Presence]:
    """What a look has shown of each key."""
    return {key: each.presence for key, each in verify(*given, **more).items()}


@pytest.fixture
def recorder(recorder: S3Recorder) -> S3Recorder:
    """The recorder with a plain and a versioned bucket."""
    recorder.create_bucket("b")
    recorder.create_bucket("v", versioning="Enabled")
    return recorder


def test_there_and_absent(recorder: S3Recorder, deleter: BatchDeleter) -> None:
    """X-9: each key is verified byte for byte, and once, however often it is named."""
    recorder.buckets.fill("b", dict.fromkeys(ODD[::2], b"x"))
    plain = [f"k{i}" for i in range(100)]
    recorder.buckets.fill("b", dict.fromkeys(plain[:50], b"x"))
    found = presence(deleter, "b", [*ODD, *plain, *plain])

    assert [found[key] for key in ODD] == [THERE, ABSENT] * 6
    assert [found[key] for key in plain] == [THERE] * 50 + [ABSENT] * 50
    # One look each, and one at the bucket, since a missing one answers as a missing key does.
    assert len(recorder.requests) == len(ODD) + 100 + 1
    assert {request.method for request in recorder.requests} == {"HEAD"}
    assert presence(deleter, "b", []) == {}


@pytest.mark.parametrize(
    ("headers", "age_s"),
    [
        ({}, 98.5),
        ({"ETag": '"d41d8cd98f00b204e9800998ecf8427e-2"'}, None),
        ({"Last-Modified": "yesterday"}, None),
        ({"Last-Modified": ""}, None),
        ({"ETag": ""}, None),
    ],
    ids=["plain", "of a multipart upload", "no date", "empty", "no ETag"],
)
def test_how_long_an_object_has_stood(
    recorder: S3Recorder, deleter: BatchDeleter, headers: dict[str, str], age_s: float | None
) -> None:
    """By the store's own clock, at least: a multipart object came to stand there after its own date."""
    plain = {"Last-Modified": formatdate(time.time() - 100, usegmt=True), "ETag": '"e"'}
    recorder.script(lambda request: Reply(200, headers=plain | headers) if request.key == "k" else None)

    (found,) = verify(deleter, "b", ["k"]).values()

    assert found.presence is THERE
    assert found.age_s == (None if age_s is None else pytest.approx(age_s, abs=5.0))


def test_x_11_a_marker_is_absent(recorder: S3Recorder, deleter: BatchDeleter) -> None:
    """X-11: under a current delete marker nothing is there; a named version is, until it is erased itself."""
    first = deleter.calls.put("v", "k", b"1")
    marker = deleter.delete_all("v", ["k"]).result(10).markers[0]

    assert presence(deleter, "v", ["k"]) == {"k": ABSENT}
    assert presence(deleter, "v", ["k"], versions={"k": first.version_id}) == {"k": THERE}
    assert presence(deleter, "v", ["k"], versions={"k": marker}) == {"k": THERE}
    deleter.delete_all("v", [Delete("k", version_id=first.version_id)]).result(10)
    assert presence(deleter, "v", ["k"], versions={"k": first.version_id}) == {"k": ABSENT}


def test_a_missing_bucket_is_no_absent_key(recorder: S3Recorder, deleter: BatchDeleter) -> None:
    """X-7: where the bucket is missing, or not to be verified, nobody knows of its keys."""
    deleter.learn(knowing("missing"))
    missing = verify_each(deleter, "missing", ["a", "b"])
    recorder.script(lambda request: Reply(403) if not request.key else None)
    denied = verify_each(deleter, "b", ["a"])

    assert {each.presence for each in (*missing.values(), *denied.values())} == {UNKNOWN}
    assert missing["a"].state is not None
    assert missing["a"].state.code == "NoSuchBucket"


@pytest.mark.parametrize("status", [400, 403, 405, 412, 500, 503])
def test_what_is_refused_is_unknown(status: int, recorder: S3Recorder, deleter: BatchDeleter) -> None:
    """A look that is denied or fails shows nothing, of this key only."""
    recorder.buckets.fill("b", {"good": b""})
    recorder.script(lambda request: Reply(status) if request.key == "bad" else None)
    found = verify_each(deleter, "b", ["bad", "good", "none"], sleep=lambda _: None)

    assert {key: each.presence for key, each in found.items()} == {
        "bad": UNKNOWN,
        "good": THERE,
        "none": ABSENT,
    }
    assert found["bad"].state is not None
    assert found["bad"].state.status == status


def test_asked_twice(recorder: S3Recorder, deleter: BatchDeleter) -> None:
    """What fails once, or is cut, is asked again."""
    recorder.buckets.fill("b", {"a": b"", "b": b""})
    presence: list[str] = []

    def first_fails(request: Recorded) -> Reply | None:
        presence.append(request.key)
        if presence.count(request.key) > 1:
            return None
        return Reply(drop=True) if request.key == "a" else Reply(503)

    recorder.script(first_fails)
    found = verify_each(deleter, "b", ["a", "b"], sleep=lambda _: None)

    assert [each.presence for each in found.values()] == [THERE, THERE]


def test_nobody_answers(recorder: S3Recorder, deleter: BatchDeleter) -> None:
    """A store that answers nothing but errors is not asked for every one of a thousand keys."""
    recorder.script(lambda _: Reply(503))
    found = verify_each(deleter, "b", [f"k{i}" for i in range(1000)], sleep=lambda _: None)

    assert {each.presence for each in found.values()} == {UNKNOWN}
    assert len(recorder.requests) < 100


def test_wrong_for_everything(recorder: S3Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-7: without credentials, or a way to the store, it raises what holds the micro-batch."""
    with BatchDeleter(StoreSettings("http://127.0.0.1:9", connect_timeout_s=1)) as away:
        away.learn(knowing("b"))
        with pytest.raises(EnvironmentFault):
            verify(away, "b", [f"k{i}" for i in range(100)])
        found = verify_each(away, "b", ["a"])
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with BatchDeleter(StoreSettings(recorder.url)) as nobody, pytest.raises(EnvironmentFault):
        verify(nobody, "b", ["a"])

    assert found["a"].state is not None
    assert (found["a"].presence, found["a"].state.kind) == (UNKNOWN, Kind.ENVIRONMENT)


def test_another_key_might_answer(recorder: S3Recorder, deleter: BatchDeleter) -> None:
    """X-9: an aliasing that the store might fold, and what is no key, is unknown, and nobody is asked."""
    deleter.learn(Abilities("b"))
    found = verify_each(deleter, "b", ["a//b", "", "k" * 1025, "\ud800"])

    assert {each.presence for each in found.values()} == {UNKNOWN}
    assert [each.state.code for each in found.values() if each.state] == [
        "FoldedKey",
        "EmptyKey",
        "KeyTooLongError",
        "NotUnicode",
    ]
    assert recorder.requests == []


def test_on_moto(moto: tuple[BatchDeleter, Any]) -> None:
    """On moto: objects, markers, versions and a missing bucket, as on the recorder."""
    deleter, client = moto
    bucket = f"test-{os.urandom(6).hex()}"
    client.create_bucket(Bucket=bucket)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    first = deleter.calls.put(bucket, "hidden", b"1")
    deleter.calls.put(bucket, "there", b"1")
    client.delete_object(Bucket=bucket, Key="hidden")

    assert presence(deleter, bucket, ["there", "hidden", "never"]) == {
        "there": THERE,
        "hidden": ABSENT,
        "never": ABSENT,
    }
    (age,) = [each.age_s for each in verify(deleter, bucket, ["there"]).values()]
    assert age is not None
    assert -2 < age < 60
    assert presence(deleter, bucket, ["hidden"], versions={"hidden": first.version_id}) == {"hidden": THERE}
    assert presence(deleter, "test-missing-bucket", ["a"]) == {"a": UNKNOWN}
