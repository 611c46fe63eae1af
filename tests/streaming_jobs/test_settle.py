"""What single rows say: a dead letter of the keys that failed, an outcome of its keys, a copy of its age."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from sexton.schemas import events
from sexton.schemas.codec import Codec
from sexton.schemas.events import OutcomeKind
from sexton.schemas.intents import MAX_INTENT_BYTES
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.decode import Decoded, Record, Rejected
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome
from sexton.streaming_jobs.reaper.execute.result import Result
from sexton.streaming_jobs.reaper.settle import SettleStage, kind_of

DENIED = ("a", ItemOutcome(OutcomeKind.DEAD_LETTERED, "AccessDenied", "no right"))
UNSENT = [
    (key, ItemOutcome(OutcomeKind.DEAD_LETTERED, "earlier-phase", "a is not gone")) for key in ("x", "y", "z")
]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PASS = events.Verdict(events.VerdictResult.PASS, "pass", "", None)
CODEC = Codec()
ACTION = events.DeleteObjects("bucket", [["a"], ["x", "y", "z"]])
INTENT = events.DeletionIntent("i", "t", NOW, "e", (events.PromiseGuard("op"),), ACTION)
DECODED = Decoded(Record(0, 0, 0, b"t", CODEC.encode(INTENT)), INTENT)
STAGE = SettleStage(CODEC, "sexton.", "id", "", (5.0, 30.0, 180.0, 900.0, 3600.0), NOW, Counts())


@pytest.mark.parametrize("unsent", [0, 1, 3])
def test_a_dead_letter_tells_the_cause_however_many_keys_were_never_sent(unsent: int) -> None:
    """Keys of later phases are named, under the reason of the key that stood in their way."""
    row = STAGE.dead_letter(DECODED, Result(named=[*UNSENT[:unsent], DENIED]), 7)

    assert row is not None
    letter = CODEC.decode(row.value, events.DeadLetter)
    assert (letter.reason, letter.detail, letter.passed_as_of) == ("AccessDenied", "no right", 7)
    assert set(letter.keys) == {"a", *(key for key, _ in UNSENT[:unsent])}


@pytest.mark.parametrize("size", [100, 2 * MAX_INTENT_BYTES, 2 * MAX_INTENT_BYTES + 1])
def test_f_2_a_dead_letter_of_what_is_far_too_large_can_be_written(size: int) -> None:
    """F-2: the raw bytes are kept whole as long as they fit into the topic, else their beginning."""
    row = STAGE.rejected(Rejected(Record(0, 7, 0, b"", bytes(size)), "too-large", "reported"))
    letter = CODEC.decode(row.value, events.DeadLetter)

    assert letter.raw_value is not None
    assert len(row.value) < 4 * 1024 * 1024
    assert len(letter.raw_value) == (size if size <= 2 * MAX_INTENT_BYTES else 256 * 1024)
    assert (letter.topic, letter.position) == ("sexton.intents", events.Position("id", 0, 7))
    assert (letter.reason, letter.detail) == ("too-large", "reported")


WORST_FIRST = ["dead-lettered", "cancelled", "stale", "refused", "changed", "absent", "deleted"]


@pytest.mark.parametrize(("worse", "better"), list(pairwise(WORST_FIRST)))
def test_an_intent_has_the_word_of_its_worst_key(worse: str, better: str) -> None:
    """However many of its keys have a better one."""
    assert kind_of(Result(Counter({OutcomeKind(better): 999, OutcomeKind(worse): 1}))) == worse
    assert kind_of(Result(Counter({OutcomeKind(better): 1, OutcomeKind(worse): 0}))) == better


def exceptions(*named: tuple[str, ItemOutcome], **counts: int) -> list[tuple[str, str, str]]:
    """What an outcome says of single keys, where these keys met something."""
    words = {OutcomeKind(kind): number for kind, number in counts.items()}
    row = STAGE.outcome(DECODED, PASS, Result(Counter(words), list(named)))
    found = CODEC.decode(row.value, events.Outcome).exceptions
    return [(each.key, each.outcome.value, each.detail) for each in found]


def test_an_outcome_names_what_differs_from_what_it_leaves_out() -> None:
    """Left out is what was plainly deleted; where all met something, the most common outcome but
    `refused`.
    """
    deleted, changed, refused = (ItemOutcome(OutcomeKind(kind)) for kind in ("deleted", "changed", "refused"))

    some = exceptions(("a", changed), ("b", changed), changed=2, deleted=1)
    assert some == [("a", "changed", ""), ("b", "changed", "")]
    every = exceptions(("a", changed), ("b", changed), ("c", deleted), changed=2, deleted=1)
    assert every == [("c", "deleted", "")]
    assert exceptions(("a", refused), refused=1) == [("a", "refused", "")]


def test_f_2_an_outcome_of_many_keys_fits_into_a_record() -> None:
    """F-2: after 1,000 keys the outcome alone is reported, and of refused ones that all share it not even
    that.
    """
    long, most = "d" * 501, 1_000
    keys = [(f"k{n:04d}", ItemOutcome(OutcomeKind.REFUSED, detail=long)) for n in range(most + 1)]
    found = exceptions(*keys, ("z", ItemOutcome(OutcomeKind.ABSENT, detail=long)), refused=most + 1, absent=1)

    assert found == [*((key, "refused", long[:500]) for key, _ in keys[:most]), ("z", "absent", "")]


EARLIER = NOW - timedelta(days=1)


@pytest.mark.parametrize("reason", ["SlowDown", "slow-bucket"])
@pytest.mark.parametrize("since", ["never", None, EARLIER], ids=["at first", "after a slice", "again"])
def test_what_is_held_grows_old_from_the_first_time_unless_its_bucket_is_only_slow(
    since: datetime | str | None, reason: str
) -> None:
    """What continues as it can has the shortest delay and no age; all else waits longer each time."""
    waited = None
    if not isinstance(since, str):
        first = events.Position("id", 0, 0)
        waited = events.DeferredIntent(first, NOW, "r", "", 3, None, None, b"", waiting_since=since)
    row = STAGE.held(replace(DECODED, waited=waited), Result(held=ItemOutcome(None, reason)))

    copy = CODEC.decode(row.value, events.DeferredIntent)
    slow, old = reason == "slow-bucket", since == EARLIER
    assert (copy.attempt, row.partition) == ((4, 3) if old and not slow else (1, 0))
    assert copy.waiting_since == (None if slow else EARLIER if old else NOW)
