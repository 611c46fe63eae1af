"""The delay levels of the delay queue: one partition of the `deferred` topic for each delay.

Within a partition every record waits equally long after it was written, so that the first one that is not due
yet ends what is due: nothing is looked through, and nothing is rewritten while it waits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime

__all__ = ["level_of", "levels"]


def levels(delays_s: Sequence[float], partitions: int) -> tuple[float, ...]:
    """Return the delay in seconds of each partition in use: ascending, no more than there are partitions."""
    return tuple(sorted(delays_s))[: max(1, partitions)]


def level_of(delays: Sequence[float], attempt: int, now: datetime, retry_at: datetime | None) -> int:
    """Return the partition in which an intent waits.

    With `retry_at` the longest delay that does not pass it (the shortest one when it is nearer than that);
    else the next longer delay with each attempt, the last one over and over.
    """
    if retry_at is None:
        return min(max(attempt, 1), len(delays)) - 1
    return max(0, bisect_right(delays, (retry_at - now).total_seconds()) - 1)
