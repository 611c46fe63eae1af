"""P-11: what has its final outcome is never executed again, whatever an operator has brought back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.support.chain import Chain, forget_last_commit
from tests.support.crashes import markers
from tests.support.intents import GONE, folded, promised
from tests.support.replies import SLOW_DOWN, on_deletes, partly
from tests.support.s3_recorder import S3Recorder
from tests.support.topics import cut

from sexton.issuer.client import BarrierAnswer
from sexton.schemas import events, records
from sexton.schemas.errors import EnvironmentFault, SextonError
from sexton.streaming_jobs.reaper.batch import MicroBatches
from sexton.streaming_jobs.reaper.dry_run import dry_run
from sexton.streaming_jobs.reaper.recovery.lock import CheckpointLock

pytestmark = [pytest.mark.real, pytest.mark.spark]

NAMES = ["a", "b", "c", "d"]


@pytest.fixture
def s3(s3: S3Recorder) -> S3Recorder:
    """The recorder with a bucket that hides what is deleted."""
    s3.create_bucket("bucket", dict.fromkeys(NAMES, b"x"), versioning="Enabled")
    return s3


def restore(s3: S3Recorder) -> None:
    """Remove every delete marker, as an operator does who wants objects back."""
    for name in NAMES:
        for version in [v for v in s3.versions("bucket", name) if v.is_marker]:
            with s3.buckets.lock:
                s3.buckets.of("bucket").delete(name, version.version_id)


def anew(chain: Chain) -> str:
    """The path of a new checkpoint."""
    return f"{chain.settings.checkpoint}-new"


def each_its_own(chain: Chain) -> list[events.DeletionIntent]:
    """An intent for each object, all in one partition."""
    intents = [promised(chain, name) for name in NAMES]
    chain.emit(*intents)
    return intents


@pytest.mark.slow
def test_p_11_a_new_checkpoint_hides_nothing_that_was_brought_back(chain: Chain, s3: S3Recorder) -> None:
    """P-11: no outcome twice, nothing sent; what is asked for after the restore is done."""
    intents = each_its_own(chain)
    chain.reap(s3_endpoint_url=s3.url)
    assert (folded(chain, *intents), s3.objects("bucket")) == ([GONE] * 4, {})
    restore(s3)
    again = promised(chain, "d")
    chain.emit(again)
    sent = len(s3.deletes())

    counts = chain.reap(s3_endpoint_url=s3.url, checkpoint=anew(chain))

    assert counts.intents == {"settled-before": 4, "deleted": 1}
    assert sorted(s3.objects("bucket")) == ["a", "b", "c"]
    assert (len(chain.outcomes()), len(s3.deletes())) == (5, sent + 1)
    assert chain.reap(s3_endpoint_url=s3.url, checkpoint=anew(chain)).records == 0


@pytest.mark.slow
def test_p_11_what_waited_and_what_is_dead_is_not_done_again(chain: Chain, s3: S3Recorder) -> None:
    """P-11: intents with copies in the delay queue, one whose key failed, and bytes that are no intent."""
    waited, failed = promised(chain, "a"), promised(chain, "b", "c")
    chain.emit(waited)
    s3.script(on_deletes(lambda request: SLOW_DOWN))
    given: dict[str, Any] = {"s3_endpoint_url": s3.url, "reaper_patience_s": 0.2}
    chain.reap(**given, reaper_defer_delays_s=(3600.0,))
    chain.emit(failed)
    chain.produce(b"no intent", partition=0)
    s3.script(on_deletes(lambda request: partly(s3, request, dict.fromkeys({"b"}, "AccessDenied"))))
    chain.reap(**given, reaper_defer_delays_s=(0.001,))
    assert (folded(chain, waited, failed), len(chain.dead_letters())) == ([GONE, "dead-lettered"], 2)
    copies, outcomes = len(chain.deferred()), len(chain.outcomes())
    assert copies > 0
    restore(s3)
    s3.script(None)

    counts = chain.reap(**given, reaper_defer_delays_s=(0.001,), checkpoint=anew(chain))

    assert counts.intents == {"settled-before": 3 + copies}
    assert sorted(s3.objects("bucket")) == NAMES
    assert [len(x) for x in (chain.outcomes(), chain.dead_letters(), chain.deferred())] == [
        outcomes,
        2,
        copies,
    ]


@pytest.mark.slow
def test_p_11_what_still_waits_is_done_once_by_its_last_copy(chain: Chain, s3: S3Recorder) -> None:
    """P-11: a new checkpoint goes on where the old one stood, and not from several copies at once."""
    waits = promised(chain, "a")
    chain.emit(waits)
    s3.script(on_deletes(lambda request: SLOW_DOWN))
    given: dict[str, Any] = {"s3_endpoint_url": s3.url, "reaper_patience_s": 0.2}
    chain.reap(**given, reaper_defer_delays_s=(3600.0,))
    chain.reap(**given, reaper_defer_delays_s=(0.001, 3600.0))
    copies = len(chain.deferred())
    assert copies > 1
    s3.script(None)

    counts = chain.reap(**given, reaper_defer_delays_s=(0.001, 0.001), checkpoint=anew(chain))

    assert counts.intents == {"settled-before": copies, "deleted": 1}
    assert (folded(chain, waits), len(chain.outcomes())) == ([GONE], 1)
    assert markers(s3, "bucket", ["a"]) == {"a": 1}


@pytest.mark.slow
def test_p_11_a_new_checkpoint_that_ends_halfway_looks_again(
    chain: Chain, s3: S3Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-11: also where Spark's checkpoint is in use already, and not yet as far as the old one was."""
    intents = each_its_own(chain)
    chain.reap(s3_endpoint_url=s3.url)
    restore(s3)
    real, seen = MicroBatches._barrier, []

    def once(self: MicroBatches) -> BarrierAnswer:
        seen.append(1)
        if len(seen) > 1:
            raise RuntimeError("ended here")
        return real(self)

    given: dict[str, Any] = {
        "s3_endpoint_url": s3.url,
        "reaper_intents_per_trigger": 2,
        "checkpoint": anew(chain),
    }
    with monkeypatch.context() as patch:
        patch.setattr(MicroBatches, "_barrier", once)
        with pytest.raises(SextonError, match="ended here"):
            chain.reap(**given)

    counts = chain.reap(**given)

    assert counts.intents == {"settled-before": 2}
    assert sorted(s3.objects("bucket")) == NAMES
    assert (folded(chain, *intents), len(chain.outcomes())) == ([GONE] * 4, 4)


