"""The protocol: Redis proposes, the log disposes.

Issue: end offsets read → proposal in Redis → event appended with those offsets → log read up to it → valid:
answer; void: Redis set to the log, and again. What has not been read back as valid was never issued, so a
crash or a lost answer at any step costs a number at most, never uses one twice. The end offsets come first:
read after the append they would cover what was written when a successor might have read the index already.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from msgspec import UNSET

from sexton.issuer import wire
from sexton.issuer.deadline import Coalescer, Deadline
from sexton.issuer.journal import Journal
from sexton.issuer.log import LogReader, LogWriter
from sexton.issuer.metrics import Metrics
from sexton.issuer.operations.issuing import Call, Granted, Part, issued_event, next_step
from sexton.issuer.positions import Ends, Positions
from sexton.issuer.registrar import Registrar, identity
from sexton.issuer.state import Numbered, State, Tenant
from sexton.issuer.witness import Witness
from sexton.schemas import checks, events
from sexton.schemas.errors import UsageError
from sexton.schemas.events import GenerationForm

__all__ = ["Authority"]


class Authority:
    """Answers the calls of one issuer process; safe for use by several threads."""

    def __init__(
        self, positions: Positions, reader: LogReader, writer: LogWriter, witness: Witness, metrics: Metrics
    ) -> None:
        self._journal = Journal(positions, reader, writer, metrics)
        self._reader = reader
        self._witness = witness
        self._metrics = metrics
        self.registrar = Registrar(self._journal, witness)
        self._barriers = Coalescer(lambda deadline: self._raise_barrier(None, deadline))

    # --- issue ----------------------------------------------------------------------------------------------

    def attach(self, asked: wire.Attach, deadline: Deadline) -> Granted:
        """Give a node the tenants that it asks for.

        Raises RequestRefused: `tenant-dropped`, `generation-not-newest`, `request-id-conflict`,
        `generations-exhausted`; of the first form also `node-not-registered`, `stale-node`, `other-form`.
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
        request_id, caller = identity(asked.request_id, asked.caller, asked.node)
        form = None if asked.form is None else GenerationForm(asked.form)
        call = Call(
            request_id, caller, operation, asked.node, tenants, asked.generation, form, asked.node_generation
        )
        return self._issue(call, deadline)

    def re_attach(
        self, asked: wire.ReAttach, deadline: Deadline, form: GenerationForm | None = None
    ) -> Granted:
        """Give a node new generations of all that it holds; of nothing, if it holds nothing.

        Raises RequestRefused: `request-id-conflict`; `overtaken` by a later one of the node that is whole;
        `other-form` when it holds a tenant of another form than the one that it can take; and `stale-node`
        for a node generation that is not the newest: the node has been started again elsewhere and must stop.
        """
        request_id, caller = identity(asked.request_id, asked.caller, asked.node)
        operation = events.IssueOperation.RE_ATTACH
        generation = asked.node_generation
        call = Call(request_id, caller, operation, asked.node, None, form=form, node_generation=generation)
        return self._issue(call, deadline)

    def _issue(self, call: Call, deadline: Deadline) -> Granted:
        with self._metrics.issue_seconds.time():
            while True:
                ends = self._journal.read_ends(deadline)
                step = self._next_step(call)
                if isinstance(step, Part):
                    self._issue_part(call, step, ends, deadline)
                    step = self._next_step(call)  # what was read back may be all
                if isinstance(step, Granted):
                    return step

    def _next_step(self, call: Call) -> Granted | Part:
        with self._reader.state() as state:
            return next_step(state, call)

    def _issue_part(self, call: Call, part: Part, ends: Ends, deadline: Deadline) -> None:
        grants = self._witness.propose(part.tenants, deadline)
        event = issued_event(call, part, grants, ends.intents, datetime.now(UTC))
        if self._journal.append(event, part.number, deadline):
            self._witness.project(part.tenants, deadline)
        else:
            self._witness.withdraw(part.tenants, deadline)

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
        ends = self._journal.positions(deadline).intents
        if unsettled is not None and unsettled.topic_id != ends.topic_id:
            raise UsageError(f"unsettled positions of another topic: {unsettled.topic_id}")
        event = events.Barrier(uuid.uuid4().hex, ends, unsettled, datetime.now(UTC))
        # Valid by the rule: `ends` are of the topic that Genesis names, which the reading has checked.
        offset = self._journal.write(event, deadline)
        self._metrics.barriers.inc()
        return wire.BarrierAnswer(offset, ends.topic_id, list(ends.offsets))

    def catch_up(self, deadline: Deadline) -> None:
        """Fold the log up to the end that it has now."""
        self._journal.read_ends(deadline)

    # --- judge ----------------------------------------------------------------------------------------------

    def validate(self, asked: wire.Validate, deadline: Deadline) -> wire.Validation:
        """Answer each subject with its window, as of `at_least` or later.

        Without it, as of a barrier of the call's own: a broker that was deposed and does not know it still
        tells an end of the log, but cannot append to it.
        """
        if asked.at_least is not None:
            self._reader.wait_for(asked.at_least, deadline)
        elif asked.subjects:
            self.barrier(wire.Barrier(), deadline)
        else:
            self.catch_up(deadline)
        self._witness.agree({subject.tenant for subject in asked.subjects}, deadline)
        with self._reader.state() as state:
            assert state.genesis is not None
            answers = [a for a in (_answer(state, s) for s in asked.subjects) if a is not None]
            validation = wire.Validation(state.log_offset, state.genesis.intents_topic_id, answers)
        newest = sum(answer.newest for answer in answers)
        spans = sum(type(answer.start) is int for answer in answers)
        never = len(answers) - spans
        self._count(len(asked.subjects), newest=newest, covered=spans - newest, never=never)
        return validation

    def newest(self, asked: Sequence[tuple[str, int]], deadline: Deadline) -> list[tuple[str, bool]]:
        """Tell for each known tenant whether the generation is the newest, behind a barrier of its own.

        Of a tenant of the first form it never is: nothing says which generation of its node is meant.
        """
        self.barrier(wire.Barrier(), deadline)
        self._witness.agree({name for name, _ in asked}, deadline)
        with self._reader.state() as state:
            known = [(tenant, g) for name, g in asked if (tenant := state.tenant(name)) is not None]
            verdicts = [(t.name, t.newest == g and t.form is GenerationForm.FINAL) for t, g in known]
        newest = sum(valid for _, valid in verdicts)
        self._count(len(asked), newest=newest, never=len(verdicts) - newest)
        return verdicts

    def view(self, tenant: str, history: int, deadline: Deadline) -> wire.TenantView | None:
        """Return a tenant with its newest `history` generations, None when the log does not know it."""
        self.catch_up(deadline)
        with self._reader.state() as state:
            return _view(state, tenant, history)

    def node_view(self, node: str, history: int, deadline: Deadline) -> wire.NodeView | None:
        """Return a node with its newest `history` node generations, None if it never registered."""
        self.catch_up(deadline)
        with self._reader.state() as state:
            return _node_view(state, node, history)

    def forms(self, tenants: Iterable[str]) -> dict[str, GenerationForm]:
        """Return the forms of tenants that the log knows."""
        with self._reader.state() as state:
            return {name: found.form for name in tenants if (found := state.tenant(name)) is not None}

    def issued_to(self, asked: Iterable[tuple[str, int]]) -> set[str]:
        """Return the nodes that these generations of tenants were given to, where the log knows one."""
        with self._reader.state() as state:
            found = [(state.tenant(name), generation) for name, generation in asked]
            issues = [tenant.issue(generation) for tenant, generation in found if tenant is not None]
        return {issue.node for issue in issues if issue is not None and issue.node is not None}

    def _count(self, asked: int, **answers: int) -> None:
        for answer, count in {**answers, "unknown": asked - sum(answers.values())}.items():
            self._metrics.subjects.labels(answer).inc(count)


