"""What a task asks the issuer: subjects of any guard, thousands in one call, each once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from sexton.issuer.client import IssuerClient, Subject, TransactionFact, TransactionSubject
from sexton.schemas.errors import EnvironmentFault
from sexton.schemas.windows import Window
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.guards.room import Asked, Facts

__all__ = ["SUBJECTS_PER_CALL", "Questions"]

SUBJECTS_PER_CALL = 10_000


@dataclass(slots=True)
class Questions:
    """The subjects of one task: those that are `open` wait for the next call, of the others all is known.

    Answers are as of `log_offset`, the micro-batch's barrier, for the intents topic with this id.
    """

    issuer: IssuerClient
    topic_id: str
    log_offset: int
    open: set[Asked] = field(default_factory=set)
    asked: set[Asked] = field(default_factory=set)
    windows: dict[Subject, Window | None] = field(default_factory=dict)
    forgotten: dict[Subject, int] = field(default_factory=dict)
    transactions: dict[TransactionSubject, TransactionFact] = field(default_factory=dict)

    def note(self, subjects: Iterable[Asked]) -> bool:
        """Take in what an intent needs to know; return whether some of it has to be asked first."""
        new = [subject for subject in subjects if subject not in self.asked]
        self.open.update(new)
        return bool(new)

    def ask(self, counts: Counts) -> None:
        """Ask about all that is open; raises EnvironmentFault, also where another topic is judged."""
        ordered = sorted(self.open, key=lambda s: (s.asked_in, s.tenant))
        for start in range(0, len(ordered), SUBJECTS_PER_CALL):
            chunk = ordered[start : start + SUBJECTS_PER_CALL]
            answer = self.issuer.validate(chunk, at_least=self.log_offset)
            if answer.topic_id != self.topic_id:
                raise EnvironmentFault(f"the issuer judges another intents topic: {answer.topic_id}")
            self.windows.update(answer.windows)
            self.forgotten.update(answer.forgotten)
            self.transactions.update(answer.transactions)
            counts.issuer_calls += 1
            counts.subjects += len(chunk)
        self.asked |= self.open
        self.open = set()

    def facts(self, now: datetime) -> Facts:
        """Return what verdicts rest on, now that nothing is open."""
        return Facts(self.topic_id, self.log_offset, now, self.windows, self.forgotten, self.transactions)
