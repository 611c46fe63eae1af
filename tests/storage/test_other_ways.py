"""P-4, P-5: a whole request refused for what is a matter of its form, or of one key alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.s3_recorder import Recorded, Reply, S3Recorder

from sexton.storage import Ability, BatchDeleter, Delete, Effect, Kind, StoreSettings
from sexton.storage.xml_body import build_items

MakeDeleter = Callable[[StoreSettings], BatchDeleter]

KEYS = [f"k{n:03d}" for n in range(40)]
PAGE = b"<html><body>Forbidden</body></html>"


def error(status: int, code: str, message: str = "no") -> Reply:
    """An error as S3 has it."""
    return Reply(status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode())


def filled(s3: S3Recorder, *more: str) -> None:
    """Put all keys into the bucket."""
    s3.buckets.fill("bucket", dict.fromkeys([*KEYS, *more], b""))


@pytest.mark.parametrize(
    "refusal",
    [
        error(501, "NotImplemented"),
        error(400, "MalformedPOSTRequest"),
        error(405, "MethodNotAllowed"),
        error(400, "SomethingNobodyKnows"),
        error(400, "InvalidArgument", "POST object expects a form"),
        Reply(501, b""),
        Reply(405, PAGE),
    ],
    ids=lambda reply: f"{reply.status} {reply.body[13:35]!r}",
)
def test_p_4_a_store_without_delete_objects_is_found_out_once(
    refusal: Reply, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """P-4: by a handful of requests and not by halving; then each key goes by a call of its own."""
    filled(s3)
    s3.script(lambda request: refusal if request.is_delete_objects else None)

    first = deleter.delete_all("bucket", KEYS[:30]).result(20)
    tried = len(s3.deletes())
    second = deleter.delete_all("bucket", KEYS[30:]).result(20)

    assert (first.clean, second.clean, s3.objects("bucket")) == (True, True, {})
    assert tried <= 3
    assert len(s3.deletes()) == tried
    assert len(s3.singles()) == len(KEYS)


@pytest.mark.parametrize(
    "refusal",
    [
        error(400, "InvalidArgument", "Unsupported header 'x-amz-sdk-checksum-algorithm' received."),
        error(501, "NotImplemented", "A header you provided implies functionality that is not implemented"),
        Reply(501, b""),
        error(400, "XYZ"),
    ],
    ids=lambda reply: f"{reply.status} {reply.body[13:35]!r}",
)
def test_p_4_a_store_that_dislikes_the_checksum_gets_the_old_one(
    refusal: Reply, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """P-4: in whatever words it says so: Content-MD5 from then on, at the first try."""
    filled(s3)

    def dislikes(request: Recorded) -> Reply | None:
        new = any(name.startswith(("x-amz-checksum", "x-amz-sdk-checksum")) for name in request.headers)
        return refusal if request.is_delete_objects and new else None

    s3.script(dislikes)

    first = deleter.delete_all("bucket", KEYS[:30]).result(20)
    tried = len(s3.deletes())
    second = deleter.delete_all("bucket", KEYS[30:]).result(20)

    assert (first.clean, second.clean, s3.objects("bucket")) == (True, True, {})
    assert (tried, len(s3.deletes()), s3.singles()) == (2, 3, [])


def test_p_4_a_bad_key_is_no_store_without_batches(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """P-4: where a batch with one key passes, it is the content: halved, and batches stay."""
    filled(s3)
    bad = error(400, "InvalidArgument")
    s3.script(lambda request: bad if request.is_delete_objects and KEYS[7] in request.keys else None)

    result = deleter.delete_all("bucket", KEYS).result(20)

    assert {KEYS[index] for index in result.states} == {KEYS[7]}
    assert set(s3.objects("bucket")) == {KEYS[7]}
    assert s3.singles() == []


def test_p_4_what_was_sent_to_find_out_is_not_sent_again(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """P-4, X-11: the key that was tried alone has one delete marker like all others."""
    s3.buckets._buckets.clear()
    s3.create_bucket("bucket", dict.fromkeys(KEYS, b""), versioning="Enabled")
    bad = error(400, "InvalidArgument")
    s3.script(lambda request: bad if request.is_delete_objects and KEYS[7] in request.keys else None)

    result = deleter.delete_all("bucket", KEYS).result(20)

    assert {KEYS[index] for index in result.states} == {KEYS[7]}
    assert {key: len(s3.versions("bucket", key)) for key in KEYS} == {
        key: 1 if key == KEYS[7] else 2 for key in KEYS
    }


def test_p_4_a_store_that_takes_neither_holds_its_bucket(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """P-4: nothing is believed of a store that refuses single deletes, too, and it is not asked each time."""
    filled(s3)
    s3.script(lambda request: error(501, "NotImplemented") if request.method in ("POST", "DELETE") else None)

    first = deleter.delete_all("bucket", KEYS[:30]).result(20)
    asked = len(s3.requests)
    second = deleter.delete_all("bucket", KEYS[30:]).result(20)

    assert [result.fault and result.fault.kind for result in (first, second)] == [Kind.BUCKET] * 2
    assert (first.requests, second.requests) == (4, 1) == (asked, len(s3.requests) - asked)
    assert len(s3.objects("bucket")) == len(KEYS)


LOST = {
    "cut": Reply(drop=True, act_first=True),
    "late": Reply(delay_s=1.5, act_first=True),
    "InternalError": replace(error(500, "InternalError"), act_first=True),
    "no page of S3": Reply(502, PAGE, act_first=True),
    "not a result": Reply(200, b"<Unheard/>", act_first=True),
}


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
@pytest.mark.parametrize(
    ("number", "tried"), [(1, len(KEYS)), (2, 1), (3, 1)], ids=["old checksum", "one key", "single call"]
)
def test_p_4_a_try_that_breaks_off_may_have_deleted(
    number: int, tried: int, lost: Reply, s3: S3Recorder, settings: StoreSettings, make_deleter: MakeDeleter
) -> None:
    """P-4, X-11: what was sent in it is of unknown effect, the rest waits; nothing is sent after it."""
    s3.buckets._buckets.clear()
    s3.create_bucket("bucket", dict.fromkeys(KEYS, b""), versioning="Enabled")
    count = itertools.count()
    s3.script(lambda _: lost if next(count) == number else error(501, "NotImplemented"))
    deleter = make_deleter(replace(settings, read_timeout_s=0.5))

    result = deleter.delete_all("bucket", KEYS).result(20)

    effects = [result.state(index).effect for index in range(len(KEYS))]
    assert effects == [Effect.UNKNOWN] * tried + [Effect.NONE] * (len(KEYS) - tried)
    assert {result.state(index).kind for index in range(tried, len(KEYS))} <= {Kind.BUCKET}
    assert result.requests == number + 1
    assert [len(s3.versions("bucket", key)) for key in KEYS] == [2] * tried + [1] * (len(KEYS) - tried)


@pytest.mark.parametrize("number", [1, 2, 3], ids=["old checksum", "one key", "single call"])
def test_p_4_a_try_that_is_throttled_shows_nothing(
    number: int, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """P-4: the bucket is throttled, and the way is looked for again the next time."""
    filled(s3)
    count = itertools.count()
    slow = error(503, "SlowDown")

    def answer(request: Recorded) -> Reply | None:
        if next(count) == number:
            return slow
        return error(501, "NotImplemented") if request.is_delete_objects else None

    s3.script(answer)

    result = deleter.delete_all("bucket", KEYS).result(20)
    assert {state.code for state in result.states.values()} == {"SlowDown"}
    assert (len(result.states), result.throttled, len(s3.requests)) == (len(KEYS), True, number + 1)

    assert deleter.delete_all("bucket", KEYS).result(20).clean
    assert s3.objects("bucket") == {}


def test_p_4_a_store_that_dislikes_the_checksum_and_one_key(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """P-4: two faults at once: the old checksum is learnt from one key alone, and the halves carry it."""
    filled(s3)

    def answer(request: Recorded) -> Reply | None:
        if "content-md5" not in request.headers:
            return error(400, "InvalidArgument", "Unsupported header 'x-amz-checksum-crc32' received.")
        return error(400, "InvalidArgument", "bad key") if KEYS[7] in request.keys else None

    s3.script(lambda request: answer(request) if request.is_delete_objects else None)

    result = deleter.delete_all("bucket", KEYS).result(20)

    assert {KEYS[index]: state.kind for index, state in result.states.items()} == {KEYS[7]: Kind.FINAL}
    assert set(s3.objects("bucket")) == {KEYS[7]}
    assert s3.singles() == []


@pytest.mark.parametrize("etag", ['"other"', None], ids=["changed", "denied"])
def test_p_4_a_first_key_that_stays_shows_the_way_all_the_same(
    etag: str | None, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """P-4: a store that speaks of the key has understood the call: the others are not held for the first."""
    filled(s3)
    s3.buckets.traits.failing = {KEYS[0]: "AccessDenied"} if etag is None else {}
    s3.script(lambda request: error(501, "NotImplemented") if request.is_delete_objects else None)
    known = replace(deleter.abilities("bucket"), batch_condition=Ability.YES, single_condition=Ability.YES)
    deleter.learn(known)

    result = deleter.delete_all("bucket", [Delete(KEYS[0], etag), *map(Delete, KEYS[1:])]).result(20)

    kind = Kind.FINAL if etag is None else Kind.CHANGED
    assert {index: state.kind for index, state in result.states.items()} == {0: kind}
    assert set(s3.objects("bucket")) == {KEYS[0]}


def test_p_4_single_calls_that_break_off_leave_the_rest_alone(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """P-4: of what was not sent any more nothing is said to have happened."""
    filled(s3)
    s3.script(lambda request: error(501, "NotImplemented") if request.is_delete_objects else None)
    assert deleter.delete_all("bucket", KEYS[:2]).result(20).clean

    def answer(request: Recorded) -> Reply | None:
        if request.is_delete_objects:
            return error(501, "NotImplemented")
        return Reply(drop=True) if request.key == KEYS[5] else None

    s3.script(answer)
    batches = deleter._batches
    body = build_items([Delete(key) for key in KEYS[2:]])
    result = batches.delete("bucket", KEYS[2:], body, deleter.abilities("bucket"))

    effects = {KEYS[2 + index]: state.effect for index, state in result.states.items()}
    assert effects == {KEYS[5]: Effect.UNKNOWN, **dict.fromkeys(KEYS[6:], Effect.NONE)}


@pytest.mark.parametrize(
    ("odd", "refuses"),
    [
        ("x/etc/passwd", lambda request: b"etc/passwd" in request.body),
        ("a<script>", lambda request: b"script" in request.body),
        ("' OR 1=1 --", lambda request: b" OR 1=1" in request.body),
    ],
    ids=["a path", "a script", "a statement"],
)
@pytest.mark.parametrize("status", [403, 406])
def test_p_5_a_filter_that_dislikes_one_key_harms_no_other(
    status: int, odd: str, refuses: Callable[[Recorded], bool], s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """P-5: halved until the culprit stands alone; it fails for good, the bucket and all others do not."""
    filled(s3, odd)
    s3.script(lambda request: Reply(status, PAGE) if request.is_delete_objects and refuses(request) else None)

    result = deleter.delete_all("bucket", [*KEYS, odd]).result(20)

    assert result.fault is None
    assert {index: state.kind for index, state in result.states.items()} == {len(KEYS): Kind.FINAL}
    assert set(s3.objects("bucket")) == {odd}


def test_p_5_a_filter_that_lets_nothing_through_is_the_buckets_trouble(
    s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """P-5: where every part is refused it is no matter of the keys."""
    filled(s3)
    s3.script(lambda request: Reply(403, PAGE) if request.is_delete_objects else None)

    result = deleter.delete_all("bucket", KEYS).result(20)

    assert result.fault is not None
    assert result.fault.kind is Kind.BUCKET
    assert len(s3.objects("bucket")) == len(KEYS)


@pytest.mark.parametrize("odd", ["a\x01b", "line\rend", "c\nd"])
def test_p_5_a_path_whose_signature_is_spoilt_is_that_keys_trouble(
    odd: str, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """P-5: what works for the bucket with the same credentials is no fault of the credentials."""
    filled(s3, odd)
    wrong = error(403, "SignatureDoesNotMatch")
    s3.script(lambda request: wrong if request.method == "DELETE" else None)

    result = deleter.delete_all("bucket", [*KEYS, odd]).result(20)

    assert result.fault is None
    assert {index: state.kind for index, state in result.states.items()} == {len(KEYS): Kind.FINAL}
    assert set(s3.objects("bucket")) == {odd}


@pytest.mark.parametrize("keys", [KEYS, ["a\x01b"]], ids=["a batch", "a single key"])
def test_p_5_credentials_that_are_wrong_are_everybodys_trouble(
    keys: list[str], s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """P-5: where the bucket is not there for them either, everything is held."""
    s3.script(lambda request: error(403, "SignatureDoesNotMatch"))

    result = deleter.delete_all("bucket", keys).result(20)

    assert result.fault is not None
    assert result.fault.kind is Kind.ENVIRONMENT


def test_p_5_a_batch_whose_signature_is_spoilt_by_one_key_is_halved(
    s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """P-5: a proxy that rewrites a body spoils the signature of requests that hold one key, and no other."""
    filled(s3, "odd")
    wrong = error(403, "SignatureDoesNotMatch")
    s3.script(lambda request: wrong if request.is_delete_objects and "odd" in request.keys else None)

    result = deleter.delete_all("bucket", [*KEYS, "odd"]).result(20)

    assert result.fault is None
    assert {index: state.kind for index, state in result.states.items()} == {len(KEYS): Kind.FINAL}
    assert set(s3.objects("bucket")) == {"odd"}
