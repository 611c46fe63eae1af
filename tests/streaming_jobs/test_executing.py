"""What reaches the store, asserted on a server that records every request and checks its signature."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support import s3_api
from tests.support.chain import Chain, forget_last_commit, keys
from tests.support.crashes import without_a_look_back
from tests.support.intents import GONE, folded
from tests.support.replies import partly
from tests.support.s3_recorder import Recorded, Reply, S3Recorder

from sexton.deploy.local import LocalStack
from sexton.schemas import events

pytestmark = [pytest.mark.real, pytest.mark.spark]

PROMISE = (events.PromiseGuard("drop"),)


@pytest.fixture
def s3(stack: LocalStack) -> Iterator[S3Recorder]:
    """A recording S3 server that knows the stack's credentials."""
    with S3Recorder(stack.env["AWS_ACCESS_KEY_ID"], stack.env["AWS_SECRET_ACCESS_KEY"]) as server:
        yield server


def promised(chain: Chain, bucket: str, *names: str, tenant: str = "t") -> events.DeletionIntent:
    """An intent that needs no generation."""
    action = events.DeleteObjects(bucket, (names,))
    return chain.intent(tenant, None, (), guards=PROMISE, action=action)


def test_x_1_keys_of_several_tenants_share_full_requests(chain: Chain, s3: S3Recorder) -> None:
    """X-1: 2,500 keys of several tenants in one partition are requests of 1,000, 1,000 and 500."""
    names = keys("k", 2500)
    s3.create_bucket("bucket", dict.fromkeys([*names, "stays"], b""))
    intents = [
        promised(chain, "bucket", *names[i : i + 50], tenant=f"t{i % 7}") for i in range(0, len(names), 50)
    ]
    ids = chain.emit(*intents)

    counts = chain.reap(s3_endpoint_url=s3.url)

    assert sorted(len(request.keys) for request in s3.deletes()) == [500, 1000, 1000]
    assert list(s3.objects("bucket")) == ["stays"]
    assert chain.words() == dict.fromkeys(ids, "deleted")
    assert (counts.requests, counts.keys_sent, counts.keys["deleted"]) == (3, 2500, 2500)


def test_x_1_2001_keys_and_duplicates(chain: Chain, s3: S3Recorder) -> None:
    """X-1: 2,001 distinct keys are 1,000, 1,000 and 1; duplicates are one element and two outcomes."""
    names = keys("k", 2001)
    s3.create_bucket("bucket", dict.fromkeys(names, b""))
    ids = chain.emit(
        promised(chain, "bucket", *names), promised(chain, "bucket", *names[:900], tenant="other")
    )

    chain.reap(s3_endpoint_url=s3.url)

    assert sorted(len(request.keys) for request in s3.deletes()) == [1, 1000, 1000]
    assert sorted(key for request in s3.deletes() for key in request.keys) == names
    assert chain.words() == dict.fromkeys(ids, "deleted")


def test_same_intent_twice_has_one_effect_on_the_wire(chain: Chain, s3: S3Recorder) -> None:
    """J-6: the same bytes produced twice into one micro-batch are one delete and one outcome."""
    s3.create_bucket("bucket", {"a": b""})
    value = chain.codec.encode(promised(chain, "bucket", "a"))
    chain.produce(value, value, partition=0)

    chain.reap(s3_endpoint_url=s3.url)

    assert [request.keys for request in s3.deletes()] == [["a"]]
    assert list(chain.words().values()) == ["deleted"]


def test_receipts_name_the_request_that_carried_the_keys(chain: Chain, s3: S3Recorder) -> None:
    """I7: an outcome says how many keys went, and names the store's own request ids."""
    s3.create_bucket("bucket", {"a": b"", "b": b""})
    chain.emit(promised(chain, "bucket", "a", "b"))

    chain.reap(s3_endpoint_url=s3.url)

    (outcome,) = chain.outcomes()
    assert (outcome.keys, outcome.counts, outcome.exceptions) == (2, {"deleted": 2}, [])
    assert (outcome.bucket, outcome.verdict.reason, outcome.verdict.log_offset) == ("bucket", "pass", None)
    assert len(outcome.store_request_ids) == 1
    assert outcome.store_request_ids[0]


