"""Locks, versions and odd intents through the whole chain: what is refused says why, and nothing hangs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.chain import Chain
from tests.support.crashes import end_before_receipts, markers
from tests.support.intents import GONE, PROMISE, folded, outcome, promised, unchanged
from tests.support.replies import SLOW_DOWN, partly
from tests.support.s3_recorder import Recorded, Reply, S3Recorder
from tests.support.s3_state import etag_of

from sexton.schemas import events, records
from sexton.schemas.events import DeleteMode

pytestmark = [pytest.mark.real, pytest.mark.spark]

UNTIL = datetime(2099, 1, 2, 3, 4, 5, tzinfo=UTC)


def erase(chain: Chain, key: str, version: str, *, bypass: bool = False) -> events.DeletionIntent:
    """An intent that erases one version of a key."""
    action = events.DeleteObjects(
        "bucket", ((key,),), mode=DeleteMode.ERASE_VERSION, bypass_governance=bypass
    )
    guard = events.UnchangedGuard((events.KeyCondition(key, version_id=version),))
    return chain.intent("t", None, (), guards=(*PROMISE, guard), action=action)


def lock(s3: S3Recorder, key: str, mode: str, *, hold: bool = False) -> str:
    """Lock the current version of a key and return its id."""
    version = s3.versions("bucket", key)[-1]
    version.legal_hold = hold
    if mode:
        version.mode, version.retain_until = mode, UNTIL
    return version.version_id


@pytest.mark.slow
def test_locked_versions_are_refused_with_the_date(chain: Chain, s3: S3Recorder) -> None:
    """Object lock and legal hold: `refused`, the date until which is in the outcome, no dead letter."""
    s3.create_bucket("bucket", dict.fromkeys(["kept", "held"], b"x"), locks=True)
    kept = erase(chain, "kept", lock(s3, "kept", "COMPLIANCE"))
    held = erase(chain, "held", lock(s3, "held", "", hold=True))
    chain.emit(kept, held)

    chain.reap(s3_endpoint_url=s3.url)

    assert folded(chain, kept, held) == ["refused", "refused"]
    assert "2099-01-02" in outcome(chain, kept.intent_id).exceptions[0].detail
    assert "legal hold" in outcome(chain, held.intent_id).exceptions[0].detail
    assert (chain.dead_letters(), chain.deferred()) == ([], [])
    assert sorted(s3.objects("bucket")) == ["held", "kept"]


@pytest.mark.parametrize("allowed", [False, True])
def test_a_bypass_needs_the_reapers_permission(chain: Chain, s3: S3Recorder, allowed: bool) -> None:
    """Governance retention is bypassed only if the intent says so and the reaper's settings allow it."""
    s3.create_bucket("bucket", dict.fromkeys(["asks", "does-not"], b"x"), locks=True)
    asks = erase(chain, "asks", lock(s3, "asks", "GOVERNANCE"), bypass=True)
    plain = erase(chain, "does-not", lock(s3, "does-not", "GOVERNANCE"))
    chain.emit(asks, plain)

    chain.reap(s3_endpoint_url=s3.url, reaper_allow_bypass=allowed)

    assert folded(chain, asks, plain) == [GONE if allowed else "refused", "refused"]
    sent = [r for r in s3.requests if r.headers.get("x-amz-bypass-governance-retention")]
    assert all("does-not" not in (*r.keys, r.key) for r in sent)
    assert bool(sent) is allowed


@pytest.mark.slow
def test_replayed_erasures_take_no_other_version(chain: Chain, s3: S3Recorder) -> None:
    """X-19: erased, ended before settling, written again: the replay erases nothing that came since."""
    s3.create_bucket("bucket", dict.fromkeys(["one", "hide"], b"old"), versioning="Enabled")
    one = erase(chain, "one", s3.versions("bucket", "one")[-1].version_id)
    hide = promised(chain, "hide")
    chain.emit(one, hide)
    end_before_receipts(chain, s3_endpoint_url=s3.url)
    s3.buckets.fill("bucket", {"one": b"new"})

    chain.reap(s3_endpoint_url=s3.url)

    assert folded(chain, one, hide) == [GONE, GONE]
    assert s3.objects("bucket") == {"one": b"new"}
    assert markers(s3, "bucket", ["one", "hide"]) == {"one": 0, "hide": 1}


