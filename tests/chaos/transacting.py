"""Transactions of a client: started, committed, given up, acknowledged, collected, by whoever comes first."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from tests.chaos.journal import Call, Journal, Offsets, Step, Stepped

from sexton.issuer.client import IssuerClient, TransactionSubject
from sexton.issuer.state.request_ids import new_id
from sexton.schemas.errors import RequestRefused
from sexton.schemas.events import PartitionOffsets

__all__ = ["Roster", "Transactor"]

_TENANTS = ["x0", "x1"]
_CALLS = {Call.START: 40, Call.COMMIT: 40, Call.ACKNOWLEDGE: 20, Call.COLLECT: 12, Call.DECOMMISSION: 1}
_REFUSALS = {  # what a run leads to; any other refusal breaks a promise
    Call.START: {"node-decommissioned"},
    Call.COMMIT: {"transaction-rejected"},
    Call.ACKNOWLEDGE: {"transaction-committed", "transaction-open"},
    Call.COLLECT: {"transaction-not-acknowledged"},
    Call.DECOMMISSION: {"node-decommissioned"},
}
_REVOKED = timedelta(hours=2)
_FAR = 1_000_000  # no intent of a run ever stands there
_FAR_S = 0.2


class Roster:
    """What all clients know together: any of them goes on with what another one has started."""

    def __init__(self) -> None:
        self.topic_id: str | None = None
        self.started: deque[tuple[str, int, str]] = deque(maxlen=12)
        self.nodes = ["m0", "m1", "m2"]
        self._used = len(self.nodes)
        self._lock = threading.Lock()

    def retire(self, node: str) -> None:
        """Replace a node that is being decommissioned: its name is never used again."""
        with self._lock:
            if node in self.nodes:
                self.nodes[self.nodes.index(node)] = f"m{self._used}"
                self._used += 1

    def newest(self, tenant: str) -> int:
        """Return the newest transaction that anybody was given, 0 for none."""
        return max((number for name, number, _ in list(self.started) if name == tenant), default=0)


class Transactor:
    """One client's calls about transactions, new ones and repeated ones."""

    def __init__(
        self,
        caller: str,
        choice: random.Random,
        roster: Roster,
        journal: Journal,
        written: Callable[[], Offsets],
        sent: Callable[[], Offsets],
    ) -> None:
        self._caller = caller
        self._random = choice
        self._roster = roster
        self._journal = journal
        self._written = written
        self._sent = sent
        self._open: list[Step] = []
        self._past: list[Step] = []

    def questions(self) -> list[TransactionSubject]:
        """Return what to ask about: the latest transactions of one tenant, and one that never was."""
        tenant = self._random.choice(_TENANTS)
        newest, partition = self._roster.newest(tenant), self._random.randrange(len(self._written()))
        return [TransactionSubject(tenant, max(0, newest + n), partition) for n in range(-3, 2)]

    def call(self, issuer: IssuerClient, seen: int, deadline: float) -> None:
        """Make one call and note its answer; raises IssuerUnavailable, RequestRefused."""
        step = self._step()
        if step is None:
            return
        number, base, offset, refused = step.transaction, None, -1, None
        try:
            if step.call is Call.START:
                granted = issuer.start_transaction(step.node, step.tenant, step.request_id, deadline)
                number, base, offset = granted.transaction, granted.last_committed, granted.log_offset
                self._roster.started.append((step.tenant, number, step.node))
            else:
                offset = self._carry_on(issuer, step, deadline)
        except RequestRefused as error:
            if error.type not in _REFUSALS[step.call]:
                raise
            refused = error.type
        self._journal.stepped.append(Stepped(step, number, base, offset, self._sent(), seen, refused))
        self._journal.reported(offset)
        if step in self._open:
            self._open.remove(step)
        if refused is None:
            self._past = [*self._past[-20:], step]

    def _carry_on(self, issuer: IssuerClient, step: Step, deadline: float) -> int:
        tenant, number, again = step.tenant, step.transaction, step.request_id
        match step.call:
            case Call.COMMIT:
                ends = step.deadlist
                deadline = min(deadline, _FAR_S) if ends and max(ends.offsets) >= _FAR else deadline
                return issuer.commit_transaction(step.node, tenant, number, ends, again, deadline)
            case Call.ACKNOWLEDGE if step.node:
                return issuer.acknowledge_transaction(tenant, number, step.node, again, deadline)
            case Call.ACKNOWLEDGE:
                return issuer.acknowledge_transaction(tenant, number, None, again, deadline, why="gone")
            case Call.COLLECT:
                return issuer.collect_transaction(tenant, number, again, deadline)
            case _:
                self._roster.retire(step.node)
                return issuer.decommission_node(step.node, datetime.now(UTC) - _REVOKED, again, deadline)

    def _step(self) -> Step | None:
        """Something new, or again what was not answered, or what was answered before."""
        kind = self._random.random()
        if self._open and kind < 0.5:
            return self._random.choice(self._open)
        if self._past and kind > 0.9:
            return self._random.choice(self._past)
        step = self._new()
        if step is not None and not (step.deadlist and max(step.deadlist.offsets) >= _FAR):
            self._open = [*self._open[-20:], step]
        return step

    def _new(self) -> Step | None:
        call = self._random.choices(list(_CALLS), list(_CALLS.values()))[0]
        written, started = self._written(), list(self._roster.started)
        if call in (Call.START, Call.DECOMMISSION):
            node = self._random.choice(self._roster.nodes)
            tenant = self._random.choice(_TENANTS) if call is Call.START else ""
            return Step(new_id(), self._caller, call, node, tenant, 0, None, written)
        if not started:
            return None
        latest = call is Call.COMMIT and self._random.random() < 0.8
        tenant, number, node = self._random.choice(started[-2:] if latest else started)
        deadlist = self._deadlist() if call is Call.COMMIT else None
        forced = call is Call.ACKNOWLEDGE and self._random.random() < 0.3
        return Step(new_id(), self._caller, call, "" if forced else node, tenant, number, deadlist, written)

    def _deadlist(self) -> PartitionOffsets | None:
        """None, or a position that is reached already, about now, or never."""
        kind = self._random.random()
        if self._roster.topic_id is None or kind < 0.3:
            return None
        if kind > 0.7:
            offsets = [_FAR for _ in self._written()]
        else:
            offsets = list(self._sent() if kind > 0.6 else self._written())
        return PartitionOffsets(self._roster.topic_id, offsets)
