"""An issuer in memory, for unit tests of services: the real rules, without Kafka, Redis or HTTP.

issuer = FakeIssuer(partitions=2)
issuer.attach("node-7", "tenant-42").generation == 1
issuer.written(0, 5)                     # five intents now stand in partition 0
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from sexton.issuer import request_ids
from sexton.issuer.answers import (
    Attachment,
    BarrierAnswer,
    Gathered,
    NodeState,
    Registration,
    Span,
    Subject,
    TenantState,
    Validation,
    packed,
)
from sexton.issuer.binding import check_binding, check_in_time, check_number, check_same_import
from sexton.issuer.fold import FORMAT, Valid, apply
from sexton.issuer.limits import check_name, check_node_number, check_partition, check_rows
from sexton.issuer.operations.issuing import (
    Call,
    Granted,
    check_alive,
    check_fence,
    check_import,
    held,
    issued_event,
    next_step,
)
from sexton.issuer.operations.issuing import registration as registration_of
from sexton.issuer.state import Numbered, Request, State
from sexton.schemas import checks, events
from sexton.schemas.errors import IssuerUnavailable, RequestRefused, UsageError
from sexton.schemas.events import PartitionOffsets

__all__ = ["FakeIssuer"]

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class FakeIssuer:
    """Behaves as `IssuerClient` does; `log` holds every event, `available = False` makes every call fail."""

    def __init__(self, partitions: int = 1, caller: str = "fake", topic_id: str = "fake-intents") -> None:
        self.log: list[events.GenerationEvent] = []
        self.available = True
        self._caller = caller
        self._state = State()
        self._topic_id = topic_id
        self._ends = [0] * partitions
        self._append(events.Genesis(FORMAT, "fake", "fake-generations", topic_id, _EPOCH))

    def __enter__(self) -> FakeIssuer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def written(self, partition: int, records: int = 1) -> int:
        """Say that records were written to an intents partition; return its new end offset."""
        self._ends[partition] += records
        return self._ends[partition]

    def attach(
        self,
        node: str,
        tenant: str,
        request_id: str | None = None,
        deadline: float | None = None,
        *,
        generation: int | None = None,
        registration: Registration | None = None,
    ) -> Attachment:
        """Give a node a tenant under a new generation."""
        with _refusing():
            checks.check_tenant(tenant)
        return self._attach(node, (tenant,), request_id, generation, registration)[0]

    def re_attach(
        self,
        node: str,
        request_id: str | None = None,
        deadline: float | None = None,
        *,
        registration: Registration | None = None,
    ) -> dict[str, int]:
        """Give a node new generations of all that it holds."""
        attached = self.re_attach_all(node, request_id, deadline, registration=registration)
        return {each.tenant: each.generation for each in attached}

    def re_attach_all(
        self,
        node: str,
        request_id: str | None = None,
        deadline: float | None = None,
        *,
        registration: Registration | None = None,
    ) -> list[Attachment]:
        """Do what `re_attach` does and return whole attachments."""
        return self._attach(node, None, request_id, None, registration)

    def register_node(
        self,
        node: str,
        number: int | None = None,
        request_id: str | None = None,
        deadline: float | None = None,
    ) -> Registration:
        """Give a node of the first form its next node generation."""
        with _refusing():
            checks.check_tenant(node)
            if number is not None:
                check_node_number(number)
        request_id = _id(request_id)
        done = self._answered(request_id, Request(self._caller, "register", node, 1))
        if done is None:
            due = registration_of(self._state, node, number, None)
            before = self._state.node(node)
            newest = before.newest if before else None
            done = self._carry_out(
                events.NodeRegistered(
                    request_id,
                    self._caller,
                    node,
                    due.number,
                    due.generation,
                    newest,
                    self._offsets(),
                    _EPOCH,
                )
            )
        found = self._state.node(node)
        assert found is not None
        check_number(found, number)
        return Registration(node, found.number, done.granted[node], done.offsets[0])

    def detach(
        self,
        node: str,
        tenant: str,
        request_id: str | None = None,
        deadline: float | None = None,
        *,
        registration: Registration | None = None,
    ) -> int:
        """Take a tenant from the node that holds it and return its generation."""
        request_id = _id(request_id)
        done = self._answered(request_id, Request(self._caller, "detach", node, 1), tenant)
        if done is None:
            generation = held(
                self._state, node, tenant, None, registration.generation if registration else None
            )
            done = self._carry_out(
                events.Detached(request_id, self._caller, node, tenant, generation, _EPOCH)
            )
        return done.granted[tenant]

    def fence_tenant(self, tenant: str, request_id: str | None = None, deadline: float | None = None) -> int:
        """Supersede a tenant's generation by one that no node holds, and return it."""
        request_id = _id(request_id)
        done = self._answered(request_id, Request(self._caller, "fence", None, 1), tenant)
        if done is None:
            check_fence(self._state, tenant, None)
            newest = self._state.newest(tenant)
            due = 1 if newest is None else newest + 1
            done = self._carry_out(
                events.Fenced(request_id, self._caller, tenant, due, newest, self._offsets(), _EPOCH)
            )
        return done.granted[tenant]

    def import_tenants(
        self,
        tenants: Sequence[events.ImportedTenant],
        nodes: Sequence[events.ImportedNode] = (),
        request_id: str | None = None,
        deadline: float | None = None,
    ) -> int:
        """Start tenants and nodes at the numbers that they have elsewhere; return the log offset."""
        request_id = _id(request_id)
        with _refusing():
            check_rows(tenants, nodes)
        done = self._answered(request_id, Request(self._caller, "import", None, 1))
        if done is not None:
            check_same_import(done, self.log[done.offsets[0]], tenants, nodes)
        else:
            with _refusing():
                check_import(self._state, tenants, nodes)
            done = self._carry_out(
                events.Imported(request_id, self._caller, 0, 1, tenants, nodes, self._offsets(), _EPOCH)
            )
        return done.offsets[0]

    def drop(self, tenant: str, request_id: str | None = None, deadline: float | None = None) -> int:
        """End a tenant for good and return the log offset that says so."""
        with _refusing():
            checks.check_tenant(tenant)
        request_id = _id(request_id)
        done = self._answered(request_id, Request(self._caller, "drop", None, 1), tenant)
        if done is None:
            check_alive(self._state, tenant)
            done = self._carry_out(events.Dropped(request_id, self._caller, tenant, _EPOCH))
        return done.offsets[0]

    def validate(
        self, subjects: Sequence[Subject], at_least: int | None = None, deadline: float | None = None
    ) -> Validation:
        """Return the windows of generations; refused when the log has not got to `at_least`."""
        self._require()
        if at_least is not None and at_least > self._state.log_offset:
            raise IssuerUnavailable(f"the log has not got to offset {at_least}")
        gathered = Gathered()
        for s in subjects:
            with _refusing():
                check_partition(s.partition)
            tenant = self._state.tenant(s.tenant)
            if tenant is None:
                continue
            parts = (s.generation, s.partition, s.node, s.node_generation)
            windows, ends = self._state.windows(tenant, *parts), self._state.forgotten(tenant, *parts)
            gathered.put(s, *windows, *ends)
        return gathered.validation(self._state.log_offset, self._topic_id)

    def barrier(
        self, unsettled: PartitionOffsets | None = None, deadline: float | None = None
    ) -> BarrierAnswer:
        """Make a barrier."""
        self._require()
        if unsettled is not None and unsettled.topic_id != self._topic_id:
            raise RequestRefused("invalid-request", "unsettled positions of another topic", status=400)
        ends = self._offsets()
        offset = self._append(events.Barrier(_id(None), ends, unsettled, _EPOCH))
        return BarrierAnswer(offset, self._topic_id, tuple(ends.offsets))

    def tenant(self, name: str, deadline: float | None = None) -> TenantState | None:
        """Return a tenant and its history, None when the log does not know it."""
        self._require()
        found = self._state.tenant(name)
        if found is None:
            return None
        return TenantState(
            self._state.log_offset,
            name,
            found.newest,
            found.holder,
            found.dropped,
            _history(found),
            found.form,
            found.imported,
        )

    def node(self, name: str, deadline: float | None = None) -> NodeState | None:
        """Return a node of the first form and its history, None if it never registered."""
        self._require()
        found = self._state.node(name)
        if found is None:
            return None
        return NodeState(self._state.log_offset, name, found.number, found.newest, _history(found))

    def close(self) -> None:
        """Nothing is held."""

    def _require(self) -> None:
        if not self.available:
            raise IssuerUnavailable("the issuer does not answer: fake")

    def _offsets(self) -> PartitionOffsets:
        return PartitionOffsets(self._topic_id, tuple(self._ends))

    def _append(self, event: events.GenerationEvent) -> int:
        offset = len(self.log)
        verdict = apply(self._state, offset, event)
        self.log.append(event)
        assert isinstance(verdict, Valid), verdict
        return offset

    def _carry_out(
        self,
        event: events.NodeRegistered | events.Detached | events.Fenced | events.Imported | events.Dropped,
    ) -> Request:
        self._append(event)
        done = self._state.request(event.request_id)
        assert done is not None
        return done

    def _answered(self, request_id: str, binding: Request, tenant: str | None = None) -> Request | None:
        self._require()
        with _refusing():
            for what, name in (("node", binding.node), ("tenant", tenant)):
                if name is not None:
                    check_name(what, name)
        known = self._state.request(request_id)
        if known is not None:
            check_binding(known, binding, None if tenant is None else [tenant])
        else:
            check_in_time(self._state, request_id)
        return known

    def _attach(
        self,
        node: str,
        tenants: tuple[str, ...] | None,
        request_id: str | None,
        expected: int | None,
        registration: Registration | None,
    ) -> list[Attachment]:
        operation = events.IssueOperation.RE_ATTACH if tenants is None else events.IssueOperation.ATTACH
        node_generation = registration.generation if registration else None
        with _refusing():
            check_name("node", node)
        call = Call(_id(request_id), self._caller, operation, node, tenants, expected, None, node_generation)
        granted = self._issue(call)
        attached = []
        for tenant, generation in granted.generations.items():
            found = self._state.tenant(tenant)
            form = found.form if found else None
            parts = packed(generation, form, registration)
            attached.append(Attachment(tenant, generation, granted.log_offset, parts))
        return attached

    def _issue(self, call: Call) -> Granted:
        self._require()
        while not isinstance(step := next_step(self._state, call), Granted):
            grants = []
            for tenant in step.tenants:
                newest = self._state.newest(tenant)
                grants.append(events.Grant(tenant, 1 if newest is None else newest + 1, newest))
            self._append(issued_event(call, step, grants, self._offsets(), _EPOCH))
        return step


def _history(owner: Numbered) -> tuple[Span, ...]:
    spans = [
        Span(
            owner.first + i,
            issue.log_offset,
            issue.node,
            tuple(issue.high),
            tuple(owner.issues[i + 1].high) if i + 1 < len(owner.issues) else None,
        )
        for i, issue in enumerate(owner.issues)
    ]
    return tuple(reversed(spans))


def _id(request_id: str | None) -> str:
    if not request_id:
        return request_ids.new_id()
    with _refusing():
        check_name("request id", request_id)
        request_ids.check_not_ahead(request_id, time.time())
    return request_id


@contextmanager
def _refusing() -> Iterator[None]:
    """Refuse what the service would: there it comes back over HTTP."""
    try:
        yield
    except UsageError as error:
        raise RequestRefused("invalid-request", str(error), status=400, hint=error.hint) from error
