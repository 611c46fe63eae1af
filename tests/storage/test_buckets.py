"""P-10: buckets of other regions, kinds and names work, or are refused once and for all in clear words."""

from __future__ import annotations

from collections.abc import Callable

import botocore.client
import pytest
from tests.support.s3_recorder import Recorded, Reply, S3Recorder

from sexton.schemas.errors import StoreUnavailable
from sexton.storage import (
    BatchDeleter,
    BucketUnusable,
    CredentialsUnavailable,
    Effect,
    Kind,
    ObjectStore,
    StoreRefused,
    StoreSettings,
)
from sexton.storage.exchange import refusal_of, region_named
from sexton.storage.wire import RawReply

MakeDeleter = Callable[[StoreSettings], BatchDeleter]
KEYS = ["a", "b\x01", "c"]
MALFORMED = (
    "<Error><Code>AuthorizationHeaderMalformed</Code><Message>The authorization header is malformed; "
    "the region 'us-east-1' is wrong; expecting 'eu-west-3'</Message>%s<RequestId>R</RequestId></Error>"
)
REDIRECT = (
    "<Error><Code>PermanentRedirect</Code><Message>The bucket you are attempting to access must be addressed "
    "using the specified endpoint.</Message><Endpoint>bucket.s3.eu-west-3.amazonaws.com</Endpoint></Error>"
)
ELSEWHERE = {
    "301 with the header": Reply(301, REDIRECT.encode(), {"x-amz-bucket-region": "eu-west-3"}),
    "307 with the header": Reply(307, REDIRECT.encode(), {"x-amz-bucket-region": "eu-west-3"}),
    "400 with the region": Reply(400, (MALFORMED % "<Region>eu-west-3</Region>").encode()),
    "400 with it in words": Reply(400, (MALFORMED % "").encode()),
    "400 without a body": Reply(400, b"", {"x-amz-bucket-region": "eu-west-3"}),
}


