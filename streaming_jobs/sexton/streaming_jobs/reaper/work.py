"""One task's work: decode, judge, execute, settle, each a stage that hands values to the next.

Records come in pieces. Requests go out while later pieces are decoded; receipts are made at the end, when
every request is acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark import TaskContext

from sexton.schemas.tenant_prefix import TenantPrefix
from sexton.streaming_jobs.reaper import clients
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.decode import DecodeStage, Record, Rejected
from sexton.streaming_jobs.reaper.execute.stage import ExecuteStage, open_executor
from sexton.streaming_jobs.reaper.guards.asking import Questions
from sexton.streaming_jobs.reaper.judge import JudgeStage, Rules, parse_allow
from sexton.streaming_jobs.reaper.plan import TaskPlan
from sexton.streaming_jobs.reaper.settle import Row, SettleStage

__all__ = ["Work", "open_work", "pieces", "settle", "take"]

_PIECE_BYTES = 256 * 1024  # some 3,000 keys, decoded in a few milliseconds


@dataclass(slots=True)
class Work:
    """The stages of one task in their order, and what the first one could not hand to the second."""

    decode: DecodeStage
    judge: JudgeStage
    execute: ExecuteStage
    settle: SettleStage
    counts: Counts
    rejected: list[Rejected] = field(default_factory=list)


def open_work(plan: TaskPlan) -> Work:
    """Return a task's work at its start, with the clients of this process."""
    settings = plan.settings
    now, counts = datetime.now(UTC), Counts()
    codec, prefix = clients.codec(settings), settings.topic_prefix
    questions = Questions(clients.issuer(settings), plan.topic_id, plan.log_offset)
    template = settings.reaper_tenant_prefix
    rules = Rules(
        parse_allow(settings.allow),
        settings.reaper_allow_bypass,
        settings.reaper_prefix_depth,
        None if template is None else TenantPrefix.parse(template),
    )
    context = TaskContext.get()
    # A task that Spark runs once more may have sent everything before.
    retried = context is not None and context.attemptNumber() > 0
    return Work(
        DecodeStage(codec, plan, counts),
        JudgeStage(questions, rules, now, counts),
        ExecuteStage(open_executor(plan), plan, now, counts, retried),
        SettleStage(codec, prefix, plan.topic_id, plan.deferred_topic_id, plan.delays, now, counts),
        counts,
    )


def take(work: Work, batch: Iterable[Record]) -> None:
    """Take a batch in, piece by piece; raises EnvironmentFault."""
    for piece in pieces(batch):
        decoded, rejected = work.decode.take(piece)
        work.rejected += rejected
        for judged in work.judge.take(decoded):
            work.execute.take(judged)


def settle(work: Work) -> list[Row]:
    """Judge and execute what still waits, and return the rows of all, when every request is acknowledged.

    Raises EnvironmentFault when something is wrong with everything: then nothing is settled.
    """
    work.execute.take(work.judge.finish())
    # In this order: a row that left before the last reply could be a receipt without its effect. Where this
    # raises there are no rows, offsets stay, and the whole task is done again.
    executed = work.execute.finish()
    return work.settle.rows(work.rejected, executed)


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
