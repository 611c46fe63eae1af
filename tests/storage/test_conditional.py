"""Conditional calls: what each answer of a store means, and that no put is ever sent twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.storage.conftest import BUCKET
from tests.support.s3_recorder import Reply, S3Recorder

from sexton.schemas.errors import EnvironmentFault, UsageError
from sexton.storage import (
    Absent,
    BatchDeleter,
    BucketUnusable,
    Calls,
    Effect,
    FateUnknown,
    Found,
    Lost,
    NoReply,
    NotModified,
    ObjectStore,
    Put,
    StoreRefused,
    StoreSettings,
    Written,
    compare_and_put,
    create_if_absent,
    read_if_changed,
)

Try = Callable[[Calls], Put]
ETAG = '"0123"'


def create(calls: Calls) -> Put:
    """Create an object."""
    return create_if_absent(calls, BUCKET, "a", b"ours")


def compare(calls: Calls) -> Put:
    """Replace an object."""
    return compare_and_put(calls, BUCKET, "a", b"ours", ETAG)


both = pytest.mark.parametrize("put", [create, compare])


def error(status: int, code: str = "") -> Reply:
    """Return an error of S3, or a proxy's page where it has no code."""
    return Reply(status, f"<Error><Code>{code}</Code></Error>".encode() if code else b"<html></html>")


@pytest.fixture
def calls(settings: StoreSettings) -> Calls:
    """Single calls against the recorder."""
    return ObjectStore(settings).calls


def test_an_object_is_created_once_and_replaced_from_its_etag(s3: S3Recorder, calls: Calls) -> None:
    """Created where nothing is, lost where something is; replaced from its ETag, lost from an older one."""
    first = create_if_absent(calls, BUCKET, "a", b"first")
    assert isinstance(first, Written)
    assert create_if_absent(calls, BUCKET, "a", b"second") == Lost()
    assert s3.objects(BUCKET) == {"a": b"first"}

    second = compare_and_put(calls, BUCKET, "a", b"second", first.etag)
    assert isinstance(second, Written)
    assert second.etag != first.etag
    assert compare_and_put(calls, BUCKET, "a", b"third", first.etag) == Lost()
    assert compare_and_put(calls, BUCKET, "b", b"third", first.etag) == Lost()
    assert s3.objects(BUCKET) == {"a": b"second"}


def test_an_object_is_read_where_it_has_changed(s3: S3Recorder, calls: Calls) -> None:
    """Absent, then the bytes with their ETag, then no bytes while the ETag is the same, then the new ones."""
    assert read_if_changed(calls, BUCKET, "a") == Absent()
    assert read_if_changed(calls, BUCKET, "a", ETAG) == Absent()
    calls.put(BUCKET, "a", b"first")
    first = read_if_changed(calls, BUCKET, "a", ETAG)
    assert isinstance(first, Found)
    assert first.body == b"first"
    assert read_if_changed(calls, BUCKET, "a", first.etag) == NotModified()
    made = calls.put(BUCKET, "a", b"second")
    assert read_if_changed(calls, BUCKET, "a", first.etag) == Found(b"second", made.etag)


def test_a_delete_marker_counts_as_absent(s3: S3Recorder, calls: Calls) -> None:
    """On a versioned bucket what a marker hides is absent, may be created anew, and cannot be replaced."""
    s3.create_bucket("versioned", versioning="Enabled")
    first = create_if_absent(calls, "versioned", "a", b"1")
    assert isinstance(first, Written)
    assert first.version_id
    with s3.buckets.lock:
        s3.buckets.of("versioned").delete("a", None)

    assert read_if_changed(calls, "versioned", "a", first.etag) == Absent()
    assert compare_and_put(calls, "versioned", "a", b"2", first.etag) == Lost()
    assert isinstance(create_if_absent(calls, "versioned", "a", b"2"), Written)


