"""What an operation is made of: a request that knows who may make it, what it does, and how its event counts.

A call that changes something appends events with its request id. Two rules read the same state: `decide` says
what is appended, or refuses; `apply` says for every reader of the log, for ever, whether the event counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from msgspec import Struct

from sexton.issuer.access import EVERYBODY, Role
from sexton.issuer.deadline import Deadline
from sexton.issuer.state.binding import check_binding, check_in_time, identity, request_fault
from sexton.issuer.state.state import Request, State
from sexton.issuer.wire import BarrierAnswer, Name
from sexton.schemas import events
from sexton.schemas.events import GenerationEvent, PartitionOffsets

__all__ = [
    "VALID",
    "Asking",
    "Change",
    "Changing",
    "Desk",
    "Done",
    "Log",
    "Made",
    "Operation",
    "Valid",
    "Verdict",
    "Void",
    "Wait",
    "Witnessing",
]

A = TypeVar("A")
_PATIENCE_S = 1.0  # of a call that waits for end offsets: it holds a thread; who asks tries again
_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Valid:
    """The event counts."""


@dataclass(frozen=True, slots=True)
class Void:
    """The event changes no tenant; `reason` is a stable code."""

    reason: str


Verdict = Valid | Void
VALID = Valid()


class Log(Protocol):
    """The generations log, folded; the service's is in Kafka, the fake's a list."""

    def state(self) -> AbstractContextManager[State]:
        """Hold the fold still and return it."""

    def ends(self, deadline: Deadline) -> PartitionOffsets:
        """Read the end offsets of the intents topic."""

    def read_ends(self, deadline: Deadline) -> PartitionOffsets:
        """Read the end offsets and fold the log up to the end that it had then."""

    def wait_for(self, offset: int, deadline: Deadline) -> None:
        """Return once the log is folded up to this offset."""

    def append(self, event: Any, part: int, deadline: Deadline) -> bool:
        """Append, read back, and say whether this very event is the valid one of its request and part."""

    def write(self, event: GenerationEvent, deadline: Deadline) -> int:
        """Append an event, fold the log up to it and return its offset."""

    def event_at(self, offset: int, deadline: Deadline) -> GenerationEvent | None:
        """Read one event again; None where the log is cut off."""


class Witnessing(Protocol):
    """The second witness, Redis, which proposes numbers and has to agree with the fold."""

    def agree(self, tenants: Iterable[str], deadline: Deadline) -> None:
        """Return when it agrees with the fold on these tenants."""

    def propose(self, tenants: Iterable[str], deadline: Deadline) -> Sequence[events.Grant]:
        """Return a proposal for each tenant."""

    def project(self, tenants: Iterable[str], deadline: Deadline) -> None:
        """Write what the fold says of tenants whose event was valid."""

    def withdraw(self, tenants: Iterable[str], deadline: Deadline) -> None:
        """Set it to what the fold says of tenants whose event was void."""


class Desk(Protocol):
    """Where calls are carried out: all that an operation needs around it."""

    @property
    def log(self) -> Log:
        """The generations log."""

    @property
    def witness(self) -> Witnessing:
        """The second witness."""

    @property
    def revocation_delay_s(self) -> float:
        """For how long a node's credentials have to be revoked before it can be decommissioned, seconds."""

    def now(self) -> datetime:
        """Return the instant that an event is written at."""

    def barrier(self, deadline: Deadline) -> BarrierAnswer:
        """Make a barrier, or share one whose end offsets have not been read yet."""

    def confirm(self, deadline: Deadline) -> None:
        """Fold the log up to its end, and make sure that it is the end."""

    def timed(self, histogram: str) -> AbstractContextManager[Any]:
        """Measure what is done inside."""

    def count_barrier(self) -> None:
        """Count a barrier that was appended."""

    def count_subjects(self, asked: int, **answers: int) -> None:
        """Count the answers about subjects; the rest of what was asked is unknown."""


class Operation(Struct, Generic[A], omit_defaults=True):
    """One call of the API: the fields are its request, and its docstring describes it to people."""

    path: ClassVar[str]
    answer: ClassVar[type[Struct]]
    roles: ClassVar[frozenset[Role]]
    changes: ClassVar[bool] = True
    folds: ClassVar[tuple[type, ...]] = ()
    hands_out: ClassVar[int] = 0

    def acts_as(self) -> str | None:
        """Return the node as which the call acts, None where it may be anybody's; "" is no node's name."""
        return getattr(self, "node", "")

    def asks_about(self, state: State) -> Iterable[str | None]:
        """Return the nodes whose numbers the call asks about: another node may not ask."""
        return ()

    def carry_out(self, desk: Desk, deadline: Deadline) -> A:
        """Do what is asked and return the answer; raises RequestRefused, UsageError, EnvironmentFault."""
        raise NotImplementedError

    @classmethod
    def apply(cls, state: State, offset: int, event: Any) -> Verdict:
        """Apply one of the events in `folds` and say whether it is valid."""
        raise NotImplementedError

    @classmethod
    def numbers(cls, event: Any) -> int:
        """Return how many numbers a valid event hands out."""
        return cls.hands_out


class Asking(Operation[A]):
    """A call that changes nothing."""

    roles = EVERYBODY
    changes = False

    def acts_as(self) -> str | None:
        """Anybody may ask, a node about what is its own."""
        return None


