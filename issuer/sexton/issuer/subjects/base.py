"""What every kind of subject can do: be asked, be answered from the fold, be read by a client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from msgspec import Struct

from sexton.issuer.state.state import State

__all__ = ["Found", "Question"]

A = TypeVar("A")


class Found(Protocol):
    """What was answered about one kind of subject, put together from several calls."""

    def gather(self, answers: Iterable[Any], asked: Iterable[Any]) -> None:
        """Take in the answers to what was asked; raises IssuerUnavailable for one that was not asked for."""

    def parts(self) -> Mapping[str, Any]:
        """Return the fields of a `Validation` that are this kind's."""


class Question(Struct, Generic[A], frozen=True):
    """A subject: what a guard claims of a tenant, and only the log can tell."""

    tenant: str

    asked_in: ClassVar[str]
    answered_in: ClassVar[str]

    def answer(self, state: State) -> A | None:
        """Return what the fold says, None for a tenant that it does not know. Pure."""
        raise NotImplementedError

    def belongs_to(self, state: State) -> Iterable[str | None]:
        """Return the nodes of which one must be the asking node, if it is a node that asks."""
        raise NotImplementedError

    @classmethod
    def count(cls, answers: Sequence[Any]) -> Mapping[str, int]:
        """Count the answers by what the metric of subjects calls them."""
        raise NotImplementedError

    @classmethod
    def found(cls) -> Found:
        """Return an empty collection of answers."""
        raise NotImplementedError
