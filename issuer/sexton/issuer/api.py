"""What services and jobs ask of an issuer: the typed calls that the HTTP client and the fake share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self, cast

from msgspec import UnsetType

from sexton.issuer import wire
from sexton.issuer.answers import (
    Attachment,
    BarrierAnswer,
    NodeState,
    Registration,
    Span,
    TenantState,
    Validation,
    packed,
)
from sexton.issuer.operations.attach import Attach
from sexton.issuer.operations.barrier import Barrier, Ends
from sexton.issuer.operations.detach import Detach
from sexton.issuer.operations.drop import Drop
from sexton.issuer.operations.fence_tenant import FenceTenant
from sexton.issuer.operations.import_ import Import
from sexton.issuer.operations.import_ import ImportedNode as NodeRow
from sexton.issuer.operations.import_ import ImportedTenant as TenantRow
from sexton.issuer.operations.re_attach import ReAttach
from sexton.issuer.operations.register_node import RegisterNode
from sexton.issuer.operations.validate import Validate
from sexton.issuer.subjects import KINDS
from sexton.issuer.subjects.base import Question
from sexton.issuer.transaction_api import TransactionCalls
from sexton.issuer.views import NODE, TENANT
from sexton.issuer.wire import MAX_SUBJECTS, Form
from sexton.schemas.errors import IssuerUnavailable
from sexton.schemas.events import (
    GenerationForm,
    ImportedNode,
    ImportedTenant,
    PartitionOffsets,
)

__all__ = ["Issuer"]


class Issuer(TransactionCalls):
    """An issuer, as those see it who ask it; `deadline` is the time a call may take, seconds.

    Every method raises IssuerUnavailable when no answer came in time (nothing is known then, a later call
    with the same request id finds out) and RequestRefused with the stable problem type when the answer is no.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        """Give a node a tenant under a new generation.

        `generation`, when given, is the one that the caller expects to be the newest: refused if it is not.
        With a `registration` a tenant that is new takes the first form. May raise RequestRefused:
        `tenant-dropped`, `generation-not-newest`, `request-id-conflict`, `stale-node`: the node must stop.
        """
        asked = Attach(node, tenant, generation=generation, request_id=request_id)
        asked.node_generation = _generation(registration)
        return _attachments(self._call(asked, self._end(deadline)), registration)[0]

    def re_attach(
        self,
        node: str,
        request_id: str | None = None,
        deadline: float | None = None,
        *,
        registration: Registration | None = None,
    ) -> dict[str, int]:
        """Give a node new generations of all that it holds: tenant -> generation.

        A tenant that is missing from the answer is one that the node no longer holds.
        """
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
        """Do what `re_attach` does and return whole attachments: with a registration, packed ones too.

        May raise RequestRefused: `request-id-conflict`, `stale-node`: the node must stop.
        """
        asked = ReAttach(node, _generation(registration), request_id=request_id)
        return _attachments(self._call(asked, self._end(deadline)), registration)

    def register_node(
        self,
        node: str,
        number: int | None = None,
        request_id: str | None = None,
        deadline: float | None = None,
    ) -> Registration:
        """Give a node of the first form its next node generation; what it asked for before stays covered.

        `number` (0 to 65535) is fixed by the first call; without one that call takes the lowest that is free.
        May raise RequestRefused: `node-number-fixed`, `node-number-taken`, `generations-exhausted`.
        """
        answer = self._call(RegisterNode(node, number, request_id=request_id), self._end(deadline))
        return Registration(node, answer.number, answer.node_generation, answer.log_offset)

    def fence_tenant(self, tenant: str, request_id: str | None = None, deadline: float | None = None) -> int:
        """Supersede a tenant's generation by one that no node holds, and return that one.

        May raise RequestRefused: `unknown-tenant`, `tenant-dropped`, `request-id-conflict`.
        """
        answer = self._call(FenceTenant(tenant, request_id=request_id), self._end(deadline))
        assert answer.generation is not None
        return answer.generation

    def import_tenants(
        self,
        tenants: Sequence[ImportedTenant],
        nodes: Sequence[ImportedNode] = (),
        request_id: str | None = None,
        deadline: float | None = None,
    ) -> int:
        """Start tenants and nodes, up to 10,000 each, at the numbers that they have; return the log offset.

        All of them or none. May raise RequestRefused: `tenant-known`, `node-known`, `node-not-registered`.
        """
        rows = [
            TenantRow(row.tenant, row.generation, cast(Form, row.form.value), row.node) for row in tenants
        ]
        node_rows = [NodeRow(row.node, row.number, row.generation) for row in nodes]
        asked = Import(rows, node_rows, request_id=request_id)
        return self._call(asked, self._end(deadline)).log_offset

    def detach(
        self,
        node: str,
        tenant: str,
        request_id: str | None = None,
        deadline: float | None = None,
        *,
        registration: Registration | None = None,
    ) -> int:
        """Take a tenant from the node that holds it; its generation, returned, stays the newest.

        May raise RequestRefused: `not-held`, `request-id-conflict`, `stale-node`: the node must stop.
        """
        asked = Detach(node, tenant, None, _generation(registration), request_id=request_id)
        answer = self._call(asked, self._end(deadline))
        assert answer.generation is not None
        return answer.generation

    def drop(self, tenant: str, request_id: str | None = None, deadline: float | None = None) -> int:
        """End a tenant for good and return the log offset that says so.

        May raise RequestRefused: `tenant-dropped`, `request-id-conflict`.
        """
        return self._call(Drop(tenant, request_id=request_id), self._end(deadline)).log_offset

    def validate(
        self, subjects: Sequence[Question[Any]], at_least: int | None = None, deadline: float | None = None
    ) -> Validation:
        """Return what the log says of subjects of any kind, as of a log offset of at least `at_least`.

        Without `at_least` the answer is as of the log's end. More than 10,000 subjects take several calls.
        """
        end = self._end(deadline)
        found = {kind: kind.found() for kind in KINDS}
        offsets, topics = [], set()
        for start in range(0, max(1, len(subjects)), MAX_SUBJECTS):
            part = subjects[start : start + MAX_SUBJECTS]
            asked = {kind: [subject for subject in part if type(subject) is kind] for kind in KINDS}
            lists: dict[str, Any] = {kind.asked_in: each for kind, each in asked.items()}
            answer = self._call(Validate(**lists, at_least=at_least), end)
            for kind in KINDS:
                found[kind].gather(getattr(answer, kind.answered_in), asked[kind])
            offsets.append(answer.log_offset)
            topics.add(answer.topic_id)
        if len(topics) > 1:
            raise IssuerUnavailable("the intents topic changed between two calls")
        parts = {name: part for each in found.values() for name, part in each.parts().items()}
        return Validation(min(offsets), topics.pop(), **parts)

    def barrier(
        self, unsettled: PartitionOffsets | None = None, deadline: float | None = None
    ) -> BarrierAnswer:
        """Make a barrier: its end offsets are read after this call began.

        `unsettled` holds the oldest positions without a final outcome: history above them is kept.
        """
        ends = None if unsettled is None else Ends(unsettled.topic_id, list(unsettled.offsets))
        answer = self._call(Barrier(ends), self._end(deadline))
        return BarrierAnswer(answer.log_offset, answer.topic_id, tuple(answer.ends))

    def tenant(self, name: str, deadline: float | None = None) -> TenantState | None:
        """Return a tenant and its newest generations, None when the log does not know it."""
        found = self._look(TENANT, name, self._end(deadline))
        if found is None:
            return None
        return TenantState(
            found.log_offset,
            found.tenant,
            found.generation,
            found.holder,
            found.dropped,
            tuple(map(_span, found.history)),
            GenerationForm(found.form),
            None if isinstance(found.imported, UnsetType) else found.imported,
        )

    def node(self, name: str, deadline: float | None = None) -> NodeState | None:
        """Return a node of the first form and its newest generations, None if it never registered."""
        found = self._look(NODE, name, self._end(deadline))
        if found is None:
            return None
        history = tuple(map(_span, found.history))
        return NodeState(found.log_offset, name, found.number, found.node_generation, history)

    @abstractmethod
    def close(self) -> None:
        """Free what is held."""


def _generation(registration: Registration | None) -> int | None:
    return None if registration is None else registration.generation


def _attachments(granted: wire.Granted, registration: Registration | None) -> list[Attachment]:
    return [
        Attachment(
            each.tenant,
            each.generation,
            granted.log_offset,
            packed(each.generation, None if isinstance(each.form, UnsetType) else each.form, registration),
        )
        for each in granted.tenants
    ]


def _span(span: wire.Span) -> Span:
    until = None if isinstance(span.until, UnsetType) else tuple(span.until)
    return Span(span.generation, span.log_offset, span.node, tuple(span.start), until)
