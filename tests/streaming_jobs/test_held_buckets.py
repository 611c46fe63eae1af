"""Once a bucket is closed nothing more is sent there: what comes back waits, and says what may be gone."""

from __future__ import annotations

import pytest
from tests.support.execute_stage import BUSY, ERROR, MISSING, Store, execution, run, sizes, words

from sexton.schemas.events import DoneKeys, KeyProgress, OutcomeKind
from sexton.storage import MAX_KEYS, Delete, KeyState
from sexton.streaming_jobs.reaper.execute.bucket import Bucket
from sexton.streaming_jobs.reaper.execute.items import EraseAll, Item
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome, Presence, Step
from sexton.streaming_jobs.reaper.execute.replies import Replies
from sexton.streaming_jobs.reaper.execute.verification import Verification


def test_x_13_a_bucket_that_was_closed_is_sent_nothing_more() -> None:
    """X-13: of two requests one closes the bucket: what the other one brings waits with what was not sent."""
    store = Store(answer=lambda number, bucket, item: ERROR if number else MISSING)
    _, (result,) = run(store, execution([f"k{n:04d}" for n in range(2_500)]))

    assert sizes(store) == [MAX_KEYS, MAX_KEYS]
    assert result.held is not None
    assert result.held.reason == "NoSuchBucket"
    assert result.keys is not None
    assert (result.keys.done, result.keys.unknown) == ([], [1000, 2000])


def test_x_16_a_later_phase_waits_for_its_bucket() -> None:
    """X-16, X-13: another intent's key closed the bucket: the phase that is gone is reported, its next
    waits.
    """
    store = Store(answer=lambda number, bucket, item: MISSING if item == "x" else None)
    _, (result, _) = run(store, execution(["meta"], ["data"]), execution(["x"]))

    assert result.held is not None
    assert (result.held.reason, result.unknown) == ("NoSuchBucket", True)
    assert result.keys == KeyProgress([DoneKeys(OutcomeKind.DELETED, "deleted", [0, 1])], [], None, ["r0"])
    assert store.objects["b"] == {"data", "x"}


@pytest.mark.parametrize("item", ["a", EraseAll("a")], ids=["a verification", "an erasure"])
def test_x_13_what_a_job_brings_back_to_a_closed_bucket_is_held(item: Item) -> None:
    """X-13: it is not tried again, waits for the bucket's reason, and may be gone as it may have before."""
    replies, bucket = Replies(), Bucket("b", bypass=False)
    bucket.open_circuit(ItemOutcome(None, "NoSuchBucket"))
    cut = ItemOutcome(None, "ReadTimeout", unknown=True)

    if isinstance(item, EraseAll):
        replies.erased(bucket, item, Step.RETRY, cut)
    else:
        replies.verified(bucket, {"a": cut}, {"a": Verification(Presence.PRESENT)})

    assert bucket.idle
    outcome = bucket.keys.entries[item].outcome
    assert (outcome.reason, outcome.unknown) == ("NoSuchBucket", True)


@pytest.mark.parametrize("others", [True, False], ids=["beside another", "alone"])
def test_a_slow_bucket_gives_way_to_the_receipts_of_others(others: bool) -> None:
    """One key of each request goes: after its slice of time the rest waits, unless nobody waits for it."""
    store = Store()

    def one_by_one(number: int, bucket: str, item: str | Delete) -> KeyState | None:
        return BUSY if bucket == "slow" and item != min(map(str, store.sent[number][1])) else None

    store.answer = one_by_one
    given = [execution([f"k{n:03d}" for n in range(100)], bucket="slow")]
    executor, (slow, *rest) = run(store, *given, *([execution(["a"])] if others else []))

    assert [words(result) for result in rest] == [{"deleted": 1}] * others
    assert executor.failing() == ({"slow": "slow-bucket"} if others else {})
    assert (slow.held is not None) is others
    assert 0 < len(store.objects["slow"]) < 100 if others else store.objects["slow"] == set()