def test_commit_objects_go_before_their_data(chain: Chain, s3: S3Recorder) -> None:
    """Phases: the request with the commit objects is answered before the one with the data is sent."""
    s3.create_bucket("bucket", dict.fromkeys(["1/meta.json", "1/chunk", "2/meta.json", "2/chunk"], b""))
    for unit in ("1", "2"):
        action = events.DeleteObjects("bucket", ((f"{unit}/meta.json",), (f"{unit}/chunk",)))
        chain.emit(chain.intent("t", None, (), guards=PROMISE, action=action))

    chain.reap(s3_endpoint_url=s3.url)

    assert [request.keys for request in s3.deletes()] == [
        ["1/meta.json", "2/meta.json"],
        ["1/chunk", "2/chunk"],
    ]
    assert s3.objects("bucket") == {}


UNCLEAN = {
    "an empty body": Reply(200, b""),
    "one of two keys and an unexpected key": Reply(
        200, b"<DeleteResult><Deleted><Key>a</Key></Deleted><Deleted><Key>c</Key></Deleted></DeleteResult>"
    ),
    "a cut reply": Reply(200, b"<DeleteResult><Deleted><Key>a</Key></Deleted>"),
}


@pytest.mark.parametrize("what", UNCLEAN)
@pytest.mark.parametrize("times", [1, 1000])
def test_x_5_an_unclean_reply_is_never_a_success(chain: Chain, s3: S3Recorder, what: str, times: int) -> None:
    """X-5: what a reply leaves open is sent again; while it stays open the intent waits."""
    s3.create_bucket("bucket", {"a": b"", "b": b""})
    (asked,) = chain.emit(promised(chain, "bucket", "a", "b"))
    unclean = iter([UNCLEAN[what]] * times)

    def script(request: Recorded) -> Reply | None:
        return next(unclean, None) if request.is_delete_objects and not request.is_probe else None

    s3.script(script)

    chain.reap(s3_endpoint_url=s3.url, reaper_patience_s=2)

    assert chain.dead_letters() == []
    if times == 1:
        assert chain.words() == {asked: "deleted"}
        assert s3.objects("bucket") == {}
    else:
        (waiting,) = chain.deferred()
        assert (waiting.effect_unknown, chain.outcomes()) == (True, [])
        assert sorted(s3.objects("bucket")) == ["a", "b"]


def test_a_store_that_is_away_holds_the_micro_batch(chain: Chain, s3: S3Recorder) -> None:
    """A connection that breaks is waited out: nothing is lost, and the same keys go out again."""
    s3.create_bucket("bucket", {"a": b""})
    (asked,) = chain.emit(promised(chain, "bucket", "a"))
    broken = iter([True, True])

    def script(request: Recorded) -> Reply | None:
        is_delete = request.is_delete_objects and not request.is_probe
        return Reply(drop=True) if is_delete and next(broken, False) else None

    s3.script(script)

    chain.reap(s3_endpoint_url=s3.url)

    assert [request.keys for request in s3.deletes()] == [["a"]] * 3
    assert chain.words() == {asked: "deleted"}
    assert (chain.dead_letters(), s3.objects("bucket")) == ([], {})


