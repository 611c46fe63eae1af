"""What every action answers about itself."""

from __future__ import annotations

from collections.abc import Sequence, Set
from enum import StrEnum
from typing import NamedTuple, Self

from sexton.schemas.guards import Guard, KeyCondition

__all__ = ["ActionRoom", "DeleteMode", "Refusal"]


class DeleteMode(StrEnum):
    """What a delete does on a versioned bucket; on others all three are a plain delete."""

    HIDE = "hide"
    ERASE_VERSION = "erase_version"
    ERASE_ALL_VERSIONS = "erase_all_versions"


class Refusal(NamedTuple):
    """Why an action may not be executed, whatever its guards come to: a stable reason and a text."""

    reason: str
    detail: str


class ActionRoom:
    """An action; the answers here are those of one that touches no object."""

    __slots__ = ()

    @property
    def place(self) -> str | None:
        """The bucket in which it deletes, None for one that deletes nothing."""
        return None

    @property
    def keys(self) -> Sequence[str]:
        """The keys that it names itself; none for one that finds out what there is."""
        return ()

    @property
    def key_count(self) -> int:
        """How many keys it names."""
        return sum(map(len, self.key_phases))

    @property
    def key_phases(self) -> Sequence[Sequence[str]]:
        """The keys in the order in which they go: a phase starts when the one before it is gone."""
        return ()

    @property
    def pause_between_s(self) -> int:
        """How many seconds after a phase is gone the next one starts, at the soonest."""
        return 0

    @property
    def reaches(self) -> Sequence[str]:
        """What all that it may delete begins with: the whole key, or the prefix."""
        return self.keys

    @property
    def bypasses_governance(self) -> bool:
        """Whether it asks to delete what governance retention locks."""
        return False

    def check(self) -> None:
        """Raise InvalidEvent unless every value is within its rules."""

    def check_conditions(self, conditions: Set[str]) -> None:
        """Raise InvalidEvent for a condition on a key that no delete of this action is about."""

    def refusal(self, min_depth: int = 1) -> Refusal | None:
        """Return why no reaper executes it as it stands, None if one does.

        `min_depth` is how many segments below the bucket a prefix needs at least.
        """
        return None

    def guards_missing(self, guards: Sequence[Guard], conditions: dict[str, KeyCondition]) -> Refusal | None:
        """Return why these guards, if they hold, do not make it safe; None if they do."""
        return None

    def may_delete(self, key: str) -> bool:
        """Return whether an object of this key may go by it."""
        return key in self.keys

    def for_keys(self, keys: Set[str]) -> Self | None:
        """Return the action for these of its keys alone, None if it has none of them."""
        return self

    @property
    def text(self) -> str:
        """The action in a few words for people."""
        raise NotImplementedError