def test_p_11_a_replay_after_a_crash_hides_nothing_either(chain: Chain, s3: S3Recorder) -> None:
    """P-11: outcomes were written, the offsets were not committed, and objects brought back meanwhile."""
    intents = each_its_own(chain)
    chain.reap(s3_endpoint_url=s3.url)
    forget_last_commit(chain)
    restore(s3)

    counts = chain.reap(s3_endpoint_url=s3.url)

    assert counts.intents == {"settled-before": 4}
    assert sorted(s3.objects("bucket")) == NAMES
    assert (folded(chain, *intents), len(chain.outcomes())) == ([GONE] * 4, 4)


def test_p_11_a_micro_batch_that_was_held_hides_nothing_either(
    chain: Chain, s3: S3Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-11: held once its outcomes were written, and tried again by the same process, for what is left."""
    intents = each_its_own(chain)
    real, calls = CheckpointLock.check, []

    def check(self: CheckpointLock) -> None:
        calls.append(1)
        if len(calls) == 2:
            restore(s3)
            raise EnvironmentFault("nobody answers")
        real(self)

    monkeypatch.setattr(CheckpointLock, "check", check)

    counts = chain.reap(s3_endpoint_url=s3.url)

    assert counts.intents == {"settled-before": 4}
    assert sorted(s3.objects("bucket")) == NAMES
    assert (folded(chain, *intents), len(chain.outcomes())) == ([GONE] * 4, 4)


@pytest.mark.slow
def test_p_11_where_outcomes_are_gone_an_unknown_is_not_a_yes(chain: Chain, s3: S3Recorder) -> None:
    """P-11: retention has taken outcomes: a dead letter with the raw bytes, which a person may replay."""
    intents = [promised(chain, NAMES[n % 3]) for n in range(9)]
    chain.emit(*intents)
    chain.reap(s3_endpoint_url=s3.url)
    ends = Counter(message.partition() or 0 for message in chain.messages(records.OUTCOMES))
    kept = max(ends, key=lambda partition: ends[partition])  # three of nine at least
    for partition, end in ends.items():
        cut(chain, records.OUTCOMES, end - (partition == kept), partition)
    restore(s3)
    late = promised(chain, "d")
    chain.emit(late)

    counts = chain.reap(s3_endpoint_url=s3.url, checkpoint=anew(chain))

    assert counts.intents == {"settled-before": 1, "dead-lettered": 8, "deleted": 1}
    letters = chain.dead_letters()
    assert {letter.reason for letter in letters} == {"outcome-unknown"}
    assert len({letter.raw_value for letter in letters}) == 8
    assert sorted(s3.objects("bucket")) == ["a", "b", "c"]


@pytest.mark.slow
def test_p_11_a_dry_run_says_what_a_new_checkpoint_would_do(chain: Chain, s3: S3Recorder) -> None:
    """P-11, X-17: with no checkpoint and with a new one, nothing of what has its final outcome."""
    each_its_own(chain)
    chain.reap(s3_endpoint_url=s3.url)
    late = promised(chain, "d")
    chain.emit(late)

    for checkpoint in (None, anew(chain), chain.settings.checkpoint):
        settings = chain.settings.model_copy(update={"s3_endpoint_url": s3.url, "checkpoint": checkpoint})
        decisions = list(dry_run(settings, chain.spark))
        assert [d.intent_id for d in decisions if isinstance(d, events.Outcome)] == [late.intent_id]