class Changing(Operation[A], kw_only=True):
    """A call that changes something, once for its request id."""

    request_id: Name | None = None
    caller: Name | None = None

    @classmethod
    def apply(cls, state: State, offset: int, event: Any) -> Verdict:
        """Apply an event of the call, and say whether it is valid: all of it, or nothing."""
        ends = getattr(event, "ends", None)
        if ends is not None and not state._raise_high(ends):
            return Void("other-intents-topic")
        part, parts = getattr(event, "part", 0), getattr(event, "parts", 1)
        request = Request(event.caller, cls.bound_as(event), getattr(event, "node", None), parts)
        reason = request_fault(state, event.request_id, request, part) or cls.fault(state, event)
        if reason:
            return Void(reason)
        bound = state._bind(event.request_id, request, part, offset, cls.weight(event))
        cls.change(state, offset, event, bound)
        return VALID

    @classmethod
    def bound_as(cls, event: Any) -> str:
        """Return the name of the call to which the request id of an event is bound."""
        raise NotImplementedError

    @classmethod
    def fault(cls, state: State, event: Any) -> str | None:
        """Return why the event is void, apart from its request id; None when it is valid."""
        raise NotImplementedError

    @classmethod
    def change(cls, state: State, offset: int, event: Any, bound: Request) -> None:
        """Change the state as a valid event says, and note the numbers of its answer in `bound`."""
        raise NotImplementedError

    @classmethod
    def weight(cls, event: Any) -> int:
        """Return how many numbers the answer keeps in memory."""
        return 1


@dataclass(frozen=True, slots=True)
class Made:
    """What every event of a call carries besides what was asked for."""

    request_id: str
    caller: str
    ends: PartitionOffsets
    at: datetime
    grant: events.Grant | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """The call cannot be carried out with these end offsets; `why` is what is waited for."""

    why: str


@dataclass(frozen=True, slots=True)
class Done:
    """A call that was carried out: `is_ours` if by an event that this very call has appended."""

    request_id: str
    request: Request
    is_ours: bool

    @property
    def log_offset(self) -> int:
        """Where the log proves it."""
        return self.request.offsets[0]


class Change(Changing[A]):
    """A call that a single event carries out."""

    binding: ClassVar[str]

    @classmethod
    def bound_as(cls, event: Any) -> str:
        """Return the name of the call."""
        return cls.binding

    def check(self) -> None:
        """Raise UsageError for what can never be right."""

    def numbered(self) -> Sequence[str] | None:
        """Return the tenants that get a number, with which Redis has to agree; None: no tenant does."""
        return None

    def leads_to(self) -> int | None:
        """Return the number that the call leads to, where what is asked says so."""
        return None

    def proposes(self, state: State) -> str | None:
        """Return the tenant for which Redis proposes the number, None where none is needed.

        Raises RequestRefused for what the log rules out.
        """
        return None

    def decide(self, state: State, made: Made) -> Any:
        """Return the event that carries the call out; raises RequestRefused.

        Also a Done where an earlier call has led to it, or a Wait for later end offsets.
        """
        raise NotImplementedError

    def answered(self, desk: Desk, done: Done, deadline: Deadline) -> A:
        """Return the answer; raises RequestRefused where the request id was given for another call."""
        raise NotImplementedError

    def carry_out(self, desk: Desk, deadline: Deadline) -> A:
        """Append what `decide` says until an event of the request is valid, and answer."""
        self.check()
        numbered = self.numbered()
        node: str | None = getattr(self, "node", None)
        request_id, caller = identity(self.request_id, self.caller, node or "")
        if numbered is not None:
            desk.witness.agree(numbered, deadline)  # without Redis no number is used up
        done = self._append(desk, request_id, Request(caller, self.binding, node, 1), deadline)
        answer = self.answered(desk, done, deadline)
        if numbered is not None:
            # Where Redis fails here the log has it all the same; who next compares brings Redis up to it.
            desk.witness.project(numbered, deadline)
        return answer

    def _append(self, desk: Desk, request_id: str, binding: Request, deadline: Deadline) -> Done:
        is_ours = False
        patience: Deadline | None = None
        while True:
            # Read before the event is appended: later ones would cover what was written when a successor
            # might have read the index already.
            ends = desk.log.read_ends(deadline)
            with desk.log.state() as state:
                known = self._known(state, request_id, binding)
                proposed = None if known else self.proposes(state)
            if known is not None:
                return Done(request_id, known, is_ours)
            grant = desk.witness.propose([proposed], deadline)[0] if proposed else None
            with desk.log.state() as state:
                event = self.decide(state, Made(request_id, binding.caller, ends, desk.now(), grant))
            if isinstance(event, Done):
                return event
            if isinstance(event, Wait):
                patience = patience or deadline.within(_PATIENCE_S)
                time.sleep(min(_PAUSE_S, patience.require(event.why)))
                continue
            # What has not been read back as valid did not happen; a void event is made anew from what the
            # log now says.
            is_ours = desk.log.append(event, 0, deadline)
            if proposed and not is_ours:
                desk.witness.withdraw([proposed], deadline)

    def _known(self, state: State, request_id: str, binding: Request) -> Request | None:
        """Return what the request has led to; raises RequestRefused if it is another call's, or too old."""
        tenant: str | None = getattr(self, "tenant", None)
        known = state.request(request_id)
        if known is None:
            check_in_time(state, request_id)
            return None
        check_binding(known, binding, None if tenant is None else [tenant], self.leads_to())
        return known
