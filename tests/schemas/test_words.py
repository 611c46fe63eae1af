"""Numbers in sentences."""

from __future__ import annotations

from sexton.schemas.text import counted


def test_one_of_a_thing_is_no_plural() -> None:
    """The noun follows the number, also where nobody knows it."""
    reported = [counted(number, "dead letter") for number in (0, 1, 2, "?")]

    assert reported == ["0 dead letters", "1 dead letter", "2 dead letters", "? dead letters"]