@pytest.mark.slow
def test_x_6_a_busy_listing_is_no_success(chain: Chain, s3: S3Recorder) -> None:
    """X-6: all versions of a key whose listing is throttled: it waits, comes back, and is erased then."""
    s3.create_bucket("bucket", {"a": b"x"}, versioning="Enabled")
    action = events.DeleteObjects("bucket", (("a",),), mode=DeleteMode.ERASE_ALL_VERSIONS)
    intent = chain.intent("t", None, (), guards=PROMISE, action=action)
    s3.script(lambda request: SLOW_DOWN if "versions" in request.query else None)
    chain.emit(intent)
    chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=(3600.0,))
    assert (chain.outcomes(), len(chain.deferred())) == ([], 1)
    s3.script(None)

    chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=(0.001,))

    assert (folded(chain, intent), s3.versions("bucket", "a")) == ([GONE], [])
    assert outcome(chain, intent.intent_id).effects == {"erased": 1}


@pytest.mark.parametrize("prefix", ["", "foo", "/", "fo"])
def test_x_16_a_prefix_that_names_no_folder_is_refused(chain: Chain, s3: S3Recorder, prefix: str) -> None:
    """X-16: empty, or without `/` at its end: nothing goes, and the intent says why."""
    s3.create_bucket("bucket", dict.fromkeys(["foo/a", "foo", "foo-bar/x", "/x"], b""))
    intent = chain.intent("t", None, (), guards=PROMISE, action=events.DeletePrefix("bucket", prefix))
    good = promised(chain, "foo")
    chain.emit(intent, good)

    chain.reap(s3_endpoint_url=s3.url)

    assert len(s3.objects("bucket")) == 3
    assert folded(chain, intent, good) == ["refused", GONE]


def test_contradictory_conditions_on_one_key(chain: Chain, s3: S3Recorder) -> None:
    """Of two intents with different conditions on one key the one that fits is done, the other told truly."""
    s3.create_bucket("bucket", {"k": b"now"})
    right, wrong = unchanged(chain, "k", etag_of(b"now")), unchanged(chain, "k", etag_of(b"then"))
    chain.emit(wrong, right, wrong)

    chain.reap(s3_endpoint_url=s3.url)

    assert s3.objects("bucket") == {}
    assert folded(chain, right) == [GONE]
    assert folded(chain, wrong)[0] in (GONE, "changed")
    assert chain.dead_letters() == []


def test_a_key_in_two_phases_goes_once(chain: Chain, s3: S3Recorder) -> None:
    """The same key in two phases of an intent is one delete; what follows still waits for it."""
    s3.create_bucket("bucket", dict.fromkeys(["m", "d"], b""), versioning="Enabled")
    action = events.DeleteObjects("bucket", (("m",), ("m", "d")))
    intent = chain.intent("t", None, (), guards=PROMISE, action=action)
    chain.emit(intent)

    chain.reap(s3_endpoint_url=s3.url)

    assert [request.keys for request in s3.deletes()] == [["m"], ["d"]]
    assert markers(s3, "bucket", ["m", "d"]) == {"m": 1, "d": 1}
    assert folded(chain, intent) == [GONE]


def test_a_store_that_folds_paths_gets_no_key_that_it_would_fold(chain: Chain, s3: S3Recorder) -> None:
    """X-9: of an intent with odd and plain keys the plain ones go; no sibling of the odd ones is harmed."""
    s3.buckets.traits.fold = lambda key: key.replace("//", "/").lstrip("/")
    s3.create_bucket("bucket", dict.fromkeys(["a/b", "lead", "plain"], b""))
    intent = promised(chain, "a//b", "/lead", "plain")
    chain.emit(intent)

    chain.reap(s3_endpoint_url=s3.url)

    assert sorted(s3.objects("bucket")) == ["a/b", "lead"]
    assert folded(chain, intent) == ["refused"]


