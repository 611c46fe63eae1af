"""Prefixes, versions and the reaper's own rules through the whole chain."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.chain import Chain, keys
from tests.support.intents import PROMISE, outcome
from tests.support.replies import SLOW_DOWN, on_deletes
from tests.support.s3_recorder import S3Recorder
from tests.support.s3_state import etag_of

from sexton.schemas import events

pytestmark = [pytest.mark.real, pytest.mark.spark]


def asked(chain: Chain, action: events.Action, *guards: events.Guard) -> str:
    """Emit an intent and return its id."""
    (intent_id,) = chain.emit(chain.intent("t", None, (), guards=guards or PROMISE, action=action))
    return intent_id


@pytest.mark.slow
def test_x_16_a_prefix_goes_in_slices_and_its_neighbours_stay(chain: Chain, s3: S3Recorder) -> None:
    """X-16: `foo/` goes whole, slice by slice, its tombstone last; `foo` and `foo-bar/x` stay."""
    names = keys("foo", 2500)
    s3.create_bucket("bucket", dict.fromkeys([*names, "foo", "foo-bar/x", "tombs/foo"], b""))
    asked(chain, events.DeletePrefix("bucket", "foo/", tombstone="tombs/foo"))
    given: dict[str, Any] = {
        "s3_endpoint_url": s3.url,
        "reaper_defer_delays_s": (0.001,),
        "reaper_prefix_slice": 1000,
    }

    chain.reap(**given)

    assert sorted(s3.objects("bucket")) == ["foo", "foo-bar/x"]
    (found,) = chain.outcomes()
    assert (found.outcome.value, found.counts) == ("deleted", {"deleted": 2501})
    assert [d.gone for d in chain.deferred()] == [1000, 2000]
    assert {d.reason for d in chain.deferred()} == {"slice"}
    last = [r for r in s3.requests if not r.is_probe and (r.is_delete_objects or r.method == "DELETE")][-1]
    assert [*last.keys, last.key] in (["tombs/foo", ""], ["tombs/foo"])


def test_x_16_a_prefix_without_its_owners_promise_is_refused(chain: Chain, s3: S3Recorder) -> None:
    """X-16: what others wrote since lies there too: nothing but the owner's promise lets a prefix go."""
    s3.create_bucket("bucket", {"foo/a": b""})
    with chain.issuer() as issuer:
        generation = issuer.attach("node", "tenant").generation
    intent_id = asked(
        chain, events.DeletePrefix("bucket", "foo/"), events.GenerationGuard("tenant", generation)
    )

    chain.reap(s3_endpoint_url=s3.url)

    found = outcome(chain, intent_id)
    assert (found.outcome.value, found.verdict.reason) == ("refused", "prefix-needs-promise")
    assert list(s3.objects("bucket")) == ["foo/a"]


def test_versions_are_hidden_or_erased_as_asked(chain: Chain, s3: S3Recorder) -> None:
    """Hide leaves one marker, erase_version takes exactly that one, erase_all_versions all of them."""
    s3.create_bucket("bucket", versioning="Enabled")
    for _ in range(3):
        s3.buckets.fill("bucket", dict.fromkeys(["hide", "one", "all", "other"], b""))
    oldest = s3.versions("bucket", "one")[0].version_id
    hide = asked(chain, events.DeleteObjects("bucket", (("hide",),)))
    one = asked(
        chain,
        events.DeleteObjects("bucket", (("one",),), mode=events.DeleteMode.ERASE_VERSION),
        *PROMISE,
        events.UnchangedGuard((events.KeyCondition("one", version_id=oldest),)),
    )
    everything = asked(
        chain, events.DeleteObjects("bucket", (("all", "none"),), mode=events.DeleteMode.ERASE_ALL_VERSIONS)
    )

    chain.reap(s3_endpoint_url=s3.url)

    assert [v.is_marker for v in s3.versions("bucket", "hide")] == [False, False, False, True]
    assert oldest not in [v.version_id for v in s3.versions("bucket", "one")]
    assert len(s3.versions("bucket", "one")) == 2
    assert (s3.versions("bucket", "all"), len(s3.versions("bucket", "other"))) == ([], 3)
    assert outcome(chain, hide).effects == {"hidden": 1}
    assert outcome(chain, one).effects == {"erased": 1}
    assert outcome(chain, everything).effects == {"erased": 1, "absent": 1}
    assert outcome(chain, everything).outcome.value == "absent"


