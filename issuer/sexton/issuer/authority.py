"""The protocol: Redis proposes, the log disposes.

Issue: end offsets read → proposal in Redis → event appended with those offsets → log read up to it → valid:
answer; void: Redis set to the log, and again. What has not been read back as valid was never issued, so a
crash or a lost answer at any step costs a number at most, never uses one twice. The end offsets come first:
read after the append they would cover what was written when a successor might have read the index already.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec import UNSET

from sexton.issuer import wire
from sexton.issuer.deadline import Coalescer, Deadline
from sexton.issuer.fold import Request, State
from sexton.issuer.log import LogReader, LogWriter
from sexton.issuer.metrics import Metrics
from sexton.issuer.positions import Ends, Positions
from sexton.issuer.witness import Witness
from sexton.schemas import checks, events
from sexton.schemas.errors import RequestRefused, UsageError
from sexton.schemas.generations import MAX_GENERATION

__all__ = ["GRANTS_PER_EVENT", "Authority", "Granted"]

GRANTS_PER_EVENT = 10_000


@dataclass(frozen=True, slots=True)
class Granted:
    """Generations that were handed out: tenant -> generation, proven by the log up to `log_offset`."""

    request_id: str
    log_offset: int
    generations: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Call:
    """An issue call; `tenants` is None for a re-attach, which takes what the node holds."""

    request_id: str
    caller: str
    operation: events.IssueOperation
    node: str
    tenants: tuple[str, ...] | None
    believed: int | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of an issue call that is appended next."""

    tenants: Sequence[str]
    number: int
    count: int


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
        call = _Call(request_id, caller, operation, asked.node, tenants, asked.generation)
        return self._issue(call, deadline)

    def re_attach(self, asked: wire.ReAttach, deadline: Deadline) -> Granted:
        """Give a node new generations of all that it holds; of nothing, if it holds nothing."""
        request_id, caller = _identity(asked.request_id, asked.caller, asked.node)
        operation = events.IssueOperation.RE_ATTACH
        return self._issue(_Call(request_id, caller, operation, asked.node, None), deadline)

    def _issue(self, call: _Call, deadline: Deadline) -> Granted:
        with self._metrics.issue_seconds.time():
            while True:
                ends = self.read_ends(deadline)
                with self._reader.state() as state:
                    step = _next_step(state, call)
                if isinstance(step, Granted):
                    return step
                self._issue_part(call, step, ends, deadline)

    def _issue_part(self, call: _Call, part: _Part, ends: Ends, deadline: Deadline) -> None:
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
            tenant = state.tenant(asked.tenant)
            if tenant is None or tenant.holder != asked.node or tenant.newest is None:
                raise RequestRefused("not-held", f"{asked.node} does not hold the tenant: {asked.tenant}")
            _check_believed(asked.tenant, asked.generation, tenant.newest)
            now = datetime.now(UTC)
            return events.Detached(request_id, caller, asked.node, asked.tenant, tenant.newest, now)

        return self._end(request_id, binding, asked.tenant, make, deadline)

    def drop(self, asked: wire.Drop, deadline: Deadline) -> wire.Ended:
        """End a tenant: nothing is issued for it afterwards.

        Raises RequestRefused: `tenant-dropped`, `request-id-conflict`.
        """
        checks.check_tenant(asked.tenant)
        request_id, caller = _identity(asked.request_id, asked.caller, "")
        binding = Request(caller, "drop", None, 1)

        def make(state: State) -> events.Dropped:
            _check_alive(state, asked.tenant)
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
                    _check_binding(known, binding, [tenant])
                    return wire.Ended(known.offsets[0], request_id, tenant, known.granted[tenant] or None)
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
    return request_id or uuid.uuid4().hex, caller or node


def _next_step(state: State, call: _Call) -> Granted | _Part:
    """Return the answer once every part is valid, else the part to append next."""
    known = state.request(call.request_id)
    wanted = call.tenants if call.tenants is not None else state.held_by(call.node)
    if known is not None:
        binding = Request(call.caller, call.operation.value, call.node, known.parts)
        _check_binding(known, binding, call.tenants)
        if known.complete:
            return Granted(call.request_id, max(known.offsets.values()), dict(known.granted))
    elif not wanted:
        return Granted(call.request_id, state.log_offset, {})
    for tenant in wanted:
        _check_issuable(state, tenant, call.believed)
    granted = known.granted if known else {}
    left = [tenant for tenant in wanted if tenant not in granted]
    count = known.parts if known else -(-len(left) // GRANTS_PER_EVENT)
    missing = [part for part in range(count) if known is None or part not in known.offsets]
    return _Part(left[: -(-len(left) // len(missing))], missing[0], count)


def _check_binding(known: Request, asked: Request, tenants: Sequence[str] | None) -> None:
    same = (known.caller, known.operation, known.node) == (asked.caller, asked.operation, asked.node)
    if same and tenants is not None:
        same = set(known.granted) <= set(tenants) and (
            not known.complete or len(known.granted) == len(tenants)
        )
    if not same:
        raise RequestRefused("request-id-conflict", "the request id belongs to another call or caller")


def _check_alive(state: State, tenant: str) -> None:
    found = state.tenant(tenant)
    if found is not None and found.dropped:
        raise RequestRefused("tenant-dropped", f"the tenant was dropped: {tenant}", status=410)


def _check_issuable(state: State, tenant: str, believed: int | None) -> None:
    _check_alive(state, tenant)
    newest = state.newest(tenant)
    if newest == MAX_GENERATION:
        raise RequestRefused("generations-exhausted", f"the tenant has used every generation: {tenant}")
    _check_believed(tenant, believed, newest)


def _check_believed(tenant: str, believed: int | None, newest: int | None) -> None:
    if believed is not None and believed != (newest or 0):
        raise RequestRefused(
            "generation-not-newest",
            f"the newest generation of {tenant} is {newest or 'none'}, not {believed}",
        )


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
        span = wire.Span(tenant.first + index, issue.log_offset, issue.node, list(issue.ends))
        if index + 1 < len(tenant.issues):
            span.until = list(tenant.issues[index + 1].high)
        spans.append(span)
    return wire.TenantView(state.log_offset, name, tenant.newest, tenant.holder, tenant.dropped, spans)