def test_x_8_an_absent_key_is_gone_in_the_words_of_every_store(chain: Chain, s3: S3Recorder) -> None:
    """X-8: reported Deleted or NoSuchKey, in a batch, alone or in a replay: gone, and never a dead letter."""
    buckets = ("lenient", "lenient-versions", "strict", "strict-versions")
    for bucket in buckets:
        versioning = "Enabled" if bucket.endswith("versions") else ""
        s3.create_bucket(bucket, {"a": b"", "b": b""}, versioning=versioning)

    def script(request: Recorded) -> Reply | None:
        if not request.bucket.startswith("strict") or request.is_probe:
            return None
        there = s3.objects(request.bucket)
        if request.method == "DELETE" and request.key not in there:
            return s3_api.error_reply(404, "NoSuchKey", "the specified key does not exist")
        if request.is_delete_objects:
            return partly(s3, request, dict.fromkeys(set(request.keys) - there.keys(), "NoSuchKey"))
        return None

    s3.script(script)
    asked = {
        (bucket, *names): promised(chain, bucket, *names)
        for bucket in buckets
        for names in (["a", "never-there"], ["nor-there"], ["b"])
    }
    chain.emit(*asked.values())
    chain.reap(s3_endpoint_url=s3.url)
    forget_last_commit(chain)

    with without_a_look_back():
        chain.reap(s3_endpoint_url=s3.url)

    assert folded(chain, *asked.values()) == [GONE] * len(asked)
    for bucket in ("strict", "strict-versions"):
        absent = asked[bucket, "nor-there"].intent_id
        assert {o.outcome.value for o in chain.outcomes() if o.intent_id == absent} == {"absent"}
    assert (chain.dead_letters(), chain.deferred()) == ([], [])
    assert [s3.objects(bucket) for bucket in buckets] == [{}] * 4


def test_x_9_odd_spellings_are_carried_byte_exact(chain: Chain, s3: S3Recorder) -> None:
    """X-9: each odd key goes and the sibling that a careless client would hit stays."""
    odd = [
        "a/../b",
        "./b",
        "..",
        "/x",
        "x//y",
        "a%2Fb",
        "t#1",
        "a+b",
        "<&>\"'",
        " s ",
        "e\u0301",
        "]]>",
        "\t",
    ]
    siblings = ["b", "x", "x/y", "a/b", "t", "a b", "s", "\u00e9", "&lt;&amp;&gt;"]
    s3.create_bucket("bucket", dict.fromkeys([*odd, *siblings], b""))
    (asked,) = chain.emit(promised(chain, "bucket", *odd))

    chain.reap(s3_endpoint_url=s3.url)

    assert sorted(s3.objects("bucket")) == sorted(siblings)
    assert chain.words() == {asked: "deleted"}


def test_x_18_outside_the_allow_list_no_request_leaves(chain: Chain, s3: S3Recorder) -> None:
    """X-18: outside of it is refused, and no request of any kind names that bucket or prefix."""
    s3.create_bucket("bucket", {"in/a": b"", "in/b": b"", "out/b": b"", "in": b"", "inside/c": b""})
    s3.create_bucket("other", {"in/c": b""})
    before = {bucket: s3.objects(bucket) for bucket in ("bucket", "other")}
    prefixes = [
        chain.intent("t", None, (), guards=PROMISE, action=events.DeletePrefix(bucket, prefix))
        for bucket, prefix in (("bucket", "out/"), ("bucket", "inside/"), ("other", "in/"))
    ]
    condition = events.UnchangedGuard((events.KeyCondition("in/c", etag='"1"'),))
    guarded = events.DeleteObjects("other", (("in/c",),))
    inside, *outside = chain.emit(
        promised(chain, "bucket", "in/a"),
        promised(chain, "bucket", "out/b"),
        promised(chain, "bucket", "in/b", "out/b"),
        promised(chain, "bucket", "in"),
        promised(chain, "bucket", "inside/c"),
        promised(chain, "other", "in/c"),
        chain.intent("t", None, (), guards=(condition,), action=guarded),
        *prefixes,
    )

    chain.reap(s3_endpoint_url=s3.url, allow=("bucket/in/",))

    assert chain.words() == {inside: "deleted", **dict.fromkeys(outside, "refused")}
    assert [request.keys for request in s3.deletes()] == [["in/a"]]
    assert s3.objects("other") == before["other"]
    assert before["bucket"].keys() - s3.objects("bucket").keys() == {"in/a"}
    assert {request.bucket for request in s3.requests} == {"bucket"}
    named = {name for r in s3.requests for name in (r.key, *r.keys, r.query.get("prefix", "")) if name}
    assert {name for name in named if not name.startswith("in/")} == set()
    assert (chain.dead_letters(), chain.deferred()) == ([], [])
