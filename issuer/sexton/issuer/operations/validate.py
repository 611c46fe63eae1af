"""Validate: the judge's question, about subjects of every kind at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.base import Asking, Desk
from sexton.issuer.state.state import State
from sexton.issuer.subjects import KINDS
from sexton.issuer.subjects.base import Question
from sexton.issuer.subjects.generation import Answer, Subject
from sexton.issuer.subjects.transaction import TransactionAnswer, TransactionSubject
from sexton.issuer.wire import MAX_SUBJECTS, Offset

__all__ = ["Validate", "Validation"]


class Validation(Struct, omit_defaults=True):
    """The answers in the order of the subjects, those of unknown tenants left out."""

    log_offset: int
    topic_id: str
    answers: list[Answer]
    transactions: list[TransactionAnswer] = []


class Validate(Asking[Validation], forbid_unknown_fields=True):
    """Up to 10,000 subjects of each kind; the answer is as of `at_least` or a later log offset."""

    subjects: Annotated[list[Subject], Meta(max_length=MAX_SUBJECTS)]
    at_least: Offset | None = None
    transactions: Annotated[list[TransactionSubject], Meta(max_length=MAX_SUBJECTS)] = field(
        default_factory=list
    )

    path = "/v1/validate"
    answer = Validation

    def asks_about(self, state: State) -> Iterable[str | None]:
        """Return the nodes that the subjects name and those that the log has for them."""
        return (node for subject in self._all() for node in subject.belongs_to(state))

    def _all(self) -> Iterator[Question[Any]]:
        return chain.from_iterable(getattr(self, kind.asked_in) for kind in KINDS)

    def carry_out(self, desk: Desk, deadline: Deadline) -> Validation:
        """Answer each subject from the fold, as of `at_least` or later.

        Without it, as of a barrier of the call's own: a broker that was deposed and does not know it still
        tells an end of the log, but cannot append to it.
        """
        tenants = {subject.tenant for subject in self._all()}
        if self.at_least is not None:
            desk.log.wait_for(self.at_least, deadline)
        elif tenants:
            desk.confirm(deadline)
        else:
            desk.log.read_ends(deadline)
        desk.witness.agree(tenants, deadline)
        with desk.log.state() as state:
            assert state.genesis is not None
            answers = {
                kind.answered_in: [
                    answer
                    for subject in getattr(self, kind.asked_in)
                    if (answer := subject.answer(state)) is not None
                ]
                for kind in KINDS
            }
            validation = Validation(state.log_offset, state.genesis.intents_topic_id, **answers)
        for kind in KINDS:
            desk.count_subjects(len(getattr(self, kind.asked_in)), **kind.count(answers[kind.answered_in]))
        return validation
