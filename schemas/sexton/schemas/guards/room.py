"""What every guard answers about itself."""

from __future__ import annotations

from collections.abc import Set
from typing import ClassVar, Self

__all__ = ["GuardRoom"]


class GuardRoom:
    """A guard; the answers here are those of one that is about the intent as a whole."""

    __slots__ = ()

    allows_prefix: ClassVar[bool] = False
    """Whether it speaks for all that lies under a prefix when that is deleted, whoever wrote it."""
    names_keys: ClassVar[bool] = False
    """Whether it holds for the keys alone that it names, and the store checks it in their deletes."""

    def check(self) -> None:
        """Raise InvalidEvent unless every value is within its rules."""

    def for_keys(self, keys: Set[str]) -> Self:
        """Return the guard of an intent that is cut down to these keys."""
        return self

    @property
    def text(self) -> str:
        """The guard in a few words for people."""
        raise NotImplementedError
