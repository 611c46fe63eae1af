"""Calls that one event carries out: register a node; detach, fence, import and drop tenants."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from sexton.issuer import wire
from sexton.issuer.deadline import Deadline
from sexton.issuer.decisions import (
    check_alive,
    check_binding,
    check_fence,
    check_import,
    check_in_time,
    held,
    registration,
)
from sexton.issuer.journal import Journal, RequestEvent
from sexton.issuer.request_ids import check_not_ahead, new_id
from sexton.issuer.state import Request, State
from sexton.issuer.witness import Witness
from sexton.schemas import checks, events
from sexton.schemas.errors import UsageError
from sexton.schemas.events import GenerationForm
from sexton.schemas.generations import MAX_GENERATION, MAX_PACKED_PART

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

        done = self._carry_out(request_id, Request(caller, "register", asked.node, 1), None, make, deadline)
        with self._journal.reader.state() as state:
            node = state.node(asked.node)
        assert node is not None
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
        done = self._carry_out(request_id, binding, asked.tenant, make, deadline)
        return wire.Ended(done.offsets[0], request_id, asked.tenant, done.granted[asked.tenant])

    def fence_tenant(self, asked: wire.FenceTenant, deadline: Deadline) -> wire.Ended:
        """Supersede a tenant's generation by one that no node holds.

        The holder may go on reading and writing, but what it asks to be deleted from now on is stale, and its
        re-attach does not bring the tenant back. The next attach takes the generation after. Raises
        RequestRefused: `unknown-tenant`, `tenant-dropped`, `generation-not-newest`, `request-id-conflict`,
        `generations-exhausted`.
        """
        request_id, caller = identity(asked.request_id, asked.caller, "")

        def make(state: State, ends: events.PartitionOffsets) -> events.Fenced:
            check_fence(state, asked.tenant, asked.generation)
            newest = state.newest(asked.tenant)
            due = 1 if newest is None else newest + 1
            return events.Fenced(request_id, caller, asked.tenant, due, newest, ends, datetime.now(UTC))

        done = self._carry_out(request_id, Request(caller, "fence", None, 1), asked.tenant, make, deadline)
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

        done = self._carry_out(request_id, Request(caller, "drop", None, 1), asked.tenant, make, deadline)
        generation = done.granted[asked.tenant] or None
        return wire.Ended(done.offsets[0], request_id, asked.tenant, generation)

    def import_tenants(self, asked: wire.Import, deadline: Deadline) -> wire.ImportedAnswer:
        """Start tenants, and nodes of the first form, at the numbers that they have elsewhere.

        All of them or none. Raises RequestRefused: `tenant-known`, `node-known`, `node-not-registered`,
        `request-id-conflict`; UsageError for a number that its form has no room for.
        """
        tenants = [_imported(row) for row in asked.tenants]
        nodes = [events.ImportedNode(row.node, row.number, row.node_generation) for row in asked.nodes]
        _check_once("tenant", [row.tenant for row in tenants])
        _check_once("node", [row.node for row in nodes])
        _check_once("node number", [str(row.number) for row in nodes])
        request_id, caller = identity(asked.request_id, asked.caller, "")

        def make(state: State, ends: events.PartitionOffsets) -> events.Imported:
            check_import(state, tenants, nodes)
            return events.Imported(request_id, caller, 0, 1, tenants, nodes, ends, datetime.now(UTC))

        done = self._carry_out(request_id, Request(caller, "import", None, 1), None, make, deadline)
        self._witness.project([row.tenant for row in tenants], deadline)
        return wire.ImportedAnswer(done.offsets[0], request_id, len(tenants), len(nodes))

    def _carry_out(
        self,
        request_id: str,
        binding: Request,
        tenant: str | None,
        make: Callable[[State, events.PartitionOffsets], _Made],
        deadline: Deadline,
    ) -> Request:
        """Append what `make` says until an event of the request is valid; a void one is made anew."""
        while True:
            ends = self._journal.read_ends(deadline).intents
            with self._journal.reader.state() as state:
                known = state.request(request_id)
                if known is not None:
                    check_binding(known, binding, None if tenant is None else [tenant])
                    return known
                check_in_time(state, request_id)
                event = make(state, ends)
            self._journal.append(event, 0, deadline)


def identity(request_id: str | None, caller: str | None, node: str) -> tuple[str, str]:
    """Return the request id, a new one if none was given, and who calls: the node if nothing else.

    Raises UsageError for an id that is ahead of this clock.
    """
    if request_id is not None:
        check_not_ahead(request_id, time.time())
    return request_id or new_id(), caller or node


def _imported(row: wire.ImportedTenant) -> events.ImportedTenant:
    checks.check_tenant(row.tenant)
    form = GenerationForm(row.form)
    largest = MAX_GENERATION if form is GenerationForm.FINAL else MAX_PACKED_PART
    if row.generation is not None and not 0 <= row.generation <= largest:
        raise UsageError(f"a generation of the {form} form is 0 to {largest}: {row.tenant} {row.generation}")
    return events.ImportedTenant(row.tenant, form, row.generation, row.node)


def _check_once(what: str, names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise UsageError(f"a {what} is named twice")
