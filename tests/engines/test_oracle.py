"""What a database may hold after writes that were answered, and writes that were not."""

from __future__ import annotations

import random
from collections import Counter

from tests.engines.oracle import Book, Value
from tests.engines.rounds import KINDS
from tests.engines.run import deal


def _book(answered: list[tuple[str, Value]], sent: list[tuple[str, Value]]) -> Book:
    book = Book()
    book.sent(answered)
    book.answered(answered)
    book.sent(sent)
    return book


def test_b_9_what_was_called_durable_and_is_not_there_is_a_difference() -> None:
    """B-9: a key that is gone, is older, came back, or was never sent, is told by its name."""
    durable: list[tuple[str, Value]] = [("gone", "1"), ("older", "1"), ("older", "2"), ("back", None)]
    wrong = _book(durable, []).differences({"older": "1", "back": "0", "unknown": "x"})

    assert [each.partition(":")[0] for each in wrong] == ["back", "gone", "older", "unknown"]


def test_b_9_a_write_that_was_not_answered_may_be_there_or_not_and_stays_so() -> None:
    """B-9: either is right when it is read first; what was read then has to be read again."""
    for found in ({"key": "old"}, {"key": "new"}):
        book = _book([("key", "old")], [("key", "new")])
        other = {"key": "new" if found["key"] == "old" else "old"}

        assert book.differences(found) == []
        assert book.differences(found) == []
        assert len(book.differences(other)) == 1


def test_b_9_each_kind_of_round_comes_before_any_is_dealt_again() -> None:
    """B-9: every deal has each kind as often as the table says; one seed deals the same again."""
    hands = [deal(random.Random(seed)) for seed in (1, 1, 2)]
    first, again, other = ([next(hand) for _ in range(sum(KINDS.values()))] for hand in hands)

    assert Counter(first) == KINDS
    assert first == again
    assert first != other
