"""The action that deletes keys by name."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Self

from sexton.schemas.actions.room import ActionRoom, DeleteMode, Refusal
from sexton.schemas.checks import check_bucket, check_keys
from sexton.schemas.errors import InvalidEvent
from sexton.schemas.guards import Guard, KeyCondition

__all__ = ["DeleteObjects"]

_LONGEST_PAUSE_S = 30 * 24 * 60 * 60  # the delay queue keeps what waits for three times as long


@dataclass(frozen=True, slots=True)
class DeleteObjects(ActionRoom):
    """Delete the named keys, phase by phase: one starts when the one before it is acknowledged gone.

    With `pause_s` it starts no sooner than so many seconds after that.
    """

    bucket: str
    phases: Sequence[Sequence[str]]
    mode: DeleteMode = DeleteMode.HIDE
    bypass_governance: bool = False
    pause_s: int = 0

    @property
    def place(self) -> str:
        """The bucket."""
        return self.bucket

    @property
    def keys(self) -> Sequence[str]:
        """The keys of all phases, in their order."""
        return self.phases[0] if len(self.phases) == 1 else [key for phase in self.phases for key in phase]

    @property
    def key_phases(self) -> Sequence[Sequence[str]]:
        """The phases."""
        return self.phases

    @property
    def pause_between_s(self) -> int:
        """The pause."""
        return self.pause_s

    @property
    def bypasses_governance(self) -> bool:
        """Whether it asks to delete what governance retention locks."""
        return self.bypass_governance

    def check(self) -> None:
        """Raise InvalidEvent for a bucket's name or a key that cannot be one, and for an empty phase."""
        check_bucket(self.bucket)
        if not self.phases or not all(self.phases):
            raise InvalidEvent("delete_objects needs at least one key in each phase")
        for phase in self.phases:
            check_keys(phase)
        if not 0 <= self.pause_s <= _LONGEST_PAUSE_S:
            raise InvalidEvent(f"a pause has 0 to {_LONGEST_PAUSE_S} seconds: {self.pause_s}")

    def check_conditions(self, conditions: Set[str]) -> None:
        """Raise InvalidEvent for a condition on another key: nobody would check it."""
        elsewhere = next(iter(conditions - set(self.keys)), None)
        if elsewhere is not None:
            raise InvalidEvent(f"a condition names a key that is not to be deleted: {elsewhere[:80]!r}")

    def guards_missing(self, guards: Sequence[Guard], conditions: dict[str, KeyCondition]) -> Refusal | None:
        """Return that a key is guarded by nothing: no condition names it, and no guard is about all."""
        if not all(guard.names_keys for guard in guards):
            return None
        unguarded = next((key for key in self.keys if key not in conditions), None)
        if unguarded is None:
            return None
        return Refusal("unguarded-key", f"no condition names it, and nothing else guards it: {unguarded!r}")

    def for_keys(self, keys: Set[str]) -> Self | None:
        """Return the action for these keys: phases keep their order, and empty ones go."""
        cut = [tuple(key for key in phase if key in keys) for phase in self.phases]
        phases = tuple(phase for phase in cut if phase)
        return replace(self, phases=phases) if phases else None

    @property
    def text(self) -> str:
        """The first key, and how many more."""
        first, count = next(iter(self.keys), ""), self.key_count
        more = f" and {count - 1} more" if count > 1 else ""
        return f"delete s3://{self.bucket}/{first}{more}"
