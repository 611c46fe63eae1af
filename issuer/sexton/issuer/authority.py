"""The protocol: Redis proposes, the log disposes.

Issue: end offsets read → proposal in Redis → event appended with those offsets → log read up to it → valid:
answer; void: Redis set to the log, and again. What has not been read back as valid was never issued, so a
crash or a lost answer at any step costs a number at most, never uses one twice. The end offsets come first:
read after the append they would cover what was written when a successor might have read the index already.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from msgspec import UNSET

from sexton.issuer import request_ids, wire
from sexton.issuer.deadline import Coalescer, Deadline
from sexton.issuer.decisions import (
    Call,
    Granted,
    Part,
    check_alive,
    check_binding,
    check_in_time,
    held,
    next_step,
)
from sexton.issuer.fold import Request, State
from sexton.issuer.log import LogReader, LogWriter
from sexton.issuer.metrics import Metrics
from sexton.issuer.positions import Ends, Positions
from sexton.issuer.witness import Witness
from sexton.schemas import checks, events
from sexton.schemas.errors import UsageError

__all__ = ["Authority"]


class Authority:
    """Answers the calls of one issuer process; safe for use by several threads."""

    def __init__(
        self, positions: Positions, reader: LogReader, writer: LogWriter, witness: Witness, metrics: Metrics
    ) -> None:
        self._positions = positions
        self._reader = reader
        self._writer = writer
        self._witness = witness
        self._metrics = metrics
        self._ends = Coalescer(positions.read)
        self._barriers = Coalescer(lambda deadline: self._raise_barrier(None, deadline))

    # --- issue ----------------------------------------------------------------------------------------------

    def attach(self, asked: wire.Attach, deadline: Deadline) -> Granted:
        """Give a node the tenants that it asks for.

        Raises RequestRefused: `tenant-dropped`, `generation-not-newest`, `request-id-conflict`,
        `generations-exhausted`.
        """
        if (asked.tenant is None) == (asked.tenants is None):
            raise UsageError("give either tenant or tenants")
        tenants = (asked.tenant,) if asked.tenant is not None else tuple(asked.tenants or ())
        if len(set(tenants)) != len(tenants):
            raise UsageError("a tenant is named twice")
        if asked.generation is not None and len(tenants) != 1:
            raise UsageError("generation goes with a single tenant")
        operation = events.IssueOperation.ATTACH
        for tenant in tenants:
            checks.check_tenant(tenant)
        request_id, caller = _identity(asked.request_id, asked.caller, asked.node)
        call = Call(request_id, caller, operation, asked.node, tenants, asked.generation)
        return self._issue(call, deadline)

    def re_attach(self, asked: wire.ReAttach, deadline: Deadline) -> Granted:
        """Give a node new generations of all that it holds; of nothing, if it holds nothing."""
        request_id, caller = _identity(asked.request_id, asked.caller, asked.node)
        operation = events.IssueOperation.RE_ATTACH
        return self._issue(Call(request_id, caller, operation, asked.node, None), deadline)

    def _issue(self, call: Call, deadline: Deadline) -> Granted:
        with self._metrics.issue_seconds.time():
            while True:
                ends = self.read_ends(deadline)
                with self._reader.state() as state:
                    step = next_step(state, call)
                if isinstance(step, Granted):
                    return step
                self._issue_part(call, step, ends, deadline)

    def _issue_part(self, call: Call, part: Part, ends: Ends, deadline: Deadline) -> None:
        event = events.Issued(
            request_id=call.request_id,
            caller=call.caller,
            operation=call.operation,
            node=call.node,
            part=part.number,
            parts=part.count,
            grants=self._witness.propose(part.tenants, deadline),
            ends=ends.intents,
            issued_at=datetime.now(UTC),
        )
        if self._append(event, event.request_id, part.number, deadline):
            self._metrics.numbers.inc(len(event.grants))
            self._witness.project(part.tenants)
        else:
            self._witness.withdraw(part.tenants)

    def _append(
        self,
        event: events.Issued | events.Detached | events.Dropped,
        request_id: str,
        part: int,
        deadline: Deadline,
    ) -> bool:
        """Append, read back, and tell whether this very event is the valid one of its request and part."""
        offset = self._writer.append(event, deadline)
        self._metrics.events.inc()
        self._reader.wait_for(offset, deadline)
        with self._reader.state() as state:
            request = state.request(request_id)
        valid = request is not None and request.offsets.get(part) == offset
        if not valid:
            self._metrics.voids.labels(self._reader.void_reason(offset)).inc()
        return valid

    # --- detach and drop ------------------------------------------------------------------------------------

    def detach(self, asked: wire.Detach, deadline: Deadline) -> wire.Ended:
        """Take a tenant from its holder; its generation stays the newest until it is superseded.

        Raises RequestRefused: `not-held`, `generation-not-newest`, `request-id-conflict`.
        """
        request_id, caller = _identity(asked.request_id, asked.caller, asked.node)
        binding = Request(caller, "detach", asked.node, 1)

        def make(state: State) -> events.Detached:
            generation = held(state, asked.node, asked.tenant, asked.generation)
            now = datetime.now(UTC)
            return events.Detached(request_id, caller, asked.node, asked.tenant, generation, now)

        return self._end(request_id, binding, asked.tenant, make, deadline)

    def drop(self, asked: wire.Drop, deadline: Deadline) -> wire.Ended:
        """End a tenant: nothing is issued for it afterwards.

        Raises RequestRefused: `tenant-dropped`, `request-id-conflict`.
        """
        checks.check_tenant(asked.tenant)
        request_id, caller = _identity(asked.request_id, asked.caller, "")
        binding = Request(caller, "drop", None, 1)

        def make(state: State) -> events.Dropped:
            check_alive(state, asked.tenant)
            return events.Dropped(request_id, caller, asked.tenant, datetime.now(UTC))

        return self._end(request_id, binding, asked.tenant, make, deadline)

    def _end(
        self,
        request_id: str,
        binding: Request,
        tenant: str,
        make: Callable[[State], events.Detached | events.Dropped],
        deadline: Deadline,
    ) -> wire.Ended:
        while True:
            self.catch_up(deadline)
            with self._reader.state() as state:
                known = state.request(request_id)
                if known is not None:
                    check_binding(known, binding, [tenant])
                    return wire.Ended(known.offsets[0], request_id, tenant, known.granted[tenant] or None)
                check_in_time(state, request_id)
                event = make(state)
            self._append(event, request_id, 0, deadline)

    # --- barriers and positions -----------------------------------------------------------------------------

    def barrier(self, asked: wire.Barrier, deadline: Deadline) -> wire.BarrierAnswer:
        """Append a barrier whose end offsets were read after this call began.

        Calls that carry no unsettled positions share one.
        """
        with self._metrics.barrier_seconds.time():
            if asked.unsettled is None:
                return self._barriers.get(deadline)
            unsettled = events.PartitionOffsets(asked.unsettled.topic_id, asked.unsettled.offsets)
            return self._raise_barrier(unsettled, deadline)

    def _raise_barrier(
        self, unsettled: events.PartitionOffsets | None, deadline: Deadline
    ) -> wire.BarrierAnswer:
        ends = self._ends.get(deadline).intents
        if unsettled is not None and unsettled.topic_id != ends.topic_id:
            raise UsageError(f"unsettled positions of another topic: {unsettled.topic_id}")
        event = events.Barrier(uuid.uuid4().hex, ends, unsettled, datetime.now(UTC))
        offset = self._writer.append(event, deadline)
        # Valid by the rule: `ends` are of the topic that Genesis names, which the reading has checked.
        self._reader.wait_for(offset, deadline)
        self._metrics.events.inc()
        self._metrics.barriers.inc()
        return wire.BarrierAnswer(offset, ends.topic_id, list(ends.offsets))

    def read_ends(self, deadline: Deadline) -> Ends:
        """Read the end offsets and fold the log up to the end that it had then."""
        ends = self._ends.get(deadline)
        self._metrics.fold_lag.set(max(0, ends.log_end - self._reader.next_offset))
        self._reader.wait_for(ends.log_end - 1, deadline)
        return ends

    def catch_up(self, deadline: Deadline) -> None:
        """Fold the log up to the end that it has now."""
        self.read_ends(deadline)

    # --- judge ----------------------------------------------------------------------------------------------

    def validate(self, asked: wire.Validate, deadline: Deadline) -> wire.Validation:
        """Answer each subject with its window, as of `at_least` or later; without it, as of the log's end."""
        if asked.at_least is None:
            self.catch_up(deadline)
        else:
            self._reader.wait_for(asked.at_least, deadline)
        self._witness.agree({subject.tenant for subject in asked.subjects}, deadline)
        with self._reader.state() as state:
            assert state.genesis is not None
            answers = [a for a in (_answer(state, s) for s in asked.subjects) if a is not None]
            validation = wire.Validation(state.log_offset, state.genesis.intents_topic_id, answers)
        self._count(len(asked.subjects), answers)
        return validation

    def newest(self, asked: Sequence[tuple[str, int]], deadline: Deadline) -> list[tuple[str, bool]]:
        """Tell for each known tenant whether the generation is the newest, behind a barrier of its own."""
        self.barrier(wire.Barrier(), deadline)
        self._witness.agree({name for name, _ in asked}, deadline)
        with self._reader.state() as state:
            return [(name, state.newest(name) == g) for name, g in asked if state.known(name)]

    def view(self, tenant: str, history: int, deadline: Deadline) -> wire.TenantView | None:
        """Return a tenant with its newest `history` generations, None when the log does not know it."""
        self.catch_up(deadline)
        with self._reader.state() as state:
            return _view(state, tenant, history)

    def _count(self, asked: int, answers: Sequence[wire.Answer]) -> None:
        newest = sum(answer.newest for answer in answers)
        spans = sum(type(answer.start) is int for answer in answers)
        counts = {"newest": newest, "covered": spans - newest, "never": len(answers) - spans}
        for answer, count in {**counts, "unknown": asked - len(answers)}.items():
            self._metrics.subjects.labels(answer).inc(count)


