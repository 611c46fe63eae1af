"""What the judge may ask about: one room for each kind of subject.

A kind has a list of its own in the question and in the answer (`asked_in`, `answered_in`), so that thousands
of each are decoded without a tag; to add one: its room, its line here, its fields in `Validate` and
`Validation`.
"""

from __future__ import annotations

from typing import Any

from sexton.issuer.subjects.base import Question
from sexton.issuer.subjects.generation import Subject
from sexton.issuer.subjects.transaction import TransactionSubject

__all__ = ["KINDS"]

KINDS: tuple[type[Question[Any]], ...] = (Subject, TransactionSubject)
