"""A task's work without Spark or a broker: an issuer in memory, a store that is scripted or sends nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from tests.support.execute_stage import Clock, Store

from sexton.issuer.client import Subject, Validation
from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.settings import load
from sexton.schemas.windows import Window
from sexton.streaming_jobs.budget import NoBudget
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.decode import DecodeStage, Record
from sexton.streaming_jobs.reaper.execute.dry_store import DryStore
from sexton.streaming_jobs.reaper.execute.executor import Executor, Limits
from sexton.streaming_jobs.reaper.execute.stage import ExecuteStage
from sexton.streaming_jobs.reaper.guards.asking import Questions
from sexton.streaming_jobs.reaper.judge import JudgeStage, Rules
from sexton.streaming_jobs.reaper.plan import TaskPlan
from sexton.streaming_jobs.reaper.settle import SettleStage
from sexton.streaming_jobs.reaper.work import Work, settle, take

TOPIC_ID, DEFERRED_ID = "t" * 22, "d" * 22
NOW = datetime(2026, 1, 2, tzinfo=UTC)
FIRST = events.Position(TOPIC_ID, 0, 5)
COPY_OFFSET = 99
codec = Codec()
TYPES = {
    records.OUTCOMES: events.Outcome,
    records.DEFERRED: events.DeferredIntent,
    records.DEAD_LETTERS: events.DeadLetter,
}


class Issuer:
    """Knows of each generation the window of one partition (None: it has none), counts its questions."""

    def __init__(self, window: Window | None = None, partition: int = 0) -> None:
        self.asked: list[int] = []
        self._window, self._partition = window, partition

    def validate(self, asked: list[Subject], *, at_least: int) -> Validation:
        self.asked.append(len(asked))
        found = {each: self._window if each.partition == self._partition else None for each in asked}
        return Validation(at_least, TOPIC_ID, found)


def unread() -> NoReturn:
    """What a dry run must not ask for where nothing hangs on the store."""
    raise AssertionError("a dry run has read from the store")


def work_of(
    issuer: Any,
    store: Store | None = None,
    *,
    rules: Rules | None = None,
    slices: int = 1000,
    retried: bool = False,
    wall: datetime | None = None,
    reads: Callable[[], Any] = unread,
    executor: Executor | None = None,
    **plan: Any,
) -> Work:
    """A task's work on a store, else one that sends nothing; `slices` bounds the objects of a prefix.

    `wall` is what the reaper's clock shows while it executes, `reads` what a dry run asks; an `executor` of
    one's own takes the place of these.
    """
    given = TaskPlan(
        **{"settings": load({}), "topic_id": TOPIC_ID, "log_offset": 7, "ends": (10**9,), **plan}
    )
    if executor is None:
        executor = Executor(DryStore(reads), NoBudget(), dry=True)
    if store is not None:
        limits = Limits(failure_threshold_s=2.0, prefix_objects=slices)
        executor = Executor(store, NoBudget(), limits, clock=Clock(), jitter=lambda: 0.0)
    if wall is not None:
        executor.sender.wall = lambda: wall
    counts = Counts()
    questions = Questions(issuer, TOPIC_ID, given.log_offset)
    return Work(
        DecodeStage(codec, given, counts),
        JudgeStage(questions, rules or Rules(), NOW, counts),
        ExecuteStage(executor, given, NOW, counts, retried),
        SettleStage(codec, "", TOPIC_ID, given.deferred_topic_id, (0.0,), NOW, counts),
        counts,
    )


def promised(action: events.Action, *guards: events.Guard, vetoes: Sequence[events.Veto] = ()) -> bytes:
    """An intent about this, that its owner's promise and these lets pass, encoded."""
    every = (events.PromiseGuard("drop"), *guards)
    intent = events.DeletionIntent("intent", "tenant", NOW, "test", every, action, vetoes=vetoes)
    return codec.encode(intent)


def copied(intent: bytes, **given: Any) -> events.DeferredIntent:
    """The copy of an intent that first stood at `FIRST`, and waits since yesterday for the third time."""
    yesterday = NOW - timedelta(days=1)
    copy: dict[str, Any] = {
        "first": FIRST,
        "first_written_at": yesterday,
        "reason": "SlowDown",
        "detail": "",
        "attempt": 3,
        "retry_at": None,
        "raw_key": b"tenant",
        "raw_value": intent,
        "waiting_since": yesterday,
    }
    return events.DeferredIntent(**(copy | given))


def written(
    store: Store | None,
    given: bytes | events.DeferredIntent,
    *,
    issuer: Issuer | None = None,
    **work: Any,
) -> list[Any]:
    """What is written back of an intent, at `FIRST`, or of a copy, from the delay queue."""
    if isinstance(given, events.DeferredIntent):
        waited: dict[str, Any] = {"topic": records.DEFERRED, "deferred_topic_id": DEFERRED_ID}
        task = work_of(issuer or Issuer(), store, **waited, **work)
        record = Record(0, COPY_OFFSET, 0, None, codec.encode(given))
    else:
        task = work_of(issuer or Issuer(), store, **work)
        record = Record(0, FIRST.offset, 0, b"tenant", given)
    take(task, [record])
    return [codec.decode(row.value, TYPES[row.topic]) for row in settle(task)]
