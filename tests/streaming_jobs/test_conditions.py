"""Conditions through the whole chain: one that nobody can check, or that cannot hold, never lets a key go."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.chain import Chain
from tests.support.intents import PROMISE
from tests.support.s3_recorder import S3Recorder
from tests.support.s3_state import Traits, etag_of

from sexton.schemas import events
from sexton.schemas.events import DeleteMode, KeyCondition

pytestmark = [pytest.mark.real, pytest.mark.spark]

RIGHT, WRONG = etag_of(b"x"), etag_of(b"y")


def asked(
    chain: Chain,
    bucket: str,
    conditions: Sequence[KeyCondition],
    mode: DeleteMode = DeleteMode.HIDE,
    *,
    promise: bool = True,
) -> str:
    """Emit an intent about one key, and return its id."""
    guards = (*(PROMISE if promise else ()), events.UnchangedGuard(conditions))
    action = events.DeleteObjects(bucket, ((conditions[0].key,),), mode)
    (intent_id,) = chain.emit(chain.intent("t", None, (), guards=guards, action=action))
    return intent_id


@pytest.mark.slow
def test_x_12_conditions_that_exclude_each_other_never_delete(chain: Chain, s3: S3Recorder) -> None:
    """X-12: with a wrong and the right ETag, in either order, the object stays."""
    s3.create_bucket("bucket", {"one": b"x", "two": b"x"})
    asked(chain, "bucket", [KeyCondition("one", WRONG), KeyCondition("one", RIGHT)])
    asked(chain, "bucket", [KeyCondition("two", RIGHT), KeyCondition("two", WRONG)])

    chain.reap(s3_endpoint_url=s3.url)

    assert sorted(s3.objects("bucket")) == ["one", "two"]
    assert {dead.reason for dead in chain.dead_letters()} == {"invalid-intent"}
    assert chain.outcomes() == []


@pytest.mark.parametrize("promise", [False, True], ids=["alone", "with a promise"])
@pytest.mark.parametrize("mode", [DeleteMode.HIDE, DeleteMode.ERASE_VERSION])
@pytest.mark.parametrize("versioning", ["", "Suspended"], ids=["unversioned", "suspended"])
def test_x_12_a_version_id_where_none_tells_objects_apart(
    chain: Chain, s3: S3Recorder, versioning: str, mode: DeleteMode, promise: bool
) -> None:
    """X-12: what was written over under the id `null`, or one that never was, stays: nobody checks it."""
    s3.create_bucket("bucket", {"null": b"old", "bogus": b"old"}, versioning=versioning)
    intents = [
        asked(chain, "bucket", [KeyCondition(name, version_id=name)], mode, promise=promise)
        for name in ("null", *(["bogus"] if not versioning else []))
    ]
    s3.buckets.fill("bucket", {"null": b"new", "bogus": b"new"})

    chain.reap(s3_endpoint_url=s3.url)

    assert s3.objects("bucket") == {"null": b"new", "bogus": b"new"}
    assert chain.words() == dict.fromkeys(intents, "refused")


def test_x_12_an_etag_and_a_version_id_together(chain: Chain, s3: S3Recorder) -> None:
    """X-12: neither is dropped silently: no store is known to check both in one delete."""
    s3.create_bucket("bucket", {"erase": b"x", "hide": b"x"}, versioning="Enabled")
    version = s3.versions("bucket", "erase")[0].version_id
    intents = [
        asked(chain, "bucket", [KeyCondition("erase", WRONG, version)], DeleteMode.ERASE_VERSION),
        asked(chain, "bucket", [KeyCondition("hide", RIGHT, "other")]),
    ]

    chain.reap(s3_endpoint_url=s3.url)

    assert sorted(s3.objects("bucket")) == ["erase", "hide"]
    assert chain.words() == dict.fromkeys(intents, "refused")


@pytest.mark.slow
def test_x_16_a_changed_key_that_comes_back_opens_no_phase(chain: Chain, s3: S3Recorder) -> None:
    """X-16: `changed` beside a key that waits is `changed` when both come back, and its data stays."""
    s3.create_bucket("bucket", dict.fromkeys(["meta", "gone", "busy", "data"], b"x"))
    s3.buckets.traits = Traits(failing={"busy": "SlowDown"})
    guards = (*PROMISE, events.UnchangedGuard([KeyCondition("meta", WRONG)]))
    action = events.DeleteObjects("bucket", (("meta", "gone", "busy"), ("data",)))
    (intent_id,) = chain.emit(chain.intent("t", None, (), guards=guards, action=action))
    chain.reap(s3_endpoint_url=s3.url, reaper_patience_s=0.3, reaper_defer_delays_s=(3600.0,))
    assert [d.effect_unknown for d in chain.deferred()] == [True]
    s3.buckets.traits = Traits()

    chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=(0.001,))

    assert sorted(s3.objects("bucket")) == ["data", "meta"]
    (found,) = chain.outcomes()
    assert (found.intent_id, found.outcome.value) == (intent_id, "refused")
    assert found.counts == {"changed": 1, "deleted": 2, "refused": 1}
