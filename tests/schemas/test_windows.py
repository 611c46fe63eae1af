"""The window of a generation: which offsets of its partition are accepted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sexton.schemas.windows import Window

OFFSET = st.integers(0, 6)
WINDOWS = st.builds(Window, OFFSET, st.none() | OFFSET)


def test_a_window_begins_with_its_start_and_ends_before_its_end() -> None:
    """What stands at the start is accepted, what stands where the next generation begins is not."""
    assert [Window(2, 4).covers(offset) for offset in range(6)] == [False, False, True, True, False, False]
    assert [Window(2).covers(offset) for offset in range(4)] == [False, False, True, True]
    assert not any(Window(3, 3).covers(offset) for offset in range(6))


@given(WINDOWS, WINDOWS, OFFSET)
def test_an_intersection_covers_what_both_cover(one: Window, other: Window, offset: int) -> None:
    """No window of two makes the other one wider."""
    assert one.intersect(other).covers(offset) == (one.covers(offset) and other.covers(offset))