@both
@pytest.mark.parametrize(
    "answer",
    [
        Reply(drop=True),
        error(500, "InternalError"),
        error(502),
        error(503, "SlowDown"),
        error(503),
        error(504),
        error(409, "ConditionalRequestConflict"),
        error(409, "OperationAborted"),
        Reply(200, b"<html>welcome</html>"),
    ],
    ids=["cut", "500", "502", "SlowDown", "503", "504", "conflict", "aborted", "page"],
)
@pytest.mark.parametrize("landed", [True, False])
def test_b_7_a_put_of_unknown_fate_is_told_and_sent_once(
    landed: bool, answer: Reply, put: Try, s3: S3Recorder, calls: Calls
) -> None:
    """B-7: landed or not, the answer is the same: unknown, after one request; what stands there tells."""
    s3.script(lambda _: replace(answer, act_first=landed))
    if put is compare:
        s3.script(None)
        etag = calls.put(BUCKET, "a", b"theirs").etag
        s3.script(lambda _: replace(answer, act_first=landed))
        told = compare_and_put(calls, BUCKET, "a", b"ours", etag)
    else:
        told = put(calls)
    s3.script(None)

    assert isinstance(told, FateUnknown)
    assert told.state.effect is Effect.UNKNOWN
    assert len([r for r in s3.requests if r.headers.keys() & {"if-match", "if-none-match"}]) == 1
    before = {"a": b"theirs"} if put is compare else {}
    assert s3.objects(BUCKET) == ({"a": b"ours"} if landed else before)


@both
def test_b_7_a_put_that_is_not_answered_in_time_is_unknown(
    put: Try, s3: S3Recorder, settings: StoreSettings
) -> None:
    """B-7: a time-out says nothing of the put, and does not have it sent again."""
    s3.script(lambda _: Reply(200, headers={"ETag": ETAG}, delay_s=3.0))
    told = put(ObjectStore(replace(settings, read_timeout_s=0.2)).calls)

    assert isinstance(told, FateUnknown)
    assert told.state.code == "ReadTimeout"
    assert len(s3.requests) == 1


@pytest.mark.parametrize(
    ("put", "answer"),
    [
        (create, error(412, "PreconditionFailed")),
        (compare, error(412, "PreconditionFailed")),
        (create, error(412)),
        (compare, error(404, "NoSuchKey")),
        (create, Reply(304)),
    ],
)
def test_a_condition_that_did_not_hold_is_lost(put: Try, answer: Reply, s3: S3Recorder, calls: Calls) -> None:
    """In each of the ways in which stores say it."""
    s3.script(lambda _: answer)

    assert put(calls) == Lost()


@both
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (501, "NotImplemented"),
        (403, "AccessDenied"),
        (404, "NoSuchBucket"),
        (404, ""),
        (400, "InvalidRequest"),
        (429, "TooManyRequests"),
        (403, "RequestTimeTooSkewed"),
    ],
)
def test_a_refusal_stays_one(status: int, code: str, put: Try, s3: S3Recorder, calls: Calls) -> None:
    """What the store names and has not done is no lost race and no unknown fate."""
    s3.script(lambda _: error(status, code))
    with pytest.raises(StoreRefused) as caught:
        put(calls)

    assert (caught.value.status, caught.value.code) == (status, code or str(status))


def test_who_creates_is_not_told_that_the_object_is_gone(s3: S3Recorder, calls: Calls) -> None:
    """404 NoSuchKey is no answer to a create, which needs no object: it is refused, not lost."""
    s3.script(lambda _: error(404, "NoSuchKey"))
    with pytest.raises(StoreRefused):
        create(calls)


@both
def test_faults_of_the_environment_stay_what_they_are(
    put: Try, calls: Calls, deleter: BatchDeleter, settings: StoreSettings
) -> None:
    """Where nothing was sent nothing is unknown: no way to the store, a fence, a name of no bucket."""
    away = ObjectStore(replace(settings, endpoint_url="http://127.0.0.1:1")).calls
    with pytest.raises(NoReply, match="nothing was sent"):
        put(away)

    def fenced() -> None:
        raise EnvironmentFault("another one holds the lock")

    deleter.ask_first(fenced)
    with pytest.raises(NoReply, match="another one holds the lock"):
        put(deleter.calls)
    with pytest.raises(BucketUnusable):
        create_if_absent(calls, "no/bucket", "a", b"")


