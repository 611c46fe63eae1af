"""An issuer in memory, for unit tests of services: the real rules, without Kafka, Redis or HTTP.

issuer = FakeIssuer(partitions=2)
issuer.attach("node-7", "tenant-42").generation == 1
issuer.written(0, 5)                     # five intents now stand in partition 0
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sexton.issuer import request_ids
from sexton.issuer.client import Attachment, BarrierAnswer, Span, Subject, TenantState, Validation
from sexton.issuer.decisions import Call, Granted, check_alive, check_binding, check_in_time, held, next_step
from sexton.issuer.fold import FORMAT, Request, State, Valid, apply
from sexton.schemas import checks, events
from sexton.schemas.errors import InvalidEvent, IssuerUnavailable, RequestRefused
from sexton.schemas.events import PartitionOffsets
from sexton.schemas.windows import Window

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
    ) -> Attachment:
        """Give a node a tenant under a new generation."""
        _check_name(tenant)
        operation = events.IssueOperation.ATTACH
        granted = self._issue(Call(_id(request_id), self._caller, operation, node, (tenant,), generation))
        return Attachment(tenant, granted.generations[tenant], granted.log_offset)

    def re_attach(
        self, node: str, request_id: str | None = None, deadline: float | None = None
    ) -> dict[str, int]:
        """Give a node new generations of all that it holds."""
        operation = events.IssueOperation.RE_ATTACH
        return dict(self._issue(Call(_id(request_id), self._caller, operation, node, None)).generations)

    def detach(
        self, node: str, tenant: str, request_id: str | None = None, deadline: float | None = None
    ) -> int:
        """Take a tenant from the node that holds it and return its generation."""
        self._require()
        request_id = _id(request_id)
        known = self._answered(request_id, Request(self._caller, "detach", node, 1), tenant)
        if known is None:
            generation = held(self._state, node, tenant, None)
            self._append(events.Detached(request_id, self._caller, node, tenant, generation, _EPOCH))
            return generation
        return known.granted[tenant]

    def drop(self, tenant: str, request_id: str | None = None, deadline: float | None = None) -> int:
        """End a tenant for good and return the log offset that says so."""
        self._require()
        _check_name(tenant)
        request_id = _id(request_id)
        known = self._answered(request_id, Request(self._caller, "drop", None, 1), tenant)
        if known is None:
            check_alive(self._state, tenant)
            return self._append(events.Dropped(request_id, self._caller, tenant, _EPOCH))
        return known.offsets[0]

    def validate(
        self, subjects: Sequence[Subject], at_least: int | None = None, deadline: float | None = None
    ) -> Validation:
        """Return the windows of generations; refused when the log has not got to `at_least`."""
        self._require()
        if at_least is not None and at_least > self._state.log_offset:
            raise IssuerUnavailable(f"the log has not got to offset {at_least}")
        windows: dict[Subject, Window | None] = {}
        for s in subjects:
            if self._state.known(s.tenant):
                foreign = s.node is not None or s.node_generation is not None
                window = None if foreign else self._state.window(s.tenant, s.generation, s.partition)
                windows[s] = window
        return Validation(self._state.log_offset, self._topic_id, windows)

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
        spans = [
            Span(
                found.first + i,
                issue.log_offset,
                issue.node,
                tuple(issue.high),
                tuple(found.issues[i + 1].high) if i + 1 < len(found.issues) else None,
            )
            for i, issue in enumerate(found.issues)
        ]
        history = tuple(reversed(spans))
        return TenantState(self._state.log_offset, name, found.newest, found.holder, found.dropped, history)

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
        assert isinstance(verdict, Valid), verdict
        self.log.append(event)
        return offset

    def _answered(self, request_id: str, binding: Request, tenant: str) -> Request | None:
        known = self._state.request(request_id)
        if known is not None:
            check_binding(known, binding, [tenant])
        else:
            check_in_time(self._state, request_id)
        return known

    def _issue(self, call: Call) -> Granted:
        self._require()
        while not isinstance(step := next_step(self._state, call), Granted):
            grants = []
            for tenant in step.tenants:
                newest = self._state.newest(tenant)
                grants.append(events.Grant(tenant, (newest or 0) + 1, newest))
            self._append(
                events.Issued(
                    request_id=call.request_id,
                    caller=call.caller,
                    operation=call.operation,
                    node=call.node,
                    part=step.number,
                    parts=step.count,
                    grants=grants,
                    ends=self._offsets(),
                    issued_at=_EPOCH,
                )
            )
        return step


def _id(request_id: str | None) -> str:
    return request_id or request_ids.new_id()


def _check_name(tenant: str) -> None:
    try:
        checks.check_tenant(tenant)
    except InvalidEvent as error:
        raise RequestRefused("invalid-request", str(error), status=400) from error