def _identity(request_id: str | None, caller: str | None, node: str) -> tuple[str, str]:
    return request_id or request_ids.new_id(), caller or node


def _answer(state: State, subject: wire.Subject) -> wire.Answer | None:
    tenant = state.tenant(subject.tenant)
    if tenant is None:
        return None
    answer = wire.Answer(subject.tenant, subject.generation, subject.partition, newest=False)
    if subject.node is not None or subject.node_generation is not None:
        # Parts that the tenant's form does not have: nothing of this generation was ever issued.
        answer.node = UNSET if subject.node is None else subject.node
        answer.node_generation = UNSET if subject.node_generation is None else subject.node_generation
        return answer
    window = tenant.window(subject.generation, subject.partition)
    if window is not None:
        answer.start = window.start
        if window.until is None:
            answer.newest = True
        else:
            answer.until = window.until
    return answer


def _view(state: State, name: str, history: int) -> wire.TenantView | None:
    tenant = state.tenant(name)
    if tenant is None:
        return None
    spans = []
    for index in range(len(tenant.issues) - 1, max(-1, len(tenant.issues) - 1 - history), -1):
        issue = tenant.issues[index]
        span = wire.Span(tenant.first + index, issue.log_offset, issue.node, list(issue.high))
        if index + 1 < len(tenant.issues):
            span.until = list(tenant.issues[index + 1].high)
        spans.append(span)
    return wire.TenantView(state.log_offset, name, tenant.newest, tenant.holder, tenant.dropped, spans)