@pytest.mark.parametrize("etag", ["", " ", "*"])
def test_a_condition_that_every_object_meets_is_none(etag: str, s3: S3Recorder, calls: Calls) -> None:
    """An empty ETag would be an unconditional put, a star any object's: neither is sent."""
    with pytest.raises(UsageError, match="not the ETag"):
        compare_and_put(calls, BUCKET, "a", b"", etag)
    with pytest.raises(UsageError, match="not the ETag"):
        read_if_changed(calls, BUCKET, "a", etag)

    assert s3.requests == []


@pytest.mark.parametrize(
    "answer",
    [error(404), error(404, "NoSuchBucket"), error(403, "AccessDenied"), error(500, "InternalError")],
    ids=["page", "bucket", "denied", "failed"],
)
def test_b_4_what_does_not_name_the_key_as_missing_is_not_absent(
    answer: Reply, s3: S3Recorder, calls: Calls
) -> None:
    """B-4: a proxy's 404, a missing bucket or a denial is refused: absent would mean a boundary of 0."""
    s3.script(lambda _: answer)
    with pytest.raises(StoreRefused):
        read_if_changed(calls, BUCKET, "a")


@pytest.mark.parametrize(
    ("etag", "answer"),
    [
        (None, Reply(200, b"12")),
        (None, Reply(204, headers={"ETag": ETAG})),
        (ETAG, Reply(304, headers={"ETag": '"another"'})),
    ],
    ids=["without an ETag", "without the object", "of another ETag"],
)
def test_a_read_that_is_none_is_not_believed(
    etag: str | None, answer: Reply, s3: S3Recorder, calls: Calls
) -> None:
    """Bytes without an ETag could not be replaced, and 304 about another ETag is somebody's stale word."""
    s3.script(lambda _: answer)
    with pytest.raises(NoReply) as caught:
        read_if_changed(calls, BUCKET, "a", etag)

    assert not caught.value.effect_unknown


def test_a_304_that_nobody_asked_for_is_refused(s3: S3Recorder, calls: Calls) -> None:
    """Who named no ETag has no object that could be unchanged."""
    s3.script(lambda _: Reply(304))
    with pytest.raises(StoreRefused):
        read_if_changed(calls, BUCKET, "a")


def raise_to(calls: Calls, wanted: int) -> int:
    """Raise the number in an object to at least `wanted`, by reading again after each put but a win."""
    tries = 0
    while True:
        found = read_if_changed(calls, BUCKET, "number")
        if isinstance(found, Found) and int(found.body) >= wanted:
            return tries
        tries += 1
        body = str(wanted).encode()
        if isinstance(found, Found):
            compare_and_put(calls, BUCKET, "number", body, found.etag)
        else:
            create_if_absent(calls, BUCKET, "number", body)


def test_b_3_of_writers_at_once_the_highest_stays(s3: S3Recorder, calls: Calls) -> None:
    """B-3: many raise a number to different ids, some replies are lost: it never falls, the highest stays."""
    seen: list[int] = []
    number = threading.Lock()

    def watch(request: object) -> Reply | None:
        with number, s3.buckets.lock:
            body = s3.objects(BUCKET).get("number")
            seen.append(int(body or 0))
            lost = len(seen) % 5 == 0
        return Reply(drop=True, act_first=True) if lost and request.method == "PUT" else None  # type: ignore[attr-defined]

    s3.script(watch)

    def go(wanted: int) -> None:
        while True:
            try:
                raise_to(calls, wanted)
            except NoReply:
                continue
            return

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(go, range(1, 25)))

    assert s3.objects(BUCKET) == {"number": b"24"}
    assert seen == sorted(seen)
