"""Vetoes say when a deletion stops; they need not be stable, as they can only narrow.

A guard makes a delete safe, a veto makes it stop: one is asked about at every attempt, before the first
request of each phase that it names. A vetoed intent is `cancelled`: nothing more of it is sent, and what went
before keeps its outcome. A presence that cannot be determined is *not yet*, never a pass.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sexton.schemas.actions import ActionRoom
from sexton.schemas.checks import check_keys
from sexton.schemas.errors import InvalidEvent
from sexton.schemas.text import instant_text

__all__ = ["VETOES", "ExpiresAt", "OnlyWhileExists", "UnlessWhole", "Veto"]


class _VetoRoom:
    """What every veto answers about itself."""

    __slots__ = ()

    phases: Sequence[int] | None

    def check(self, phases: int) -> None:
        """Raise InvalidEvent unless every value is within its rules, for an action of so many phases."""
        if self.phases is None:
            return
        if not self.phases:
            raise InvalidEvent("a veto names no phase; leave `phases` out for all of them")
        strange = next((number for number in self.phases if not 0 <= number < phases), None)
        if strange is not None:
            raise InvalidEvent(f"a veto names a phase that the action does not have: {strange} of {phases}")

    def check_action(self, action: ActionRoom) -> None:
        """Raise InvalidEvent where the action itself would bring about what it asks for."""

    @property
    def needed(self) -> Sequence[str]:
        """Keys of objects that have to stand when a phase begins."""
        return ()

    def names(self, phase: int) -> bool:
        """Return whether it is asked about before this phase; the first one is 0."""
        return self.phases is None or phase in self.phases

    @property
    def objects(self) -> Sequence[str]:
        """The keys that the store is asked about."""
        return ()

    @property
    def text(self) -> str:
        """The veto in a few words for people."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ExpiresAt(_VetoRoom):
    """Stops once the instant has passed: what was planned from a listing is not executed days later."""

    instant: datetime
    phases: Sequence[int] | None = None

    @property
    def text(self) -> str:
        """The instant, in UTC."""
        return f"until {instant_text(self.instant)}"


@dataclass(frozen=True, slots=True)
class _OfKey(_VetoRoom):
    """A veto about what stands under a key."""

    key: str
    phases: Sequence[int] | None = None

    @property
    def objects(self) -> Sequence[str]:
        """The key."""
        return (self.key,)

    def check(self, phases: int) -> None:
        """Raise InvalidEvent for a key that no object can have, too."""
        check_keys((self.key,))
        _VetoRoom.check(self, phases)


@dataclass(frozen=True, slots=True)
class OnlyWhileExists(_OfKey):
    """Stops once the object is gone: what made this one garbage has vanished."""

    def check_action(self, action: ActionRoom) -> None:
        """Raise InvalidEvent for an object that the intent deletes: its next attempt would stop."""
        if action.may_delete(self.key):
            raise InvalidEvent(f"a veto needs an object that the intent itself deletes: {self.key[:80]!r}")

    @property
    def needed(self) -> Sequence[str]:
        """The key."""
        return (self.key,)

    @property
    def text(self) -> str:
        """The key."""
        return f"only while {self.key} exists"


@dataclass(frozen=True, slots=True)
class UnlessWhole(_OfKey):
    """Stops once the unit is whole: its commit object is there, with each file that it names, in its size.

    Where it is there and not whole, it goes before the phase begins.
    """

    @property
    def text(self) -> str:
        """The commit object's key."""
        return f"unless the unit of {self.key} is whole"


Veto = ExpiresAt | OnlyWhileExists | UnlessWhole
VETOES: Sequence[type[Veto]] = typing.get_args(Veto)
