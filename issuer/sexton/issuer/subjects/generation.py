"""Generations as subjects: the window in which intents of one are accepted, in one intents partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from sexton.issuer.state.state import State, Tenant
from sexton.issuer.subjects.base import Question
from sexton.issuer.wire import Index
from sexton.schemas.errors import IssuerUnavailable
from sexton.schemas.windows import Window

__all__ = ["Answer", "Gathered", "Subject", "both"]

_T = TypeVar("_T")


class Answer(Struct, omit_defaults=True, gc=False):
    """A subject's window: `until` is absent while the generation is newest, `from` when there is no window.

    Without both the generation was never issued; with `until` alone it was superseded and its window, which
    ended at that offset or below it, is forgotten. Subjects of the first form have two windows, which hold
    together: `node_from` and `node_until` are those of the node generation, and read the same way. With
    `node_until` the node is stale.
    """

    tenant: str
    generation: int
    partition: int
    newest: bool
    start: int | UnsetType = msgspec.field(name="from", default=UNSET)
    until: int | UnsetType = UNSET
    node: str | UnsetType = UNSET
    node_generation: int | UnsetType = UNSET
    node_from: int | UnsetType = UNSET
    node_until: int | UnsetType = UNSET


class Subject(Question[Answer], frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A generation whose window in one intents partition is asked for."""

    generation: int
    partition: Index
    node: str | None = None
    node_generation: int | None = None

    asked_in = "subjects"
    answered_in = "answers"

    def answer(self, state: State) -> Answer | None:
        """Return the windows of the generation, and of its node's in the first form."""
        tenant = state.tenant(self.tenant)
        if tenant is None:
            return None
        answer = Answer(self.tenant, self.generation, self.partition, newest=False)
        if self.node is not None or self.node_generation is not None:
            answer.node = UNSET if self.node is None else self.node
            answer.node_generation = UNSET if self.node_generation is None else self.node_generation
        window, of_node = state.windows(
            tenant, self.generation, self.partition, self.node, self.node_generation
        )
        if window is not None:
            answer.start = window.start
            answer.newest = window.until is None
            answer.until = UNSET if window.until is None else window.until
        if of_node is not None:
            answer.node_from = of_node.start
            answer.node_until = UNSET if of_node.until is None else of_node.until
        if window is None or (of_node is None and self.node is not None):
            self._tell_forgotten(state, tenant, answer)
        return answer

    def _tell_forgotten(self, state: State, tenant: Tenant, answer: Answer) -> None:
        until, node_until = state.forgotten(
            tenant, self.generation, self.partition, self.node, self.node_generation
        )
        if until is not None:
            answer.until = until
        if node_until is not None:
            answer.node_until = node_until

    def belongs_to(self, state: State) -> Iterable[str | None]:
        """Return the node that it names, and the one that the log has for the generation."""
        return self.node, state.issued_to(self.tenant, self.generation)

    @classmethod
    def count(cls, answers: Sequence[Answer]) -> Mapping[str, int]:
        """Count the newest, those that were superseded and have a window, and those without one."""
        newest = sum(answer.newest for answer in answers)
        windows = sum(type(answer.start) is int for answer in answers)
        return {"newest": newest, "covered": windows - newest, "never": len(answers) - windows}

    @classmethod
    def found(cls) -> Gathered:
        """Return an empty collection of windows."""
        return Gathered()


@dataclass(slots=True)
class Gathered:
    """What a `Validation` holds about generations, put together one by one."""

    windows: dict[Subject, Window | None] = field(default_factory=dict)
    attachments: dict[Subject, Window | None] = field(default_factory=dict)
    nodes: dict[Subject, Window | None] = field(default_factory=dict)
    forgotten: dict[Subject, int] = field(default_factory=dict)

    def put(
        self,
        subject: Subject,
        attachment: Window | None,
        node: Window | None,
        until: int | None,
        node_until: int | None,
    ) -> None:
        """Take in a subject's windows; of one that is None `until` says where it ended at the latest."""
        if subject.node is None and subject.node_generation is None:
            self.windows[subject] = attachment
            ended = until if attachment is None else None
        else:
            self.attachments[subject], self.nodes[subject] = attachment, node
            self.windows[subject] = both(attachment, node)
            ended = _both_ended(attachment, node, until, node_until)
        if ended is not None:
            self.forgotten[subject] = ended

    def gather(self, answers: Iterable[Answer], asked: Iterable[Subject]) -> None:
        """Put in what was answered about each subject.

        Answers stand in the order of what was asked, those of unknown tenants left out. Raises
        IssuerUnavailable for an answer that was not asked for.
        """
        left = iter(asked)
        for a in answers:
            node, generation = _given(a.node), _given(a.node_generation)
            answered = Subject(a.tenant, a.generation, a.partition, node, generation)
            if not any(answered == subject for subject in left):
                raise IssuerUnavailable(f"an answer of the issuer that was not asked for: {a.tenant}")
            until, node_until = _given(a.until), _given(a.node_until)
            attachment = None if a.start is UNSET else Window(a.start, until)
            of_node = None if a.node_from is UNSET else Window(a.node_from, node_until)
            self.put(answered, attachment, of_node, until, node_until)

    def parts(self) -> Mapping[str, Any]:
        """Return the fields of a `Validation`."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def both(attachment: Window | None, node: Window | None) -> Window | None:
    """Return where a guard of the first form holds: in both windows, nowhere if one is missing."""
    return None if attachment is None or node is None else attachment.intersect(node)


def _both_ended(
    attachment: Window | None, node: Window | None, until: int | None, node_until: int | None
) -> int | None:
    """Return from where on a guard of the first form is superseded, None unless a window is forgotten.

    Below the start of the other window it would be claimed early, and where the other number was never issued
    nobody was given such a pair.
    """
    if attachment is not None and node is not None:
        return None
    one = until if attachment is None else attachment.start
    other = node_until if node is None else node.start
    return None if one is None or other is None else max(one, other)


def _given(value: _T | UnsetType) -> _T | None:
    return None if isinstance(value, UnsetType) else value
