"""Client threads: they attach, re-attach, transact, judge and raise barriers at any issuer, and again."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence

from confluent_kafka import Producer
from tests.chaos.journal import Answered, Asked, Barred, Journal, Judged, Offsets
from tests.chaos.transacting import Roster, Transactor

from sexton.issuer.client import IssuerClient, Subject
from sexton.issuer.state.request_ids import new_id
from sexton.schemas import records
from sexton.schemas.errors import IssuerUnavailable, RequestRefused
from sexton.schemas.settings import Settings

__all__ = ["PARTITIONS", "Client", "Intents"]

PARTITIONS = 2
_TENANTS = [f"t{i}" for i in range(6)]
_NODES = [f"n{i}" for i in range(3)]


class Intents(threading.Thread):
    """Writes intents all the time, and knows bounds of the end offsets at any moment."""

    def __init__(self, settings: Settings, stopping: threading.Event) -> None:
        super().__init__(daemon=True)
        self._topic = settings.topic(records.INTENTS)
        self._producer = Producer(settings.kafka(**{"enable.idempotence": True, "acks": "all"}))
        self._stopping = stopping
        self._written = [0] * PARTITIONS
        self._sent = [0] * PARTITIONS

    def run(self) -> None:
        """Write until told to stop."""
        while not self._stopping.is_set():
            for partition in range(PARTITIONS):
                self._sent[partition] += 1
                self._producer.produce(self._topic, b"x", partition=partition, on_delivery=self._delivered)
            self._producer.poll(0.005)
        self._producer.flush(10)

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            partition, offset = message.partition(), message.offset()  # type: ignore[attr-defined]
            self._written[partition] = max(self._written[partition], offset + 1)

    def written(self) -> Offsets:
        """The end offsets are at least these."""
        return tuple(self._written)

    def sent(self) -> Offsets:
        """The end offsets are at most these."""
        return tuple(self._sent)


class Client(threading.Thread):
    """One caller with its own random choices; `aborts` is how it says of calls that it gave up."""

    def __init__(
        self,
        name: str,
        seed: int,
        urls: Sequence[str],
        journal: Journal,
        intents: Intents,
        faults: Counter[str],
        stopping: threading.Event,
        roster: Roster,
        transacting: float,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._random = random.Random(seed)
        self._issuers = [IssuerClient(url, 2.0, name) for url in urls]
        self._journal = journal
        self._intents = intents
        self._faults = faults
        self._stopping = stopping
        self._roster = roster
        self._transacting = transacting
        self._transactor = Transactor(name, self._random, roster, journal, intents.written, intents.sent)
        self._open: list[Asked] = []
        self._past: list[Asked] = []
        self._barrier: Barred | None = None

    def run(self) -> None:
        """Call until told to stop."""
        while not self._stopping.is_set():
            before = self._journal.begin()
            abort = self._random.random() < 0.01
            try:
                self._call(before, 0.004 if abort else self._random.choice([0.5, 2.0]))
            except IssuerUnavailable:
                with self._journal.lock:
                    self._journal.lost += 1
                    self._faults["client gives up"] += abort
                self._stopping.wait(0.02)
            except RequestRefused as error:
                self._journal.refused.append(f"{error.type}: {error}")
            finally:
                self._journal.end()
        for issuer in self._issuers:
            issuer.close()

    def _call(self, before: int, deadline: float) -> None:
        issuer = self._random.choice(self._issuers)
        kind = self._random.random()
        if self._random.random() < self._transacting:
            self._transactor.call(issuer, before, deadline)
        elif kind < 0.5:
            self._issue(issuer, deadline)
        elif kind < 0.6:
            written = self._intents.written()
            answer = issuer.barrier(deadline=deadline)
            self._roster.topic_id = answer.topic_id
            self._barrier = Barred(answer.log_offset, answer.ends, written, self._intents.sent())
            self._journal.barred.append(self._barrier)
            self._journal.reported(answer.log_offset)
        else:
            self._judge(issuer, before, deadline)

    def _issue(self, issuer: IssuerClient, deadline: float) -> None:
        asked = self._request()
        if asked.tenant is None:
            granted = issuer.re_attach_all(asked.node, asked.request_id, deadline)
        else:
            granted = [issuer.attach(asked.node, asked.tenant, asked.request_id, deadline)]
        sent = self._intents.sent()
        offset = max((each.log_offset for each in granted), default=-1)
        numbers = {each.tenant: each.generation for each in granted}
        self._journal.answered.append(Answered(asked, numbers, offset, sent))
        self._journal.reported(offset)
        if asked in self._open:
            self._open.remove(asked)
        if granted:  # an answer of nothing leaves nothing in the log: its id is not bound
            self._past = [*self._past[-20:], asked]

    def _request(self) -> Asked:
        """Something new, or again what was not answered, or what was answered before."""
        kind = self._random.random()
        if self._open and kind < 0.7:
            return self._random.choice(self._open)
        if self._past and kind > 0.85:
            return self._random.choice(self._past)
        tenant = None if self._random.random() < 0.2 else self._random.choice(_TENANTS)
        node = self._random.choice(_NODES)
        asked = Asked(new_id(), self.name, node, tenant, self._intents.written())
        self._open = [*self._open[-20:], asked]
        return asked

    def _judge(self, issuer: IssuerClient, before: int, deadline: float) -> None:
        newest = max((n for a in self._journal.answered[-20:] for n in a.granted.values()), default=1)
        subjects = [
            Subject(
                self._random.choice([*_TENANTS, "unknown"]),
                max(0, newest + self._random.randint(-40, 3)),
                self._random.randrange(PARTITIONS),
            )
            for _ in range(20)
        ]
        questions = self._transactor.questions()
        barrier = self._barrier if self._random.random() < 0.5 else None
        at_least = barrier.log_offset if barrier else None
        answer = issuer.validate([*subjects, *questions], at_least, deadline)
        self._roster.topic_id = answer.topic_id
        seen, ends = (before, ()) if barrier is None else (-1, barrier.ends)
        least = -1 if at_least is None else at_least
        asked, about = frozenset(subjects), frozenset(questions)
        reported = Judged(
            answer.log_offset, least, seen, ends, answer.windows, asked, answer.transactions, about
        )
        self._journal.judged.append(reported)
        self._journal.reported(answer.log_offset)
        time.sleep(0.002)
