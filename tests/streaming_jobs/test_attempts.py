"""Which attempt before this one may have sent an intent's keys: a pure rule over all that is known."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.task_work import copied, promised

from sexton.schemas import events
from sexton.schemas.events import DeleteObjects
from sexton.streaming_jobs.reaper.decode import Decoded, Record
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt, Replayed, SentBefore, attempt_of
from sexton.streaming_jobs.reaper.recovery.key_progress import Before

NOW = datetime(2026, 1, 2, tzinfo=UTC)
FIRST = events.Position("t" * 22, 2, 5)
ACTION = DeleteObjects("bucket", (("a", "b"),))
BYTES = promised(ACTION)
LEFT = [["a", "b"]]
DOUBTS = Before(LEFT, unknown=frozenset("a"), sent_since=400.0)
ANYTIME = Before(LEFT, unknown=frozenset("a"))
SURE = Before(LEFT)


def found(
    earlier: SentBefore,
    waited: events.DeferredIntent | None = None,
    before: Before | None = None,
    *,
    offset: int = 9,
    replayed: Replayed | None = None,
    retried: bool = False,
) -> Attempt | None:
    """Return the attempt of a record of partition 1, written 900 seconds after 1970."""
    intent = events.DeletionIntent("i", "t", NOW, "test", (events.PromiseGuard("drop"),), ACTION)
    record = Record(1, offset, 900 * 10**6, b"t", BYTES)
    decoded = Decoded(record, intent, waited, before)
    return attempt_of(decoded, FIRST, earlier, replayed, retried=retried)


@pytest.mark.parametrize(("offset", "begun"), [(9, True), (10, False), (11, False)])
def test_x_11_what_was_begun_and_not_committed_may_have_been_sent(offset: int, begun: bool) -> None:
    """X-11: of a record below the end of what was begun, and of no other, since the work was begun."""
    attempt = found(SentBefore({0: 99, 1: 10}, since_s=500.0), offset=offset)

    assert attempt == (Attempt(500.0, was_changed=False) if begun else None)
    assert found(SentBefore({0: 99}, since_s=500.0), offset=offset) is None


@pytest.mark.parametrize(
    ("said", "was_changed"),
    [
        (frozenset([(2, 5)]), True),
        (frozenset([(1, 9)]), False),
        (frozenset(), False),
        (None, None),
    ],
    ids=["said", "of another intent", "not said", "nobody looked"],
)
@pytest.mark.parametrize("retried", [False, True])
def test_j_5_what_a_receipt_said_is_looked_up_where_the_intent_first_stood(
    said: Any, was_changed: bool | None, retried: bool
) -> None:
    """J-5: a copy stands elsewhere than its intent, whose first position receipts name."""
    attempt = found(SentBefore({1: 10}, said, 500.0), copied(BYTES), retried=retried)

    assert attempt == Attempt(None if retried else 500.0, was_changed)


@pytest.mark.parametrize(
    ("before", "since"),
    [(None, 500.0), (SURE, 500.0), (DOUBTS, 400.0), (ANYTIME, None)],
    ids=["nothing known", "nothing in doubt", "sent earlier", "sent at some time"],
)
def test_x_19_the_earliest_attempt_of_all_counts(before: Before | None, since: float | None) -> None:
    """X-19: an object is not younger than the first attempt that may have met it; unknown is not late."""
    assert found(SentBefore({1: 10}, since_s=500.0), copied(BYTES), before) == Attempt(since, False)
    assert found(SentBefore({1: 10}), copied(BYTES), before) == Attempt(None, False)
    late = Before(LEFT, unknown=frozenset("a"), sent_since=600.0)
    assert found(SentBefore({1: 10}, since_s=500.0), copied(BYTES), late) == Attempt(500.0, False)


def test_a_task_that_runs_once_more_may_have_sent_everything() -> None:
    """Whatever the checkpoint says, and nobody knows when."""
    assert found(SentBefore(since_s=500.0), retried=True) == Attempt(None, False)
    assert found(SentBefore(since_s=500.0)) is None


@pytest.mark.parametrize("before", [None, SURE, DOUBTS])
def test_x_11_a_copy_that_is_older_than_a_replay_of_its_record_knows_nothing(before: Before | None) -> None:
    """X-11: the first record may have been worked on since the copy was written, even where it names keys."""
    covering = Replayed({2: 5}, 1_000.0)

    assert found(SentBefore(), copied(BYTES, first=FIRST), before, replayed=covering) == Attempt(None, None)
    for other in (Replayed({2: 6}, 1_000.0), Replayed({2: 5}, 800.0)):
        assert found(SentBefore(), copied(BYTES, first=FIRST), before, replayed=other) is None
    assert found(SentBefore(), replayed=covering) is None


@pytest.mark.parametrize(
    ("unknown", "before", "attempt"),
    [
        (True, None, Attempt(None, None)),
        (True, DOUBTS, None),
        (False, None, None),
        (False, SURE, None),
    ],
    ids=["of some key", "of keys that are named", "of none", "all known"],
)
def test_x_19_an_unknown_effect_is_of_every_key_where_none_is_named(
    unknown: bool, before: Before | None, attempt: Attempt | None
) -> None:
    """X-19: a copy that does not say which keys may be gone makes each of them doubtful."""
    assert found(SentBefore(), copied(BYTES, effect_unknown=unknown), before) == attempt
