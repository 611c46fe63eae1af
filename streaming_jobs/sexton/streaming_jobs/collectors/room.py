"""What a collector's room has to have, and the values that the driver and the rooms hand to each other.

A run has five steps, and only the second sees single objects: `plan` asks what has to be known first, a fold
of the plan turns listed objects into parts, `sift` keeps those that may be garbage, `complete` asks what must
not be older than the listing, `decide` says what is garbage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, Self

from sexton.issuer.api import Issuer
from sexton.schemas.actions import Action
from sexton.schemas.errors import UsageError
from sexton.schemas.guards import Guard
from sexton.schemas.settings import Settings
from sexton.schemas.vetoes import Veto
from sexton.storage import Listed, ObjectStore

__all__ = [
    "Body",
    "Fold",
    "Found",
    "Gone",
    "Part",
    "PlainRoom",
    "Plan",
    "Room",
    "RoomOption",
    "Scope",
    "Sources",
    "Unresolved",
]

Part = Any
"""What a fold has made of some objects: a frozen dataclass of the room's that JSON can hold."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is listed: a prefix of a bucket, empty or ending in `/`."""

    bucket: str
    prefix: str

    def __post_init__(self) -> None:
        if self.prefix and not self.prefix.endswith("/"):
            raise UsageError(
                f"a prefix must end in '/': {self.prefix!r}",
                hint="one that ends in the middle of a name covers its neighbours, too",
            )

    @property
    def text(self) -> str:
        """The place as a URI."""
        return f"s3://{self.bucket}/{self.prefix}"


@dataclass(frozen=True, slots=True)
class Sources:
    """What a run may ask; of the store it lists and reads."""

    settings: Settings
    issuer: Issuer
    store: ObjectStore


@dataclass(frozen=True, slots=True)
class Body:
    """What an intent asks for; `why` tells two reasons for the same deletion apart."""

    tenant: str
    why: str
    guards: Sequence[Guard]
    action: Action
    vetoes: Sequence[Veto] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """Garbage of one cause; `covers` is what its keys begin with, `body` makes the intent's body at a date.

    `identity` names what is deleted and why, whatever the date of the listing: intent ids are made of it.
    `whole` says that all of what it covers goes, `way` how.
    """

    cause: str
    covers: str
    identity: Sequence[str]
    detail: str
    objects: int
    bytes: int
    body: Callable[[datetime], Body]
    whole: bool = True
    way: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """Garbage of which a whole listing finds nothing any more.

    `note` says so to the issuer and returns the log offset that holds it, None where that is not certain; it
    may raise RequestRefused and IssuerUnavailable.
    """

    cause: str
    covers: str
    tenant: str
    detail: str
    note: Callable[[Issuer], int] | None


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Something that may be garbage, and nobody can tell any more what exactly."""

    cause: str
    tenant: str
    detail: str


@dataclass(frozen=True, slots=True)
class RoomOption:
    """An option that one collector alone has: `--name VALUE`."""

    name: str
    help: str
    default: str


class Fold(Protocol):
    """Turns listed objects, in their order, into parts; those of several folds of one listing add up."""

    def add(self, entry: Listed) -> Iterable[Part]:
        """Take in an object and return the parts that are whole by then."""

    def end(self) -> Iterable[Part]:
        """Return what is left, and begin anew."""


class Plan(Protocol):
    """What a run of a collector knows before it lists; frozen, picklable, and of a form for JSON."""

    @property
    def unresolved(self) -> Sequence[Unresolved]:
        """What can only be reported."""

    def fold(self) -> Fold:
        """Return a new fold."""


class Room(Protocol):
    """A collector; `prefix_help` says what its `--prefix` is, `given` has the values of its own options."""

    name: str
    summary: str
    prefix_help: str
    prefix_example: str
    plan_type: type[Any]
    part_type: type[Any]
    options: Sequence[RoomOption]
    given: Mapping[str, str]

    def configured(self, given: Mapping[str, str]) -> Room:
        """Return the collector with values of its own options; raises UsageError."""

    def listed(self, scope: Scope) -> str:
        """Return the prefix that is listed; raises UsageError for a scope that is none of this collector."""

    def plan(self, scope: Scope, sources: Sources) -> Plan:
        """Ask what has to be known before listing."""

    def sift(self, parts: Sequence[Part], sources: Sources) -> list[Part]:
        """Ask about parts in bulk and return those that may be garbage; the others are forgotten."""

    def complete(
        self, plan: Any, scope: Scope, parts: Sequence[Part], sources: Sources, listed_at: datetime
    ) -> Plan:
        """Return the plan with what has to be asked once all is listed; `listed_at` is the oldest Date."""

    def decide(self, plan: Any, scope: Scope, parts: Sequence[Part]) -> list[Found]:
        """Return the garbage among sifted parts; pure."""

    def gone(self, plan: Any, scope: Scope, parts: Sequence[Part]) -> list[Gone]:
        """Return what of the plan is proven to be gone, as none of the sifted parts is of it; pure."""


class PlainRoom:
    """What a room is that has no options of its own, asks all before it lists, and proves nothing gone."""

    options: Sequence[RoomOption] = ()
    given: Mapping[str, str] = {}

    def configured(self, given: Mapping[str, str]) -> Self:
        """Return the room itself."""
        return self

    def complete(
        self, plan: Any, scope: Scope, parts: Sequence[Part], sources: Sources, listed_at: datetime
    ) -> Any:
        """Return the plan as it is."""
        return plan

    def gone(self, plan: Any, scope: Scope, parts: Sequence[Part]) -> list[Gone]:
        """Return nothing."""
        return []
