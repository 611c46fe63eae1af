"""Whose a name is that carries a transaction's number, and which number may stand in one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.schemas.numbered_names import carries, number_in
from sexton.schemas.transaction_events import NumberPlace

FIRST, LAST = NumberPlace.FIRST, NumberPlace.LAST


@pytest.mark.parametrize(
    ("name", "place", "is_own"),
    [
        *(("23/x", FIRST, True), ("23/24/x", FIRST, True), ("23/", FIRST, True), ("23/x.24", FIRST, True)),
        *(("23", FIRST, False), ("24/23/x", FIRST, False), ("023/x", FIRST, False), ("23//x", FIRST, False)),
        *(("23/../24/x", FIRST, False), ("x.23", FIRST, False), ("./23/x", FIRST, False)),
        *(("x.23", LAST, True), ("a/24/x.23", LAST, True), (".23", LAST, True), ("x.24.23", LAST, True)),
        *(("x.24", LAST, False), ("x.023", LAST, False), ("x.123", LAST, False), ("x.23/y", LAST, False)),
        *(
            ("24/x.23", LAST, False),
            ("23/x.23", LAST, False),
            ("٢٤/x.23", LAST, False),
            ("²/x.23", LAST, False),
        ),
        *(("a//x.23", LAST, False), ("a/../x.23", LAST, False), ("/x.23", LAST, False)),
        *(("23/x.23", "middle", False), ("x.23", "", False)),
    ],
)
def test_m_6_a_name_is_of_one_transaction_or_of_nobody(name: str, place: str, is_own: bool) -> None:
    """M-6: no other place of the number, no other number, and nothing that could be read in two ways."""
    assert carries(name, place, 23) == is_own


@given(
    st.text("2٢3./x\n", max_size=12), st.sampled_from(NumberPlace), st.sampled_from([2, 3, 23, 32, 2**32 - 1])
)
def test_m_6_the_number_of_a_name_that_carries_one_is_found(
    text: str, place: NumberPlace, number: int
) -> None:
    """M-6: who looks for the highest number in use misses none that a transaction may go by."""
    for name in (text, f"{number}/{text}", f"{text}.{number}"):
        if carries(name, place, number):
            assert number_in(name, place) == number


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("23/x", 23, None),
        ("23/x.24", 23, 24),
        ("x.23", None, 23),
        ("x/23/y.9", None, 9),
        ("023/x.023", None, None),
        ("0/x.0", None, None),
        ("+23/x.+23", None, None),
        ("٢٣/x.٢٣", None, None),
        ("23", None, None),
        (".23", None, 23),
        ("x.23/", None, None),
        ("x.23\n", None, None),
        ("a\nb.23", None, 23),
        ("12345678901/x.12345678901", None, None),
    ],
)
def test_the_number_in_a_name(name: str, first: int | None, last: int | None) -> None:
    """Decimal digits, exactly one text for each number."""
    assert (number_in(name, FIRST), number_in(name, LAST)) == (first, last)
