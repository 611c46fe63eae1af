"""Vetoes and time by two clocks on the whole chain: Kafka, a reaper, and a store with a clock of its own."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.chain import Chain
from tests.support.crashes import end_before_receipts
from tests.support.intents import GONE, PROMISE, folded, promised
from tests.support.s3_recorder import S3Recorder
from tests.support.s3_state import Traits

from sexton.schemas import events

pytestmark = [pytest.mark.real, pytest.mark.spark]

HOUR = timedelta(hours=1)


def now() -> datetime:
    """The reaper's clock."""
    return datetime.now(UTC)


def vetoed(chain: Chain, veto: events.Veto, *names: str) -> events.DeletionIntent:
    """An intent of one phase for each object, which a veto may stop."""
    action = events.DeleteObjects("bucket", tuple((name,) for name in names))
    return replace(chain.intent("t", None, (), guards=PROMISE, action=action), vetoes=[veto])


def test_vetoes_stop_their_own_intents(chain: Chain, s3: S3Recorder) -> None:
    """Expired, or its replacement gone: cancelled, and nothing of it is sent; others are done."""
    s3.create_bucket("bucket", dict.fromkeys(["a", "b", "c", "d", "e", "new"], b"x"))
    intents = [
        vetoed(chain, events.ExpiresAt(now() - HOUR), "a"),
        vetoed(chain, events.ExpiresAt(now() + HOUR), "b"),
        vetoed(chain, events.OnlyWhileExists("never-there"), "c"),
        vetoed(chain, events.OnlyWhileExists("new"), "d"),
        promised(chain, "e"),
    ]
    chain.emit(*intents)

    chain.reap(s3_endpoint_url=s3.url)

    assert folded(chain, *intents) == ["cancelled", GONE, "cancelled", GONE, GONE]
    assert sorted(s3.objects("bucket")) == ["a", "c", "new"]
    reasons = {o.intent_id: o.verdict.reason for o in chain.outcomes()}
    assert [reasons[each.intent_id] for each in intents] == ["expired", "pass", "vanished", "pass", "pass"]
    assert (chain.dead_letters(), chain.deferred()) == ([], [])


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0], ids=["behind", "ahead"])
@pytest.mark.slow
def test_a_store_whose_clock_is_an_hour_off_deletes_nothing_early(
    chain: Chain, s3: S3Recorder, ahead_s: float
) -> None:
    """An instant has passed when both clocks say so: until then it waits, and is done afterwards."""
    s3.create_bucket("bucket", dict.fromkeys(["soon", "late", "kept"], b"x"))
    s3.buckets.traits = Traits(clock_s=ahead_s)
    soon = replace(promised(chain, "soon"), guards=(*PROMISE, events.NotBeforeGuard(now() - HOUR / 2)))
    late = replace(promised(chain, "late"), guards=(*PROMISE, events.NotBeforeGuard(now() + HOUR / 2)))
    kept = vetoed(chain, events.ExpiresAt(now() - HOUR / 2), "kept")
    chain.emit(soon, late, kept)

    chain.reap(s3_endpoint_url=s3.url)

    waits = {"late"} | ({"soon"} if ahead_s < 0 else {"kept"})
    assert set(s3.objects("bucket")) == waits
    assert {copy.reason for copy in chain.deferred()} == {"not-before"}
    assert folded(chain, kept) == [GONE if ahead_s < 0 else "cancelled"]
    s3.buckets.traits = Traits()
    # With a setting of its own, so that workers know nothing of the clock that was.
    chain.reap(s3_endpoint_url=s3.url, reaper_defer_delays_s=(0.001, 60.0), s3_read_timeout_s=9.0)
    assert folded(chain, soon, late) == [GONE, "pending"]
    assert set(s3.objects("bucket")) == waits - {"soon"}


@pytest.mark.slow
def test_i_7_what_was_done_before_a_crash_is_not_called_cancelled(chain: Chain, s3: S3Recorder) -> None:
    """I7: deleted, ended before its receipt, and vetoed since: what is gone is gone, and said so."""
    s3.create_bucket("bucket", dict.fromkeys(["commit", "data", "new"], b"x"))
    intent = vetoed(chain, events.OnlyWhileExists("new"), "commit", "data")
    chain.emit(intent)
    end_before_receipts(chain, s3_endpoint_url=s3.url)
    assert set(s3.objects("bucket")) == {"new"}
    s3.create_bucket("bucket")
    s3.buckets.of("bucket").versions.clear()

    chain.reap(s3_endpoint_url=s3.url)

    assert folded(chain, intent) == [GONE]
    assert chain.dead_letters() == []
