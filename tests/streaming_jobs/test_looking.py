"""Looking at objects on the recorder and on moto: absent is only what the store says is absent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from tests.support import s3_stores
from tests.support.s3_recorder import Recorded, Reply, S3Recorder

from sexton.schemas.errors import EnvironmentFault
from sexton.storage import SPELLINGS, Abilities, BatchDeleter, Delete, Kind, StoreSettings
from sexton.streaming_jobs.reaper.fates import Seen
from sexton.streaming_jobs.reaper.looking import look, look_closely

THERE, ABSENT, UNKNOWN = Seen.THERE, Seen.ABSENT, Seen.UNKNOWN
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


def faithful(bucket: str) -> Abilities:
    """Return the abilities of a store that keeps every spelling."""
    kept = frozenset(spelling.name for spelling in SPELLINGS)
    return Abilities(bucket, batch_keeps=kept, single_keeps=kept)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Recorder]:
    """A recorder whose credentials are in the environment, with a plain and a versioned bucket."""
    with S3Recorder() as recorder:
        for name, value in recorder.environ.items():
            monkeypatch.setenv(name, value)
        recorder.create_bucket("b")
        recorder.create_bucket("v", versioning="Enabled")
        yield recorder


@pytest.fixture
def deleter(s3: S3Recorder) -> Iterator[BatchDeleter]:
    """A deleter against the recorder."""
    with BatchDeleter(StoreSettings(s3.url, requests_in_flight=4, read_timeout_s=2)) as made:
        for bucket in ("b", "v"):
            made.learn(faithful(bucket))
        yield made


def test_there_and_absent(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """X-9: each key is looked at byte for byte, and once, however often it is named."""
    s3.buckets.fill("b", dict.fromkeys(ODD[::2], b"x"))
    plain = [f"k{i}" for i in range(100)]
    s3.buckets.fill("b", dict.fromkeys(plain[:50], b"x"))
    found = look(deleter, "b", [*ODD, *plain, *plain])

    assert [found[key] for key in ODD] == [THERE, ABSENT] * 6
    assert [found[key] for key in plain] == [THERE] * 50 + [ABSENT] * 50
    # One look each, and one at the bucket, since a missing one answers as a missing key does.
    assert len(s3.requests) == len(ODD) + 100 + 1
    assert {request.method for request in s3.requests} == {"HEAD"}
    assert look(deleter, "b", []) == {}


def test_x_11_a_marker_is_absent(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """X-11: under a current delete marker nothing is there; a named version is, until it is erased itself."""
    first = deleter.calls.put("v", "k", b"1")
    marker = deleter.delete_all("v", ["k"]).result(10).markers[0]

    assert look(deleter, "v", ["k"]) == {"k": ABSENT}
    assert look(deleter, "v", ["k"], versions={"k": first.version_id}) == {"k": THERE}
    assert look(deleter, "v", ["k"], versions={"k": marker}) == {"k": THERE}
    deleter.delete_all("v", [Delete("k", version_id=first.version_id)]).result(10)
    assert look(deleter, "v", ["k"], versions={"k": first.version_id}) == {"k": ABSENT}


def test_a_missing_bucket_is_no_absent_key(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """X-7: where the bucket is missing, or not to be looked at, nobody knows of its keys."""
    deleter.learn(faithful("missing"))
    missing = look_closely(deleter, "missing", ["a", "b"])
    s3.script(lambda request: Reply(403) if not request.key else None)
    denied = look_closely(deleter, "b", ["a"])

    assert {each.seen for each in (*missing.values(), *denied.values())} == {UNKNOWN}
    assert missing["a"].state is not None
    assert missing["a"].state.code == "NoSuchBucket"


@pytest.mark.parametrize("status", [400, 403, 405, 412, 500, 503])
def test_what_is_refused_is_unknown(status: int, s3: S3Recorder, deleter: BatchDeleter) -> None:
    """A look that is denied or fails shows nothing, of this key only."""
    s3.buckets.fill("b", {"good": b""})
    s3.script(lambda request: Reply(status) if request.key == "bad" else None)
    found = look_closely(deleter, "b", ["bad", "good", "none"], sleep=lambda _: None)

    assert {key: each.seen for key, each in found.items()} == {"bad": UNKNOWN, "good": THERE, "none": ABSENT}
    assert found["bad"].state is not None
    assert found["bad"].state.status == status


def test_asked_twice(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """What fails once, or is cut, is asked again."""
    s3.buckets.fill("b", {"a": b"", "b": b""})
    seen: list[str] = []

    def first_fails(request: Recorded) -> Reply | None:
        seen.append(request.key)
        if seen.count(request.key) > 1:
            return None
        return Reply(drop=True) if request.key == "a" else Reply(503)

    s3.script(first_fails)
    found = look_closely(deleter, "b", ["a", "b"], sleep=lambda _: None)

    assert [each.seen for each in found.values()] == [THERE, THERE]


def test_nobody_answers(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """A store that answers nothing but errors is not asked for every one of a thousand keys."""
    s3.script(lambda _: Reply(503))
    found = look_closely(deleter, "b", [f"k{i}" for i in range(1000)], sleep=lambda _: None)

    assert {each.seen for each in found.values()} == {UNKNOWN}
    assert len(s3.requests) < 100


def test_wrong_for_everything(s3: S3Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-7: without credentials, or a way to the store, it raises what holds the micro-batch."""
    with BatchDeleter(StoreSettings("http://127.0.0.1:9", connect_timeout_s=1)) as away:
        away.learn(faithful("b"))
        with pytest.raises(EnvironmentFault):
            look(away, "b", [f"k{i}" for i in range(100)])
        found = look_closely(away, "b", ["a"])
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with BatchDeleter(StoreSettings(s3.url)) as nobody, pytest.raises(EnvironmentFault):
        look(nobody, "b", ["a"])

    assert found["a"].state is not None
    assert (found["a"].seen, found["a"].state.kind) == (UNKNOWN, Kind.ENVIRONMENT)


