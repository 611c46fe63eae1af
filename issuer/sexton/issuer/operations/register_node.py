"""Register a node: give a node of the first form its next node generation."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from sexton.issuer.access import HOLDERS
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.base import Change, Desk, Done, Made
from sexton.issuer.state.binding import after, require_same
from sexton.issuer.state.grants import check_expected
from sexton.issuer.state.state import Request, State
from sexton.issuer.wire import Name
from sexton.schemas import checks, events
from sexton.schemas.errors import RequestRefused
from sexton.schemas.generations import MAX_NODE, MAX_PACKED_PART

__all__ = ["RegisterNode", "Registered", "registration"]


class Registered(Struct):
    """A node's number and its new node generation."""

    log_offset: int
    request_id: str
    node: str
    number: int
    node_generation: int


class RegisterNode(Change[Registered], forbid_unknown_fields=True):
    """Give a node of the first form its next node generation; `number` is fixed by its first call."""

    node: Name
    number: Annotated[int, Meta(ge=0, le=0xFFFF)] | None = None
    generation: int | None = None

    path = "/v1/register-node"
    answer = Registered
    roles = HOLDERS
    folds = (events.NodeRegistered,)
    hands_out = 1
    binding = "register"

    def check(self) -> None:
        """Raise UsageError for a name that no node can have."""
        checks.check_tenant(self.node)

    def leads_to(self) -> int | None:
        """Return the node generation after the expected one."""
        return after(self.generation)

    def decide(self, state: State, made: Made) -> events.NodeRegistered:
        """Give the node its next generation; every older one is stale from then on.

        Raises RequestRefused: `node-number-fixed`, `node-number-taken`, `generation-not-newest`,
        `generations-exhausted`.
        """
        due, known = registration(state, self.node, self.number, self.generation), state.node(self.node)
        return events.NodeRegistered(
            request_id=made.request_id,
            caller=made.caller,
            node=self.node,
            number=due.number,
            generation=due.generation,
            supersedes=known.newest if known else None,
            ends=made.ends,
            registered_at=made.at,
        )

    def answered(self, desk: Desk, done: Done, deadline: Deadline) -> Registered:
        """Return number and node generation; raises RequestRefused where another number was asked for."""
        with desk.log.state() as state:
            node = state.node(self.node)
        assert node is not None
        require_same(self.number in (None, node.number))
        generation = done.request.granted[self.node]
        return Registered(done.log_offset, done.request_id, self.node, node.number, generation)

    @classmethod
    def fault(cls, state: State, event: Any) -> str | None:
        """A node keeps its number, which is nobody else's, and its generation is exactly one above."""
        node = state.node(event.node)
        newest = node.newest if node else None
        if not 0 <= event.number <= MAX_NODE:
            return "no-such-number"
        if node is not None and node.number != event.number:
            return "number-fixed"
        if node is None and state.numbered(event.number) is not None:
            return "number-taken"
        if event.supersedes != newest:
            return "not-newest"
        if event.generation != (1 if newest is None else newest + 1) or event.generation > MAX_PACKED_PART:
            return "not-next"
        return None

    @classmethod
    def change(cls, state: State, offset: int, event: Any, bound: Request) -> None:
        """Give the node its generation."""
        bound.granted[event.node] = event.generation
        node = state._enrol(event.node, event.number, event.generation)
        state._add(node, state._issue(offset, event.node))


def registration(state: State, node: str, number: int | None, expected: int | None) -> events.ImportedNode:
    """Return the number and the next generation of a node that registers.

    A node that gives no number when it registers first takes the lowest that is free. Raises RequestRefused:
    `node-number-fixed`, `node-number-taken`, `generation-not-newest`, `generations-exhausted`.
    """
    found = state.node(node)
    newest = found.newest if found else None
    check_expected(node, expected, newest)
    if found is not None:
        if number not in (None, found.number):
            raise RequestRefused("node-number-fixed", f"the number of {node} is {found.number}, not {number}")
        number = found.number
    elif number is None:
        number = next((n for n in range(MAX_NODE + 1) if state.numbered(n) is None), None)
    elif (owner := state.numbered(number)) is not None:
        raise RequestRefused("node-number-taken", f"the number belongs to node {owner}: {number}")
    if number is None or newest == MAX_PACKED_PART:
        raise RequestRefused("generations-exhausted", f"no number is left for the node: {node}")
    return events.ImportedNode(node, number, 1 if newest is None else newest + 1)
