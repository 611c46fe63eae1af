"""Whether conditional writes are real is found out by writers that race, and nothing is left behind."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import pytest
from tests.storage.conftest import BUCKET
from tests.support.personalities import PERSONALITIES
from tests.support.s3_recorder import Recorded, Reply, S3Recorder, Traits
from tests.support.s3_state import etag_of

import sexton.storage.deleter
from sexton.storage import (
    Ability,
    Absent,
    BatchDeleter,
    FateUnknown,
    Found,
    KeyState,
    Kind,
    Lost,
    NoReply,
    NotModified,
    Put,
    Read,
    StoreRefused,
    Written,
)
from sexton.storage.probing import PREFIX
from sexton.storage.racing import judge_race

YES, NO, UNKNOWN = Ability.YES, Ability.NO, Ability.UNKNOWN
WON, LOST = Written('"1"'), Lost()
CONFLICT = FateUnknown(KeyState(Kind.TRANSIENT, "ConditionalRequestConflict", status=409))
NO_ANSWER = FateUnknown(KeyState(Kind.UNKNOWN, "ReadTimeout", status=0))
BODIES = [b"0", b"1", b"2"]


def raced(s3: S3Recorder, deleter: BatchDeleter, bucket: str = BUCKET) -> tuple[Ability, str]:
    """Return what the race finds; assert that it has touched and left nothing else."""
    s3.create_bucket(bucket, {"theirs": b"x"})
    found = deleter.probe_writes(bucket)

    assert set(s3.buckets.of(bucket).versions) == {"theirs"}
    keys = {key for request in s3.requests for key in (request.key, *request.keys) if key}
    assert all(key.removeprefix("/").startswith(PREFIX) for key in keys)
    return found.conditional_writes, found.writes_detail


@pytest.mark.parametrize(
    ("puts", "seen", "found"),
    [
        ([LOST, WON, LOST], Found(b"1", ""), YES),
        ([CONFLICT, WON, LOST], Found(b"1", ""), YES),
        ([WON, WON, LOST], Found(b"1", ""), NO),
        ([WON, WON, NO_ANSWER], Found(b"1", ""), NO),
        ([LOST, WON, LOST], Found(b"0", ""), NO),
        ([CONFLICT, WON, LOST], Found(b"0", ""), NO),
        ([LOST, WON, LOST], Absent(), NO),
        ([LOST, WON, LOST], NotModified(), NO),
        ([LOST, LOST, LOST], Absent(), NO),
        ([NO_ANSWER, WON, LOST], Found(b"1", ""), UNKNOWN),
        ([NO_ANSWER, LOST, LOST], Found(b"0", ""), UNKNOWN),
        ([CONFLICT, LOST, CONFLICT], Absent(), None),
        ([CONFLICT, LOST, CONFLICT], Found(b"0", ""), None),
    ],
)
def test_b_6_a_race_shows(puts: Sequence[Put], seen: Read, found: Ability | None) -> None:
    """B-6: exactly one win, and its bytes there, is a yes; what nobody can tell is none."""
    said = judge_race(puts, BODIES, seen)

    assert (said.ability if said else None) is found


@pytest.mark.parametrize("versioning", ["", "Enabled", "Suspended"])
def test_b_6_a_faithful_store(versioning: str, s3: S3Recorder, deleter: BatchDeleter) -> None:
    """B-6: real conditions are found to be so, by some 170 requests, on versioned buckets, too."""
    s3.create_bucket("other", versioning=versioning)

    assert raced(s3, deleter, "other") == (YES, "")
    assert len(s3.requests) <= 220


NAMED = {
    "AWS S3": "",
    "AWS S3, conditional puts in conflict": "",
    "Cloudflare R2": "",
    "Garage": "",
    "Alibaba OSS, S3 front": "If-None-Match where an object is: NotImplemented",
    "mountx": "If-None-Match where an object is: written",
    "s3s-fs, older": "If-Match with an older ETag: written",
    "floci, before 1329": "writers that raced have won",
}


@pytest.mark.parametrize(("store", "detail"), NAMED.items(), ids=NAMED)
def test_b_6_named_stores(store: str, detail: str, s3: S3Recorder, deleter: BatchDeleter) -> None:
    """B-6: who ignores a condition, does not know it, or lets several win is found out."""
    PERSONALITIES[store].play(s3)
    ability, seen = raced(s3, deleter)

    assert ability is (NO if detail else YES)
    assert detail in seen
    assert bool(seen) is bool(detail)


def test_b_6_a_store_that_creates_by_if_match_is_found_out(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """B-6: If-Match where nothing is must not create."""

    def creates(request: Recorded) -> Reply | None:
        if request.method != "PUT" or "if-match" not in request.headers or "nowhere" not in request.key:
            return None
        with s3.buckets.lock:
            s3.buckets.of(request.bucket).put(request.key, request.body)
        return Reply(200, headers={"ETag": '"made"'})

    s3.script(creates)

    assert raced(s3, deleter) == (NO, "If-Match where nothing is: written")


def test_b_6_a_store_that_says_lost_and_writes_is_found_out(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """B-6: what a put was told is held against what stands there."""

    def lies(request: Recorded) -> Reply | None:
        if request.method != "PUT" or "race" not in request.key or "if-none-match" not in request.headers:
            return None
        with s3.buckets.lock:
            is_first = s3.buckets.of(request.bucket).current(request.key) is None
            s3.buckets.of(request.bucket).put(request.key, request.body)
        if is_first:
            return Reply(200, headers={"ETag": etag_of(request.body)})
        return Reply(412, b"<Error><Code>PreconditionFailed</Code></Error>")

    s3.script(lies)

    assert raced(s3, deleter) == (NO, "what the winner of a race has written does not stand there")


def test_b_6_several_winners_of_a_replacement_are_found_out(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """B-6: a store whose creates are real may still let several replace one object."""

    def generous(request: Recorded) -> Reply | None:
        if request.method == "PUT" and "race" in request.key and "if-match" in request.headers:
            return Reply(200, headers={"ETag": '"yours"'})
        return None

    s3.script(generous)
    ability, detail = raced(s3, deleter)

    assert (ability, detail) == (NO, "8 of 8 writers that raced have won")


def test_b_6_a_stale_304_is_found_out(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """B-6: who says that an object is as it was though it has changed cannot be read by its ETag."""
    s3.script(lambda r: Reply(304) if r.method == "GET" and "if-none-match" in r.headers else None)

    assert raced(s3, deleter) == (NO, "what stands there is not what the puts were said to have done")


@pytest.mark.parametrize("where", ["turn", "race"])
@pytest.mark.parametrize(
    "answer",
    [Reply(drop=True), Reply(503, b"<Error><Code>SlowDown</Code></Error>")],
    ids=["cut", "busy"],
)
def test_b_6_a_put_of_unknown_fate_is_no_yes_and_is_asked_again(
    where: str, answer: Reply, s3: S3Recorder, deleter: BatchDeleter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-6: unknown stays unknown for a minute without a request, and then the store is asked again."""
    count = itertools.count()

    def once(request: Recorded) -> Reply | None:
        is_it = request.method == "PUT" and f"/{where}" in request.key and "if-none-match" in request.headers
        return answer if is_it and next(count) == 0 else None

    s3.script(once)
    ability, detail = raced(s3, deleter)
    asked = len(s3.requests)

    assert ability is UNKNOWN
    assert "a put of unknown fate" in detail
    assert deleter.probe_writes(BUCKET).conditional_writes is UNKNOWN
    assert len(s3.requests) == asked
    monkeypatch.setattr(sexton.storage.deleter, "_ASK_AGAIN_S", 0.0)
    assert raced(s3, deleter) == (YES, "")


