"""What every guard answers about itself."""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import datetime
from typing import ClassVar, Self

__all__ = ["GuardRoom"]


class GuardRoom:
    """A guard; the answers here are those of one that is about the intent as a whole."""

    __slots__ = ()

    names_keys: ClassVar[bool] = False
    """Whether it holds for the keys alone that it names, and the store checks it in their deletes."""

    def check(self) -> None:
        """Raise InvalidEvent unless every value is within its rules."""

    @property
    def holds_after(self) -> datetime | None:
        """The instant that has to have passed, by the bucket's clock too; None where time says nothing."""
        return None

    @property
    def allows_prefix(self) -> bool:
        """Whether it speaks for all that lies under a prefix when that is deleted, whoever wrote it."""
        return False

    @property
    def ends_writes(self) -> bool:
        """Whether nobody writes any more what it speaks for, once it holds."""
        return False

    @property
    def writes(self) -> Sequence[str]:
        """The keys, in the action's bucket, of the objects that are written to make it true."""
        return ()

    def for_keys(self, keys: Set[str]) -> Self:
        """Return the guard of an intent that is cut down to these keys."""
        return self

    @property
    def text(self) -> str:
        """The guard in a few words for people."""
        raise NotImplementedError