@pytest.mark.parametrize("guarded", [True, False])
def test_a_deferred_copy_of_another_topic_proves_nothing(chain: Chain, s3: S3Recorder, guarded: bool) -> None:
    """J-13: a first position of a topic that is no more lets no generation pass; a promise needs none."""
    s3.create_bucket("bucket", {"a": b""})
    with chain.issuer() as issuer:
        generation = issuer.attach("node", "tenant").generation
    action = events.DeleteObjects("bucket", (("a",),))
    intent = chain.intent("tenant", generation, (), guards=None if guarded else PROMISE, action=action)
    other = events.Position("b" * 22, 0, 0)
    copy = events.DeferredIntent(
        other, intent.emitted_at, "test", "", 1, None, None, chain.codec.encode(intent)
    )
    chain.produce(chain.codec.encode(copy), partition=0, topic=records.DEFERRED)

    chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=(0.001,))

    assert folded(chain, intent) == ["stale" if guarded else GONE]
    assert bool(s3.objects("bucket")) is guarded


@pytest.mark.slow
def test_looks_that_are_denied_leave_nothing_untrue(chain: Chain, s3: S3Recorder) -> None:
    """X-19: where HEAD is denied a failed condition waits, and is reported once it can be verified."""
    s3.create_bucket("bucket", {"a": b"other"})
    intent = unchanged(chain, "a", etag_of(b"meant"))
    s3.script(lambda request: Reply(403) if request.method == "HEAD" and request.key == "a" else None)
    chain.emit(intent)
    chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=(3600.0,))
    assert [d.effect_unknown for d in chain.deferred()] == [False]
    s3.script(None)

    chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=(0.001,))

    assert (folded(chain, intent), s3.objects("bucket")) == (["changed"], {"a": b"other"})


def test_an_outcome_with_very_many_exceptions_is_written(chain: Chain, s3: S3Recorder) -> None:
    """I7: tens of thousands of keys, half of them denied: each one has its outcome, in one record."""
    names = [f"k{i:06d}" for i in range(40_000)]
    s3.create_bucket("bucket", dict.fromkeys(names, b""))
    denied = set(names[::2])

    def script(request: Recorded) -> Reply | None:
        if not request.is_delete_objects or request.is_probe:
            return None
        return partly(s3, request, {key: "AccessDenied" for key in request.keys if key in denied})

    s3.script(script)
    intent = promised(chain, *names)
    chain.emit(intent)

    chain.reap(s3_endpoint_url=s3.url)

    (found,) = chain.outcomes()
    assert found.counts == {"deleted": 20_000, "dead-lettered": 20_000}
    assert sorted(chain.dead_letters()[0].keys) == sorted(denied)
    assert len(s3.objects("bucket")) == 20_000


@pytest.mark.slow
def test_a_clock_that_went_back_only_waits(chain: Chain, s3: S3Recorder) -> None:
    """A copy that is dated in the future waits longer; nothing is skipped, and it comes back in the end."""
    s3.create_bucket("bucket", {"a": b""})
    s3.script(lambda request: SLOW_DOWN)
    intent = promised(chain, "a")
    chain.emit(intent)
    given: dict[str, Any] = {"s3_endpoint_url": s3.url, "reaper_patience_s": 0.2}
    chain.reap(**given, reaper_defer_delays_s=(3600.0,))
    s3.script(None)
    with pytest.MonkeyPatch.context() as patch:
        past = (datetime.now(UTC) - timedelta(days=1)).timestamp()
        patch.setattr("sexton.streaming_jobs.reaper.deferred.delay_queue.time.time", lambda: past)
        assert chain.reap(**given, reaper_defer_delays_s=(0.001,)).returned == 0

    chain.reap(**given, reaper_defer_delays_s=(0.001,))

    assert folded(chain, intent) == [GONE]