def test_b_6_conflicts_without_a_winner_stay_unknown(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """B-6: a store that names conflicts and lets nobody win is asked a bounded number of times."""
    conflict = Reply(409, b"<Error><Code>ConditionalRequestConflict</Code></Error>")
    s3.script(lambda r: conflict if r.method == "PUT" and "race" in r.key else None)

    assert raced(s3, deleter) == (UNKNOWN, "races without a winner: the store named conflicts")
    assert len([r for r in s3.requests if r.method == "PUT" and "race" in r.key]) == 12 * 8


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidObjectState"])
def test_who_may_not_put_does_not_know(code: str, s3: S3Recorder, deleter: BatchDeleter) -> None:
    """Where nothing may be written under the prefix nothing is known, with the store's word for it."""
    s3.script(
        lambda r: Reply(403, f"<Error><Code>{code}</Code></Error>".encode()) if r.method == "PUT" else None
    )

    assert raced(s3, deleter) == (UNKNOWN, f"put: {code}")


def test_a_condition_that_is_denied_is_no_answer(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """A policy that refuses the conditional put tells nothing of the store."""
    denied = Reply(403, b"<Error><Code>AccessDenied</Code></Error>")
    s3.script(lambda r: denied if "if-none-match" in r.headers and r.method == "PUT" else None)

    assert raced(s3, deleter) == (UNKNOWN, "If-None-Match where an object is: AccessDenied")


def test_a_bucket_that_keeps_what_is_put_is_not_tried(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """Where the bucket has a default retention the race could not be removed: nothing is put."""
    rule = "<Rule><DefaultRetention><Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule>"
    name = "ObjectLockConfiguration"
    body = f"<{name}><ObjectLockEnabled>Enabled</ObjectLockEnabled>{rule}</{name}>".encode()
    s3.script(lambda r: Reply(200, body) if "object-lock" in r.query else None)

    assert raced(s3, deleter) == (UNKNOWN, "not tried: the bucket has a default retention")
    assert not [request for request in s3.requests if request.method == "PUT"]


def test_x_18_writers_race_under_the_prefix_that_is_allowed(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """X-18: with an allow-list nothing is made outside of it."""
    found = deleter.probe_writes(BUCKET, "tenants/")
    keys = [key for request in s3.requests for key in (request.key, *request.keys) if key]

    assert found.conditional_writes is YES
    assert keys
    assert all(key.startswith(f"tenants/{PREFIX}") for key in keys)
    assert s3.objects(BUCKET) == {}


def test_a_store_that_cannot_be_asked_now_raises(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """A missing bucket, old credentials or a cut connection raise, and nothing is remembered."""
    with pytest.raises(StoreRefused, match="no such bucket"):
        deleter.probe_writes("missing")
    for answer, error in (
        (Reply(403, b"<Error><Code>RequestTimeTooSkewed</Code></Error>"), StoreRefused),
        (Reply(drop=True), NoReply),
    ):
        s3.script(lambda r, a=answer: a if r.method == "GET" and r.key else None)  # type: ignore[misc]
        with pytest.raises(error):
            deleter.probe_writes(BUCKET)
    s3.script(None)

    assert raced(s3, deleter) == (YES, "")


@pytest.mark.parametrize("first", ["probe", "look_up", "race"])
def test_what_was_found_is_kept_beside_the_rest(first: str, s3: S3Recorder, deleter: BatchDeleter) -> None:
    """The race is run once in a process, and neither it nor the other probes undo what the others found."""
    calls: dict[str, Callable[[str], object]] = {
        "probe": deleter.probe,
        "look_up": deleter.look_up,
        "race": deleter.probe_writes,
    }
    for name in (first, *(set(calls) - {first})):
        calls[name](BUCKET)
    known, asked = deleter.abilities(BUCKET), len(s3.requests)

    assert (known.conditional_writes, known.batch_condition, known.lists_exactly) == (YES, YES, YES)
    assert "; conditional writes: yes" in known.summary()
    assert deleter.probe_writes(BUCKET) == known
    assert len(s3.requests) == asked


def test_what_was_seen_is_told(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """The line that the doctor prints says why conditional writes are not real."""
    s3.buckets.traits = dataclasses.replace(Traits(), conditions_ignored=frozenset({"replace"}))

    said = deleter.probe_writes(BUCKET).summary()
    assert "conditional writes: no (If-Match with an older ETag: written)" in said
