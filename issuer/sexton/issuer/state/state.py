"""What the fold of the generations log knows: tenants, nodes, request ids, and the window of each number."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sexton.issuer.state.history import Cuts, RequestIds
from sexton.issuer.state.transactions import Transactions
from sexton.schemas import events
from sexton.schemas.events import GenerationForm
from sexton.schemas.generations import MAX_GENERATION, MAX_PACKED_PART
from sexton.schemas.offsets import offset_at
from sexton.schemas.windows import Window

__all__ = ["Issue", "Node", "Numbered", "Request", "State", "Tenant"]


@dataclass(frozen=True, slots=True)
class Issue:
    """What all numbers of one valid event share; `node` is None where none got them.

    `high` is, by partition, the largest end offset in any event up to and including this one. It closes the
    window before and opens the next. Opening at the event's own end offsets would let in what claimed the
    generation after an earlier event's end offsets were read, so before it was issued, and a barrier in
    between could be contradicted by a later one. What the holder really writes comes after all of them.
    """

    log_offset: int
    node: str | None
    high: Sequence[int]


@dataclass(slots=True)
class Numbered:
    """Something whose numbers are `first`, `first` + 1, ..., one for each entry of `issues`."""

    name: str
    first: int = 1
    issues: list[Issue] = field(default_factory=list)

    @property
    def newest(self) -> int | None:
        """The newest number, None when there never was one."""
        return self.first + len(self.issues) - 1 if self.issues else None

    def issue(self, number: int) -> Issue | None:
        """Return where a number comes from, None if it was never issued."""
        index = number - self.first
        return self.issues[index] if 0 <= index < len(self.issues) else None

    def window(self, number: int, partition: int) -> Window | None:
        """Return the window of a number in one intents partition, None if it was never issued."""
        index = number - self.first
        if not 0 <= index < len(self.issues) or partition < 0:
            return None
        start = offset_at(self.issues[index].high, partition)
        if index + 1 == len(self.issues):
            return Window(start)
        return Window(start, offset_at(self.issues[index + 1].high, partition))

    def forgotten_until(self, number: int, partition: int) -> int | None:
        """Return the offset at or below which the forgotten window of a number ended, None if it has none.

        Numbers follow each other without a gap, and only superseded ones are forgotten: each below `first`
        had ended where the oldest window that is kept begins. An import ends all numbers below its own too.
        Below 1 the answer is None: whether there was a 0 is forgotten with it.
        """
        if not 1 <= number < self.first or not self.issues or partition < 0:
            return None
        return offset_at(self.issues[0].high, partition)

    def forget_oldest(self) -> None:
        """Drop the window of the oldest, superseded number; `forgotten_until` says what is left."""
        del self.issues[0]
        self.first += 1


@dataclass(slots=True)
class Tenant(Numbered):
    """One tenant and its attachment generations; `imported` is the log offset of its Imported event.

    A tenant of the form `transactions` has those instead.
    """

    holder: str | None = None
    dropped: bool = False
    form: GenerationForm = GenerationForm.FINAL
    imported: int | None = None
    transactions: Transactions | None = None

    @property
    def proposed_after(self) -> tuple[int, int] | None:
        """The newest number, of either kind, and the log offset that Redis has to know; None: none yet."""
        if self.transactions is not None:
            newest = self.transactions.newest
            return None if newest is None else (newest, self.transactions.changed)
        return (self.first + len(self.issues) - 1, self.issues[-1].log_offset) if self.issues else None

    def was_at(self, number: int, offset: int) -> bool:
        """Return whether `proposed_after` was this at some time, so far as that is remembered."""
        if self.transactions is not None:
            return self.transactions.was_at(number, offset)
        issue = self.issue(number)
        if issue is None:  # forgotten, or never issued
            return bool(self.issues) and number < self.first and offset < self.issues[0].log_offset
        return issue.log_offset == offset

    @property
    def largest(self) -> int:
        """The last generation that its form has room for."""
        return MAX_PACKED_PART if self.form is GenerationForm.FIRST else MAX_GENERATION


@dataclass(slots=True)
class Node(Numbered):
    """One node of the first form and its node generations; `number` is fixed for ever."""

    number: int = 0


@dataclass(slots=True)
class Request:
    """A request id that has at least one valid event, and what it is bound to."""

    caller: str
    operation: str
    node: str | None
    parts: int
    offsets: dict[int, int] = field(default_factory=dict)
    granted: dict[str, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every part has a valid event: only then was the call carried out."""
        return len(self.offsets) == self.parts


