"""What one task does with its records: decode, judge, execute and settle them, and all its state.

Records come in pieces. Requests go out while later pieces are decoded; receipts are made at the end, when
every request is acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from pyspark import TaskContext

from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.storage import StoreSettings, open_deleter
from sexton.storage.wire import open_to_all
from sexton.streaming_jobs.budget import NoBudget, open_budget
from sexton.streaming_jobs.reaper import clients
from sexton.streaming_jobs.reaper.actions.registry import ROOMS as ACTIONS
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.decode import Decoded, Record, Rejected, decode, decode_deferred, doubted
from sexton.streaming_jobs.reaper.execute.dry_store import DryStore
from sexton.streaming_jobs.reaper.execute.execution import Execution
from sexton.streaming_jobs.reaper.execute.stage import Executor, Limits
from sexton.streaming_jobs.reaper.guards.asking import SUBJECTS_PER_CALL, Questions
from sexton.streaming_jobs.reaper.judge import (
    NotYet,
    Rules,
    judge,
    parse_allow,
    probes_under,
    subjects,
)
from sexton.streaming_jobs.reaper.plan import TaskPlan, check_below
from sexton.streaming_jobs.reaper.recovery.attempts import Attempt, attempt_of
from sexton.streaming_jobs.reaper.settle import UNTRIED, Row, Settler, kind_of

__all__ = ["Work", "open_work", "pieces", "settle", "take"]

DEFERRED = "deferred"
_FIRST_KEYS = 10_000
_INTENTS_PER_SUBJECT = 2
_ASKING_SHARE = 0.25
_BEGUN_BEFORE = "it was begun before, and what became of its keys then is not known"
_PIECE_BYTES = 256 * 1024  # some 3,000 keys, decoded in a few milliseconds


@dataclass(slots=True)
class _Settling:
    """An intent with its verdict, waiting for its requests to be acknowledged."""

    decoded: Decoded
    verdict: events.Verdict
    execution: Execution | None = None


@dataclass(slots=True)
class Work:
    """One task's state."""

    plan: TaskPlan
    codec: Codec
    questions: Questions
    executor: Executor
    settler: Settler
    rules: Rules
    now: datetime
    retried: bool = False
    waiting: list[Decoded] = field(default_factory=list)
    waiting_keys: int = 0
    settling: list[_Settling] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)


def open_work(plan: TaskPlan) -> Work:
    """Return a task's work at its start, with the clients of this process."""
    settings = plan.settings
    now = datetime.now(UTC)
    codec = clients.codec(settings)
    context = TaskContext.get()
    return Work(
        plan=plan,
        codec=codec,
        questions=Questions(clients.issuer(settings), plan.topic_id, plan.log_offset),
        executor=_executor(plan),
        settler=Settler(
            codec, settings.topic_prefix, plan.topic_id, plan.deferred_topic_id, plan.delays, now
        ),
        rules=Rules(parse_allow(settings.allow), settings.reaper_allow_bypass, settings.reaper_prefix_depth),
        now=now,
        # A task that Spark runs once more may have sent everything before.
        retried=context is not None and context.attemptNumber() > 0,
    )


def _executor(plan: TaskPlan) -> Executor:
    settings = plan.settings
    limits = Limits(
        in_flight=settings.reaper_requests_in_flight,
        failure_threshold_s=settings.reaper_patience_s,
        slice_s=settings.reaper_slice_s,
        prefix_objects=settings.reaper_prefix_slice,
        allow_bypass=settings.reaper_allow_bypass,
    )
    if plan.dry_run:
        return Executor(DryStore(), NoBudget(), limits, dry=True)
    store = open_deleter(StoreSettings.of(settings))
    # In this process, not only in the driver's: each can be paused alone, and continues where it stood.
    store.ask_first(clients.lease(settings, plan.holder).check if plan.holder else open_to_all)
    under = probes_under(parse_allow(settings.allow))
    return Executor(store, open_budget(settings, tasks=plan.tasks), limits, plan.held, under)


def take(work: Work, batch: Iterable[Record]) -> None:
    """Take a batch in, piece by piece; raises EnvironmentFault."""
    for piece in pieces(batch):
        _take_in(work, piece)


def pieces(batch: Iterable[Record]) -> Iterator[list[Record]]:
    """Cut a batch: while a piece is decoded nothing new is sent, and that must not let the store idle."""
    piece: list[Record] = []
    size = 0
    for record in batch:
        piece.append(record)
        size += len(record.value or b"")
        if size >= _PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _take_in(work: Work, piece: list[Record]) -> None:
    """Take records in; what needs no question continues at once, the rest waits for a question worth
    asking.
    """
    with work.counts.stage("decode"):
        decoded = _decode(work, piece)
    known: list[Decoded] = []
    with work.counts.stage("judge"):
        for d in decoded:
            new = work.questions.note(subjects(d.intent, partition_of(d)))
            (work.waiting if new else known).append(d)
            work.waiting_keys += len(d.intent.action.keys) if new else 0
    _judge_and_execute(work, known)
    if _worth_asking(work):
        _judge_waiting(work)


def _worth_asking(work: Work) -> bool:
    """Return whether the question is full, or lets many intents go, so that the store works meanwhile.

    The first one goes once it keeps the store busy. Later ones let several intents go for each subject, and a
    share of all that went before: they are few.
    """
    questions = work.questions
    first = not questions.asked and work.waiting_keys >= _FIRST_KEYS
    if len(questions.open) >= SUBJECTS_PER_CALL or first:
        return True
    went = len(work.settling) * _ASKING_SHARE
    return len(work.waiting) >= max(_INTENTS_PER_SUBJECT * len(questions.open), went) > 0


