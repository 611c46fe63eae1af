"""Calls that one event carries out: register a node; detach, fence, import and drop tenants."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from sexton.issuer import wire
from sexton.issuer.binding import after, check_binding, check_in_time, check_number, check_same_import
from sexton.issuer.deadline import Deadline
from sexton.issuer.journal import Journal, RequestEvent
from sexton.issuer.limits import check_rows
from sexton.issuer.operations.issuing import check_alive, check_fence, check_import, held, registration
from sexton.issuer.request_ids import check_not_ahead, new_id
from sexton.issuer.state import Request, State
from sexton.issuer.witness import Witness
from sexton.schemas import checks, events
from sexton.schemas.events import GenerationForm

__all__ = ["Registrar", "identity"]

_Made = TypeVar("_Made", bound=RequestEvent)


class Registrar:
    """Answers the calls of one issuer process that need a single event; safe for use by several threads."""

    def __init__(self, journal: Journal, witness: Witness) -> None:
        self._journal = journal
        self._witness = witness

    def register_node(self, asked: wire.RegisterNode, deadline: Deadline) -> wire.Registered:
        """Give a node of the first form its next node generation; every older one is stale from then on.

        Raises RequestRefused: `node-number-fixed`, `node-number-taken`, `generation-not-newest`,
        `generations-exhausted`, `request-id-conflict`.
        """
        checks.check_tenant(asked.node)
        request_id, caller = identity(asked.request_id, asked.caller, asked.node)

        def make(state: State, ends: events.PartitionOffsets) -> events.NodeRegistered:
            due = registration(state, asked.node, asked.number, asked.generation)
            known = state.node(asked.node)
            return events.NodeRegistered(
                request_id=request_id,
                caller=caller,
                node=asked.node,
                number=due.number,
                generation=due.generation,
                supersedes=known.newest if known else None,
                ends=ends,
                registered_at=datetime.now(UTC),
            )

        binding = Request(caller, "register", asked.node, 1)
        done, _ = self._carry_out(request_id, binding, make, deadline, number=after(asked.generation))
        with self._journal.reader.state() as state:
            node = state.node(asked.node)
        assert node is not None
        check_number(node, asked.number)
        return wire.Registered(done.offsets[0], request_id, asked.node, node.number, done.granted[asked.node])

    def detach(self, asked: wire.Detach, deadline: Deadline) -> wire.Ended:
        """Take a tenant from its holder; its generation stays the newest until it is superseded.

        Raises RequestRefused: `not-held`, `generation-not-newest`, `request-id-conflict`; `stale-node` for a
        node generation that is not the newest.
        """
        request_id, caller = identity(asked.request_id, asked.caller, asked.node)

        def make(state: State, _: events.PartitionOffsets) -> events.Detached:
            generation = held(state, asked.node, asked.tenant, asked.generation, asked.node_generation)
            now = datetime.now(UTC)
            return events.Detached(request_id, caller, asked.node, asked.tenant, generation, now)

        binding = Request(caller, "detach", asked.node, 1)
        done, _ = self._carry_out(
            request_id, binding, make, deadline, tenant=asked.tenant, number=asked.generation
        )
        return wire.Ended(done.offsets[0], request_id, asked.tenant, done.granted[asked.tenant])

    def fence_tenant(self, asked: wire.FenceTenant, deadline: Deadline) -> wire.Ended:
        """Supersede a tenant's generation by one that no node holds.

        The holder may continue reading and writing, but what it asks to be deleted from now on is stale, and
        its re-attach does not bring the tenant back. The next attach takes the generation after. Raises
        RequestRefused: `unknown-tenant`, `tenant-dropped`, `generation-not-newest`, `request-id-conflict`,
        `generations-exhausted`.
        """
        request_id, caller = identity(asked.request_id, asked.caller, "")

        def make(state: State, ends: events.PartitionOffsets) -> events.Fenced:
            check_fence(state, asked.tenant, asked.generation)
            newest = state.newest(asked.tenant)
            due = 1 if newest is None else newest + 1
            return events.Fenced(request_id, caller, asked.tenant, due, newest, ends, datetime.now(UTC))

        binding, number = Request(caller, "fence", None, 1), after(asked.generation)
        self._witness.agree([asked.tenant], deadline)  # without Redis no number is used up
        done, _ = self._carry_out(request_id, binding, make, deadline, tenant=asked.tenant, number=number)
        self._witness.project([asked.tenant], deadline)
        return wire.Ended(done.offsets[0], request_id, asked.tenant, done.granted[asked.tenant])

    def drop(self, asked: wire.Drop, deadline: Deadline) -> wire.Ended:
        """End a tenant: nothing is issued for it afterwards.

        Raises RequestRefused: `tenant-dropped`, `request-id-conflict`.
        """
        checks.check_tenant(asked.tenant)
        request_id, caller = identity(asked.request_id, asked.caller, "")

        def make(state: State, _: events.PartitionOffsets) -> events.Dropped:
            check_alive(state, asked.tenant)
            return events.Dropped(request_id, caller, asked.tenant, datetime.now(UTC))

        binding = Request(caller, "drop", None, 1)
        done, _ = self._carry_out(request_id, binding, make, deadline, tenant=asked.tenant)
        generation = done.granted[asked.tenant] or None
        return wire.Ended(done.offsets[0], request_id, asked.tenant, generation)

    def import_tenants(self, asked: wire.Import, deadline: Deadline) -> wire.ImportedAnswer:
        """Start tenants, and nodes of the first form, at the numbers that they have elsewhere.

        All of them or none. Raises RequestRefused: `tenant-known`, `node-known`, `node-not-registered`,
        `request-id-conflict`; UsageError for a number that its form has no room for.
        """
        tenants = [
            events.ImportedTenant(row.tenant, GenerationForm(row.form), row.generation, row.node)
            for row in asked.tenants
        ]
        nodes = [events.ImportedNode(row.node, row.number, row.node_generation) for row in asked.nodes]
        check_rows(tenants, nodes)
        request_id, caller = identity(asked.request_id, asked.caller, "")

        def make(state: State, ends: events.PartitionOffsets) -> events.Imported:
            check_import(state, tenants, nodes)
            return events.Imported(request_id, caller, 0, 1, tenants, nodes, ends, datetime.now(UTC))

        names = [row.tenant for row in tenants]
        self._witness.agree(names, deadline)  # without Redis nothing is imported
        done, is_ours = self._carry_out(request_id, Request(caller, "import", None, 1), make, deadline)
        if not is_ours:
            event = self._journal.reader.event_at(done.offsets[0], deadline)
            check_same_import(done, event, tenants, nodes)
        self._witness.project(names, deadline)
        return wire.ImportedAnswer(done.offsets[0], request_id, len(tenants), len(nodes))

    def _carry_out(
        self,
        request_id: str,
        binding: Request,
        make: Callable[[State, events.PartitionOffsets], _Made],
        deadline: Deadline,
        *,
        tenant: str | None = None,
        number: int | None = None,
    ) -> tuple[Request, bool]:
        """Append what `make` says until an event of the request is valid; a void one is made anew.

        Returns what the request has led to, and whether the event is one that this very call has appended.
        Raises RequestRefused for a known request that named another tenant or led to another number.
        """
        is_ours = False
        while True:
            ends = self._journal.read_ends(deadline).intents
            with self._journal.reader.state() as state:
                known = state.request(request_id)
                if known is not None:
                    check_binding(known, binding, None if tenant is None else [tenant], number)
                    return known, is_ours
                check_in_time(state, request_id)
                event = make(state, ends)
            is_ours = self._journal.append(event, 0, deadline)


def identity(request_id: str | None, caller: str | None, node: str) -> tuple[str, str]:
    """Return the request id, a new one if none was given, and who calls: the node if nothing else.

    Raises RequestRefused for an id that is ahead of this clock.
    """
    if request_id is not None:
        check_not_ahead(request_id, time.time())
    return request_id or new_id(), caller or node