def _answer(state: State, subject: wire.Subject) -> wire.Answer | None:
    tenant = state.tenant(subject.tenant)
    if tenant is None:
        return None
    answer = wire.Answer(subject.tenant, subject.generation, subject.partition, newest=False)
    if subject.node is not None or subject.node_generation is not None:
        answer.node = UNSET if subject.node is None else subject.node
        answer.node_generation = UNSET if subject.node_generation is None else subject.node_generation
    window, of_node = state.windows(
        tenant, subject.generation, subject.partition, subject.node, subject.node_generation
    )
    if window is not None:
        answer.start = window.start
        answer.newest = window.until is None
        answer.until = UNSET if window.until is None else window.until
    if of_node is not None:
        answer.node_from = of_node.start
        answer.node_until = UNSET if of_node.until is None else of_node.until
    if window is None or (of_node is None and subject.node is not None):
        _tell_forgotten(state, tenant, subject, answer)
    return answer


def _tell_forgotten(state: State, tenant: Tenant, subject: wire.Subject, answer: wire.Answer) -> None:
    until, node_until = state.forgotten(
        tenant, subject.generation, subject.partition, subject.node, subject.node_generation
    )
    if until is not None:
        answer.until = until
    if node_until is not None:
        answer.node_until = node_until


def _view(state: State, name: str, history: int) -> wire.TenantView | None:
    tenant = state.tenant(name)
    if tenant is None:
        return None
    view = wire.TenantView(
        state.log_offset, name, tenant.newest, tenant.holder, tenant.dropped, _spans(tenant, history)
    )
    view.form = tenant.form.value
    view.imported = UNSET if tenant.imported is None else tenant.imported
    return view


def _node_view(state: State, name: str, history: int) -> wire.NodeView | None:
    node = state.node(name)
    if node is None:
        return None
    return wire.NodeView(state.log_offset, name, node.number, node.newest, _spans(node, history))


def _spans(owner: Numbered, history: int) -> list[wire.Span]:
    """Return the newest numbers with their windows, the newest first."""
    spans = []
    for index in range(len(owner.issues) - 1, max(-1, len(owner.issues) - 1 - history), -1):
        issue = owner.issues[index]
        span = wire.Span(owner.first + index, issue.log_offset, issue.node, list(issue.high))
        if index + 1 < len(owner.issues):
            span.until = list(owner.issues[index + 1].high)
        spans.append(span)
    return spans