def test_another_key_might_answer(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """X-9: a spelling that the store might fold, and what is no key, is unknown, and nobody is asked."""
    deleter.learn(Abilities("b"))
    found = look_closely(deleter, "b", ["a//b", "", "k" * 1025, "\ud800"])

    assert {each.seen for each in found.values()} == {UNKNOWN}
    assert [each.state.code for each in found.values() if each.state] == [
        "FoldedKey",
        "EmptyKey",
        "KeyTooLongError",
        "NotUnicode",
    ]
    assert s3.requests == []


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BatchDeleter, Any]]:
    """A deleter against moto, and a client that is not ours."""
    with (
        s3_stores.moto(Path(tmp_path_factory.mktemp("moto"))) as running,
        pytest.MonkeyPatch.context() as environment,
    ):
        for name, value in running.environ.items():
            environment.setenv(name, value)
        client = boto3.session.Session().client(
            "s3", endpoint_url=running.settings.endpoint_url, region_name=running.settings.region
        )
        with BatchDeleter(running.settings) as deleter:
            yield deleter, client
        client.close()


def test_on_moto(moto: tuple[BatchDeleter, Any]) -> None:
    """On moto: objects, markers, versions and a missing bucket, as on the recorder."""
    deleter, client = moto
    bucket = f"test-{os.urandom(6).hex()}"
    client.create_bucket(Bucket=bucket)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    first = deleter.calls.put(bucket, "hidden", b"1")
    deleter.calls.put(bucket, "there", b"1")
    client.delete_object(Bucket=bucket, Key="hidden")

    assert look(deleter, bucket, ["there", "hidden", "never"]) == {
        "there": THERE,
        "hidden": ABSENT,
        "never": ABSENT,
    }
    assert look(deleter, bucket, ["hidden"], versions={"hidden": first.version_id}) == {"hidden": THERE}
    assert look(deleter, "test-missing-bucket", ["a"]) == {"a": UNKNOWN}