def partition_of(decoded: Decoded) -> int:
    """Return the intents partition in which an intent first stood."""
    return decoded.waited.first.partition if decoded.waited else decoded.record.partition


def _judge_waiting(work: Work) -> None:
    waiting, work.waiting, work.waiting_keys = work.waiting, [], 0
    with work.counts.stage("judge"):
        work.questions.ask(work.counts)
    _judge_and_execute(work, waiting)


def _judge_and_execute(work: Work, decoded: list[Decoded]) -> None:
    with work.counts.stage("judge"):
        passed = _judge(work, decoded)
    with work.counts.stage("execute"):
        for settling in passed:
            settling.execution = _execution(work, settling.decoded)
            work.executor.add(settling.execution)


def _execution(work: Work, decoded: Decoded) -> Execution:
    intent, waited = decoded.intent, decoded.waited
    execution = ACTIONS[type(intent.action)].begin(intent, waited, decoded.before)
    execution.earlier = _earlier(work, decoded)
    if waited is not None and waited.waiting_since is not None:
        limit = timedelta(seconds=work.plan.settings.reaper_age_limit_s)
        execution.overdue = work.now - waited.waiting_since > limit
    return execution


def _earlier(work: Work, decoded: Decoded) -> Attempt | None:
    plan, first = work.plan, work.settler.position(decoded)
    return attempt_of(decoded, first, plan.earlier, plan.replayed, retried=work.retried)


def _decode(work: Work, piece: Iterable[Record]) -> list[Decoded]:
    found: list[Decoded] = []
    counts, intents = work.counts, work.plan.topic == records.INTENTS
    decode_one = decode if intents else decode_deferred
    for record in piece:
        if intents:
            check_below(work.plan, record.partition, record.offset)
        counts.saw(record.partition, record.offset, record.written_at_us)
        if record.offset in work.plan.twins.dropped.get(record.partition, ()):
            # Nothing is written: the later copy of this intent is on Kafka, and gets the one outcome.
            counts.came_due()
            counts.add("duplicate")
            continue
        result = decode_one(work.codec, record)
        if isinstance(result, Decoded):
            if record.offset in work.plan.twins.kept.get(record.partition, ()):
                result = doubted(result)
            found.append(result)
            if result.waited is not None:
                counts.came_due()
                first = result.waited.first
                if first.topic_id == work.plan.topic_id:
                    check_below(work.plan, first.partition, first.offset)
        elif isinstance(result, Rejected):
            counts.add("dead-lettered")
            work.rows.append(work.settler.rejected(result))
        else:
            counts.add("skipped")
    return found


def _judge(work: Work, decoded: list[Decoded]) -> list[_Settling]:
    passed: list[_Settling] = []
    facts = work.questions.facts(work.now)
    for d in decoded:
        judgement = judge(
            d.intent,
            work.settler.position(d),
            facts,
            work.rules,
        )
        if isinstance(judgement, NotYet):
            work.counts.add(DEFERRED, len(d.intent.action.keys))
            work.rows.append(work.settler.waits(d, judgement))
            continue
        settling = _Settling(d, judgement)
        work.settling.append(settling)
        if judgement.result is events.VerdictResult.PASS:
            passed.append(settling)
    return passed


def settle(work: Work) -> list[Row]:
    """Judge and execute what still waits, and return the rows of all, when every request is acknowledged.

    Raises EnvironmentFault when something is wrong with everything: then nothing is settled.
    """
    _judge_waiting(work)
    with work.counts.stage("execute"):
        work.executor.finish()
    with work.counts.stage("settle"):
        return _rows(work)


def _rows(work: Work) -> list[Row]:
    for settling in work.settling:
        _settle_one(work, settling.decoded, settling.verdict, settling.execution)
    counts, executor, sender = work.counts, work.executor, work.executor.sender
    counts.requests, counts.keys_sent, counts.keys_retried = sender.requests, sender.keys_sent, sender.retried
    counts.throttled = sender.throttled
    counts.failing.update(executor.failing())
    counts.healthy |= executor.healthy()
    return work.rows


def _settle_one(work: Work, decoded: Decoded, verdict: events.Verdict, execution: Execution | None) -> None:
    settler, counts = work.settler, work.counts
    if execution is not None:
        result = work.executor.result(execution)
    elif (waited := decoded.waited) and (decoded.before or waited.gone or waited.effect_unknown):
        action = decoded.intent.action
        untried = ACTIONS[type(action)].untried
        result = untried(action, waited, decoded.before, UNTRIED[verdict.result], work.executor.deleter)
    else:
        result = None
    if result is not None:
        if result.continues:
            counts.add(DEFERRED)
            work.rows.append(settler.goes_on(decoded, result))
            return
        if result.held is not None:
            counts.add(DEFERRED, len(decoded.intent.action.keys))
            work.rows.append(settler.held(decoded, result))
            return
        dead = settler.dead_letter(decoded, result)
        if dead is not None:
            work.rows.append(dead)
        counts.settled(kind_of(result).value, {kind.value: n for kind, n in result.counts.items()})
    else:
        kind = UNTRIED[verdict.result].value
        counts.settled(kind, {kind: len(decoded.intent.action.keys)})
        if verdict.result is events.VerdictResult.REFUSED and _earlier(work, decoded) is not None:
            # Allowed then, its keys may be gone. Where it is not allowed now, nothing is verified either.
            verdict = replace(verdict, detail=f"{verdict.detail}; {_BEGUN_BEFORE}")
    work.rows.append(settler.outcome(decoded, verdict, result))
