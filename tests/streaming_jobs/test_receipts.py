"""Which copies in the waiting room may be older than what became of their first record."""

from __future__ import annotations

import pytest

from sexton.schemas.events import Position
from sexton.streaming_jobs.reaper.receipts import Replayed


@pytest.mark.parametrize(
    ("partition", "offset", "written_s", "covered"),
    [
        (0, 10, 900, True),
        (0, 9, 900, False),
        (1, 10**9, 1_050, True),
        (0, 10, 1_061, False),
        (7, 0, 900, True),
    ],
    ids=["at the start", "settled before", "clocks differ", "written since", "a new partition"],
)
def test_which_copies_may_be_out_of_date(partition: int, offset: int, written_s: int, covered: bool) -> None:
    """Those of records that were read once more, and written before that."""
    replayed = Replayed({0: 10, 1: 0}, 1_000.0)

    assert replayed.covers(Position("t", partition, offset), written_s * 1_000_000) is covered


def test_two_replays_are_one_with_the_lower_start() -> None:
    """The later instant and the lower offsets count."""
    one, other = Replayed({0: 10, 1: 5}, 1_000.0), Replayed({0: 3, 2: 7}, 900.0)

    assert one.beside(other) == other.beside(one) == Replayed({0: 3, 1: 0, 2: 0}, 1_000.0)
    assert one.beside(None) == one