class State:
    """The fold of a prefix of the log. `apply` changes it; whoever shares it between threads locks it."""

    def __init__(self) -> None:
        self.genesis: events.Genesis | None = None
        self.next_offset = 0
        self.high: Sequence[int] = ()
        self.cuts = Cuts()
        self.requests: RequestIds[Request] = RequestIds()
        self._tenants: dict[str, Tenant] = {}
        self._nodes: dict[str, Node] = {}
        self._numbers: dict[int, str] = {}
        self._held: dict[str, dict[str, None]] = {}
        self.decommissioned: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._tenants)

    def __iter__(self) -> Iterator[Tenant]:
        return iter(self._tenants.values())

    @property
    def log_offset(self) -> int:
        """Offset of the last event that was applied, -1 before the first."""
        return self.next_offset - 1

    def known(self, tenant: str) -> bool:
        """Return whether the log knows the tenant; intents of others are refused."""
        return tenant in self._tenants

    def tenant(self, tenant: str) -> Tenant | None:
        """Return a tenant, None when the log does not know it."""
        return self._tenants.get(tenant)

    def newest(self, tenant: str) -> int | None:
        """Return the newest generation of a tenant, None when it has none."""
        found = self._tenants.get(tenant)
        return found.newest if found else None

    def window(self, tenant: str, generation: int, partition: int) -> Window | None:
        """Return where intents of this generation are accepted; None: never issued, or forgotten.

        For a tenant of the first form this is one of two windows, see `windows`.
        """
        found = self._tenants.get(tenant)
        return found.window(generation, partition) if found else None

    def windows(
        self, tenant: Tenant, generation: int, partition: int, node: str | None, node_generation: int | None
    ) -> tuple[Window | None, Window | None]:
        """Return the windows of the attachment and of the node generation that a guard names.

        The tenant's form says which parts a guard must carry: without them, or with those of the other form,
        or with a node that never held that generation, there is no window of the attachment.
        """
        if tenant.form is GenerationForm.FINAL:
            foreign = node is not None or node_generation is not None
            return (None if foreign else tenant.window(generation, partition)), None
        known = self._nodes.get(node) if node is not None else None
        if known is None or node_generation is None:
            return None, None
        issue = tenant.issue(generation)
        held = issue is not None and issue.node == node
        attachment = tenant.window(generation, partition) if held else None
        return attachment, known.window(node_generation, partition)

    def forgotten(
        self, tenant: Tenant, generation: int, partition: int, node: str | None, node_generation: int | None
    ) -> tuple[int | None, int | None]:
        """Return the offsets at or below which the windows of both generations ended, if they are forgotten.

        None for a generation that has a window, was never issued, or is named without the parts that the
        tenant's form wants. Who held a forgotten generation is forgotten too: any registered node fits.
        """
        if tenant.form is GenerationForm.FINAL:
            foreign = node is not None or node_generation is not None
            return (None if foreign else tenant.forgotten_until(generation, partition)), None
        known = self._nodes.get(node) if node is not None else None
        if known is None or node_generation is None:
            return None, None
        attachment = tenant.forgotten_until(generation, partition)
        return attachment, known.forgotten_until(node_generation, partition)

    def issued_to(self, tenant: str, generation: int) -> str | None:
        """Return the node that a generation was given to, None where the log knows none."""
        found = self._tenants.get(tenant)
        issue = found.issue(generation) if found else None
        return issue.node if issue else None

    def node(self, node: str) -> Node | None:
        """Return a node of the first form, None when it never registered."""
        return self._nodes.get(node)

    def nodes(self) -> Iterator[Node]:
        """Return every registered node, in the order of the log."""
        return iter(self._nodes.values())

    def numbered(self, number: int) -> str | None:
        """Return the node that has this number, None when it is free."""
        return self._numbers.get(number)

    def held_by(self, node: str) -> list[str]:
        """Return the tenants whose newest generation this node holds, in the order of the log."""
        return list(self._held.get(node, ()))

    def request(self, request_id: str) -> Request | None:
        """Return what a request id has led to, None when no event of it is valid."""
        return self.requests.get(request_id)

    # --- changes, by the rules of the operations only -------------------------------------------------------

    def _raise_high(self, ends: events.PartitionOffsets) -> bool:
        """Raise the running maximum; False if these are no end offsets of the topic that Genesis names."""
        assert self.genesis is not None
        if ends.topic_id != self.genesis.intents_topic_id or any(end < 0 for end in ends.offsets):
            return False
        high, new = self.high, ends.offsets
        if len(new) > len(high) or any(new[i] > high[i] for i in range(len(new))):
            self.high = array("q", _largest(high, new))
        return True

    def _hold(self, tenant: Tenant, node: str | None) -> None:
        if tenant.holder is not None:
            held = self._held[tenant.holder]
            held.pop(tenant.name, None)
            if not held:
                del self._held[tenant.holder]
        tenant.holder = node
        if node is not None:
            self._held.setdefault(node, {})[tenant.name] = None

    def _own(self, name: str, form: GenerationForm = GenerationForm.FINAL) -> Tenant:
        if name not in self._tenants:
            self._tenants[name] = Tenant(name, form=form)
        return self._tenants[name]

    def _transacting(self, name: str, place: events.NumberPlace) -> Transactions:
        tenant = self._own(name, GenerationForm.TRANSACTIONS)
        if tenant.transactions is None:
            tenant.transactions = Transactions(place)
        return tenant.transactions

    def _close(self, owner: Transactions, number: int, offset: int) -> None:
        """Let a transaction be forgotten once all that stands below this event is settled."""
        if (closing := owner.close(number, offset, self.high)) is not None:
            self.cuts.close(self.high, closing)

    def _enrol(self, node: str, number: int, first: int) -> Node:
        if node not in self._nodes:
            self._nodes[node] = Node(node, first, number=number)
            self._numbers[number] = node
        return self._nodes[node]

    def _issue(self, offset: int, node: str | None) -> Issue:
        """Return what the numbers of the event at `offset` share."""
        return Issue(offset, node, self.high)

    def _add(self, owner: Numbered, issue: Issue) -> None:
        """Give the owner its next number: the window of the one before closes."""
        if owner.issues:
            self.cuts.close(issue.high, owner)
        owner.issues.append(issue)

    def _bind(self, request_id: str, request: Request, part: int, offset: int, grants: int = 1) -> Request:
        bound = self.requests.bind(request_id, request, grants)
        bound.offsets[part] = offset
        return bound


def _largest(one: Sequence[int], other: Sequence[int]) -> Iterable[int]:
    for i in range(max(len(one), len(other))):
        yield max(offset_at(one, i), offset_at(other, i))
