"""What the models share: the product's rules, at most one safeguard switched off, and parts of a world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar, NamedTuple, TypeVar
from unittest.mock import patch

T = TypeVar("T")


class Switch(NamedTuple):
    """A pure rule of the product: where it stands, its name there, and what is there without it."""

    place: Any
    name: str
    instead: Any


class SwitchedRules:
    """The real rules of a model, one of its `safeguards` off: those of `switches` in the product itself."""

    safeguards: ClassVar[Mapping[str, str]] = {}
    switches: ClassVar[Mapping[str, Sequence[Switch]]] = {}

    def __init__(self, off: str | None = None) -> None:
        assert off is None or off in self.safeguards
        self.off = off

    def on(self, safeguard: str) -> bool:
        """Return whether a safeguard is in force, or what is trusted holds."""
        assert safeguard in self.safeguards
        return safeguard != self.off

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Take the rule that is switched off out of the product, if it is one of its pure rules."""
        with ExitStack() as stack:
            for place, name, instead in self.switches.get(self.off or "", ()):
                stack.enter_context(patch.object(place, name, instead))
            yield


def replaced(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    """Return the tuple with another item at this index."""
    return (*items[:index], item, *items[index + 1 :])