def test_x_12_a_condition_is_checked_by_the_store_or_refused(chain: Chain, s3: S3Recorder) -> None:
    """X-12: with the right ETag it goes, with another it is `changed` and stays."""
    s3.create_bucket("bucket", {"right": b"1", "wrong": b"2"})
    right, wrong = etag_of(b"1"), etag_of(b"2")
    good = asked(
        chain,
        events.DeleteObjects("bucket", (("right",),)),
        events.UnchangedGuard((events.KeyCondition("right", etag=right),)),
    )
    bad = asked(
        chain,
        events.DeleteObjects("bucket", (("wrong",),)),
        events.UnchangedGuard((events.KeyCondition("wrong", etag=right),)),
    )
    assert right != wrong

    chain.reap(s3_endpoint_url=s3.url)

    assert chain.words() == {good: "deleted", bad: "changed"}
    assert list(s3.objects("bucket")) == ["wrong"]


@pytest.mark.slow
def test_a_prefix_past_its_age_limit_says_what_is_left(chain: Chain, s3: S3Recorder) -> None:
    """X-19: held past the age limit a prefix is a dead letter if something is there, and waits unseen."""
    s3.create_bucket("bucket", {"foo/a": b""})
    s3.script(on_deletes(lambda request: SLOW_DOWN))
    intent_id = asked(chain, events.DeletePrefix("bucket", "foo/"))
    given: dict[str, Any] = {"s3_endpoint_url": s3.url, "reaper_patience_s": 0.2, "reaper_age_limit_s": 0.01}

    chain.reap(**given, reaper_defer_delays_s=(3600.0,))
    assert len(chain.deferred()) == 1
    chain.reap(**given, reaper_defer_delays_s=(0.001,))

    assert outcome(chain, intent_id).outcome.value == "dead-lettered"
    (dead,) = chain.dead_letters()
    assert (dead.reason, dead.keys) == ("expired", ["foo/"])


def test_odd_keys_go_one_by_one_and_their_neighbours_in_a_batch(chain: Chain, s3: S3Recorder) -> None:
    """X-2, X-3: what XML cannot carry goes by itself; nothing else goes with it, siblings stay."""
    odd = ["b\x01c", "x\uffff", "a\rb", "n\x00l"]
    plain = ["a", "d"]
    siblings = ["a\nb", "bc", "x", "ab"]
    s3.create_bucket("bucket", dict.fromkeys([*odd, *plain, *siblings], b""))
    intent_id = asked(chain, events.DeleteObjects("bucket", ((*odd, *plain),)))

    chain.reap(s3_endpoint_url=s3.url)

    assert sorted(s3.objects("bucket")) == sorted(siblings)
    assert outcome(chain, intent_id).counts == {"deleted": 6}
    assert sorted(request.key for request in s3.singles()) == sorted(odd)
    assert [sorted(request.keys) for request in s3.deletes()] == [plain]


def test_all_versions_of_an_odd_key_go_once_the_store_was_tried(chain: Chain, s3: S3Recorder) -> None:
    """A key that a store might fold is not refused for want of a probe."""
    names = ["my file.txt", "a//b", "plain"]
    s3.create_bucket("bucket", dict.fromkeys(names, b"x"), versioning="Enabled")
    action = events.DeleteObjects("bucket", (tuple(names),), mode=events.DeleteMode.ERASE_ALL_VERSIONS)
    intent_id = asked(chain, action)

    chain.reap(s3_endpoint_url=s3.url)

    assert outcome(chain, intent_id).counts == {"deleted": 3}
    assert [s3.versions("bucket", name) for name in names] == [[], [], []]
