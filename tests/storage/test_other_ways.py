"""P-4, P-5: a whole request refused for what is a matter of its form, or of one key alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.s3_recorder import Recorded, Reply, S3Recorder

from sexton.storage import BatchDeleter, Kind

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
    """P-4: nothing is believed of a store that refuses single deletes, too."""
    filled(s3)
    s3.script(lambda request: error(501, "NotImplemented") if request.method in ("POST", "DELETE") else None)

    result = deleter.delete_all("bucket", KEYS).result(20)

    assert result.fault is not None
    assert result.fault.kind is Kind.BUCKET
    assert len(s3.objects("bucket")) == len(KEYS)


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