@pytest.mark.parametrize("elsewhere", ELSEWHERE.values(), ids=ELSEWHERE)
def test_p_10_a_bucket_in_another_region_is_followed_there_once(
    elsewhere: Reply, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """P-10: whatever says so; signed anew, and remembered for every kind of call."""
    s3.region, s3.elsewhere = "eu-west-3", elsewhere
    s3.buckets.fill("bucket", dict.fromkeys(KEYS, b""))

    found = deleter.probe("bucket")
    assert deleter.delete_all("bucket", KEYS).result(20).clean

    strayed = ["/us-east-1/" in request.headers["authorization"] for request in s3.requests]
    in_words = elsewhere.status == 400 and not elsewhere.headers  # which a HEAD does not get
    assert strayed == [True] * (2 if in_words else 1) + [False] * strayed.count(False)
    assert (found.crc32, s3.objects("bucket")) == ("yes", {})


def test_p_10_each_bucket_has_its_own_region(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """P-10: what one bucket's store says moves no other bucket."""
    s3.create_bucket("near", {"k": b""})
    far = Reply(301, b"", {"x-amz-bucket-region": "eu-west-3"})
    s3.script(lambda request: far if request.bucket == "bucket" else None)

    assert deleter.delete_all("bucket", ["a"]).result(20).fault is not None
    assert deleter.delete_all("near", ["k"]).result(20).clean
    assert "/us-east-1/" in s3.requests[-1].headers["authorization"]


@pytest.mark.parametrize("named", ["us-east-1", "", "evil.example/x#", "../..", "eu-west-3"])
def test_p_10_a_store_that_leads_nowhere_is_not_followed_for_ever(
    named: str, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """P-10: the same region, none, what is none, or one that sends us on: one more request at most."""
    s3.elsewhere = Reply(301, REDIRECT.encode(), {"x-amz-bucket-region": named})
    s3.region = "nowhere"
    result = deleter.delete_all("bucket", ["a", "c"]).result(20)

    assert result.fault is not None
    assert (result.fault.kind, result.fault.effect) == (Kind.UNUSABLE, Effect.NONE)
    assert "SEXTON_S3_ENDPOINT_URL" in result.fault.message
    assert len(s3.requests) <= 2


@pytest.mark.parametrize("named", ["evil.example/x#", "../..", "eu west", "a" * 65, "\r\nX: y"])
def test_p_10_a_region_is_a_name_and_nothing_else(named: str) -> None:
    """P-10: it becomes part of a host's name, to which signed requests go."""
    reply = RawReply(301, "", b"", {"x-amz-bucket-region": named})

    assert region_named(reply, refusal_of(reply)) is None


def test_p_10_what_may_have_been_done_is_not_sent_again_elsewhere(
    s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """P-10: only an answer that did nothing is followed."""
    s3.script(lambda _: Reply(500, REDIRECT.encode(), {"x-amz-bucket-region": "eu-west-3"}))

    deleter.delete_all("bucket", ["a"]).result(20)

    assert len(s3.requests) == 1


@pytest.mark.parametrize("bucket", ["logs--use1-az4--x-s3", "a--usw2-az1--x-s3", "ap--use1-az4--xa-s3"])
def test_p_10_a_directory_bucket_is_refused_at_once(
    bucket: str, s3: S3Recorder, deleter: BatchDeleter, settings: StoreSettings
) -> None:
    """P-10: nothing is sent, not even by botocore; every call says what it is."""
    for ask in (deleter.probe, deleter.look_up, ObjectStore(settings).ping):
        with pytest.raises(BucketUnusable, match="directory buckets"):
            ask(bucket)
    state = deleter.delete_all(bucket, ["a"]).result(20).state(0)

    assert (state.kind, state.code, state.effect) == (Kind.UNUSABLE, "UnsupportedBucket", Effect.NONE)
    assert "directory buckets (S3 Express One Zone) are not supported" in state.message
    assert s3.requests == []


@pytest.mark.parametrize(
    "bucket",
    [
        "",
        "no/bucket",
        "../up",
        "s3://bucket",
        "tenant:bucket",
        "b" * 256,
        "arn:aws:s3::123456789012:accesspoint/mfzwi23gnjvgw.mrap",
        "arn:aws:s3-object-lambda:eu-west-1:123456789012:accesspoint/lambda",
        "arn:aws:s3-outposts:eu-west-1:123456789012:outpost/op-01/accesspoint/ap",
        "arn:aws:s3:eu-west-1:123456789012:accesspoint/with/parts",
        "arn:aws:sns:eu-west-1:123456789012:topic",
        "\ud800",
        "new\nline",
    ],
)
def test_p_10_what_botocore_cannot_address_is_that_buckets_own_end(
    bucket: str, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """P-10: whatever it raises is a state of that bucket alone; others go on."""
    s3.buckets.fill("bucket", {"a": b""})

    for ask in (deleter.probe, deleter.look_up):
        with pytest.raises(BucketUnusable):
            ask(bucket)
    state = deleter.delete_all(bucket, ["a"]).result(20).state(0)
    assert (state.kind, state.effect) == (Kind.UNUSABLE, Effect.NONE)
    assert state.code in ("NotABucketName", "UnsupportedBucket")

    assert deleter.delete_all("bucket", ["a"]).result(20).clean


@pytest.mark.parametrize(
    "bucket", ["Upper_Case", "dotted.bucket.name", "xn--b", "10.0.0.1", "b" * 200, "a..b"]
)
def test_p_10_odd_names_work_where_the_store_has_them(
    bucket: str, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """P-10: over TLS with the host's own certificate, by a path, byte for byte."""
    s3.create_bucket(bucket, dict.fromkeys(KEYS, b""))

    assert deleter.probe(bucket).crc32 == "yes"
    assert deleter.delete_all(bucket, KEYS).result(20).clean
    assert s3.objects(bucket) == {}


@pytest.mark.parametrize(
    ("bucket", "host"),
    [
        ("mine-abcdefg-s3alias", "mine-abcdefg-s3alias.s3.eu-west-3.amazonaws.com"),
        ("dotted.name", "s3.eu-west-3.amazonaws.com"),
        ("Upper_Case", "s3.eu-west-3.amazonaws.com"),
    ],
)
def test_p_10_over_tls_no_name_needs_a_certificate_that_nobody_has(
    bucket: str, host: str, make_deleter: MakeDeleter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-10: AWS' certificates are for one label below its own names; an alias is a name like any other."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")

    assert make_deleter(StoreSettings(region="eu-west-3"))._signer.address(bucket).host == host


@pytest.mark.parametrize(
    "refusal",
    [
        Reply(400, b"<Error><Code>InvalidBucketName</Code><Message>not valid</Message></Error>"),
        Reply(301, REDIRECT.encode()),
        Reply(400, b"<Error><Code>IllegalLocationConstraintException</Code><Message>no</Message></Error>"),
    ],
    ids=lambda reply: str(reply.body[13:40]),
)
def test_p_10_what_waiting_does_not_mend_is_final(
    refusal: Reply, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """P-10: the state of every key says so, with what to do; nothing was done and nothing halved."""
    s3.script(lambda _: refusal)

    for ask in (deleter.probe, deleter.look_up):
        with pytest.raises(StoreRefused) as refused:
            ask("bucket")
        assert (refused.value.kind, bool(refused.value.hint)) == (Kind.UNUSABLE, True)
    asked = len(s3.requests)
    result = deleter.delete_all("bucket", ["a", "c", "b\x01"]).result(20)

    assert {state.kind for state in result.states.values()} == {Kind.UNUSABLE}
    assert (len(result.states), len(s3.requests) - asked) == (3, 2)


@pytest.mark.parametrize("agrees", [True, False])
def test_p_10_who_pays_for_a_requester_pays_bucket_says_so(
    agrees: bool, s3: S3Recorder, make_deleter: MakeDeleter
) -> None:
    """P-10: with the setting it works, without it is a denial whose hint names the setting."""

    def pays(request: Recorded) -> Reply | None:
        if request.headers.get("x-amz-request-payer") == "requester":
            return None
        return Reply(403, b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")

    s3.buckets.fill("bucket", dict.fromkeys(KEYS, b""))
    s3.script(pays)
    deleter = make_deleter(StoreSettings(s3.url, requests_in_flight=4, requester_pays=agrees))

    assert deleter.delete_all("bucket", KEYS).result(20).clean is agrees
    if not agrees:
        with pytest.raises(StoreRefused) as refused:
            deleter.calls.check_bucket("bucket")
        assert refused.value.status == 403
        with pytest.raises(StoreRefused) as refused:
            deleter.calls.put("bucket", "k", b"")
        assert "SEXTON_S3_REQUESTER_PAYS" in str(refused.value.hint)


def test_p_10_a_fault_of_all_addresses_is_no_buckets_fault(
    s3: S3Recorder, deleter: BatchDeleter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-10: what botocore raises for any bucket holds everything, and becomes nobody's dead letter."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no way")

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", fail)

    with pytest.raises(CredentialsUnavailable, match="no way"):
        deleter.look_up("bucket")
    state = deleter.delete_all("bucket", ["a"]).result(20).state(0)
    assert (state.kind, state.effect) == (Kind.ENVIRONMENT, Effect.NONE)
    assert issubclass(CredentialsUnavailable, StoreUnavailable)
