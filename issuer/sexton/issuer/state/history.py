"""What the fold may forget, and when: each rule looks at nothing but the log, so all readers forget the same.

Windows: the window of a superseded generation goes once it ends, in every partition, at or below the oldest
unsettled position that a valid Barrier carried. Every intent below that position has had its final outcome;
an intent at or above it stands outside the window, so its verdict is `never` with the window and without.
Of such a generation the state still says that it was superseded, and an offset at or below which that was:
where the oldest window that is kept begins.

Request ids: of the ids that carry a time the newest are kept, up to `KEPT_REQUESTS` of them and `KEPT_GRANTS`
numbers in their answers. The time of the newest that went is the mark: an unknown id not above it may be the
retry of a call that was answered long ago, so it is refused, never carried out again. Ids are compared with
ids alone, no clock counts here; issuers take no id that is far ahead of their own, which would move the mark
to where everybody is refused (`request_ids`).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from sexton.issuer.state.request_ids import instant_of
from sexton.schemas.offsets import offset_at

__all__ = ["KEPT_GRANTS", "KEPT_REQUESTS", "Cuts", "HasHistory", "RequestIds"]

# Part of the log's format: readers that differ in these would judge differently.
KEPT_REQUESTS = 200_000
KEPT_GRANTS = 1_000_000
_Bound = TypeVar("_Bound")


class HasHistory(Protocol):
    """Something with a row of windows, each of which ends where the next begins."""

    def forget_oldest(self) -> None:
        """Drop the oldest window, which was superseded."""


class Cuts:
    """Which windows are closed and not yet below the oldest unsettled position, in the order they closed.

    Windows close at the running maximum of the end offsets, which never falls: the first of the row is always
    the first that may go.
    """

    def __init__(self) -> None:
        self.floor: Sequence[int] = ()
        self._closed: deque[tuple[Sequence[int], list[HasHistory]]] = deque()

    def restore(self, floor: Sequence[int], closed: Iterable[tuple[Sequence[int], HasHistory]]) -> None:
        """Take over what another reader has found; `closed` is in the order in which the windows closed."""
        self.floor = list(floor)
        for until, owner in closed:
            self.close(until, owner)

    def close(self, until: Sequence[int], owner: HasHistory) -> None:
        """Note that the newest window of `owner` was just superseded and ends at `until`."""
        if self._closed and self._closed[-1][0] is until:
            self._closed[-1][1].append(owner)
        else:
            self._closed.append((until, [owner]))

    def settle(self, unsettled: Sequence[int]) -> None:
        """Raise the floor, never lower it, and drop every window that has come to lie below it."""
        pairs = range(max(len(self.floor), len(unsettled)))
        self.floor = [max(offset_at(self.floor, i), offset_at(unsettled, i)) for i in pairs]
        while self._closed and self.below_floor(self._closed[0][0]):
            for owner in self._closed.popleft()[1]:
                owner.forget_oldest()

    def below_floor(self, until: Sequence[int]) -> bool:
        """Return whether a window that ends there lies below the floor in every partition."""
        return all(end <= offset_at(self.floor, i) for i, end in enumerate(until))


class RequestIds(Generic[_Bound]):
    """The request ids that have a valid event, each with what it is bound to; the oldest are forgotten."""

    def __init__(self, kept: int = KEPT_REQUESTS, grants: int = KEPT_GRANTS) -> None:
        self.mark = -1
        self._limit, self._grants_limit = kept, grants
        self._bound: dict[str, _Bound] = {}
        self._grants: dict[str, int] = {}  # of the ids that carry a time
        self._granted = 0
        self._by_time: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._bound)

    def __iter__(self) -> Iterator[tuple[str, _Bound]]:
        return iter(self._bound.items())

    def get(self, request_id: str) -> _Bound | None:
        """Return what an id is bound to, None when it is not known."""
        return self._bound.get(request_id)

    def expired(self, request_id: str) -> bool:
        """Return whether an id is unknown and may be one that was forgotten."""
        if self.mark < 0 or request_id in self._bound:
            return False
        instant = instant_of(request_id)
        return instant is not None and instant <= self.mark

    def bind(self, request_id: str, bound: _Bound, grants: int) -> _Bound:
        """Return what the id, which has not expired, is bound to: `bound` if that was nothing so far.

        `grants` more numbers are in its answer. The ids beyond the limits are forgotten, but never this one.
        """
        known = self.restore(request_id, bound, grants)
        self._forget(request_id)
        return known

    def weight(self, request_id: str) -> int:
        """Return how many numbers were counted for an id, 0 for one without a time."""
        return self._grants.get(request_id, 0)

    def restore(self, request_id: str, bound: _Bound, weight: int) -> _Bound:
        """Take over an id that another reader kept, and return what it is bound to."""
        known = self._bound.setdefault(request_id, bound)
        if (instant := instant_of(request_id)) is not None:
            if known is bound:
                heapq.heappush(self._by_time, (instant, request_id))
            self._grants[request_id] = self._grants.get(request_id, 0) + weight
            self._granted += weight
        return known

    def _forget(self, keep: str) -> None:
        while len(self._by_time) > self._limit or self._granted > self._grants_limit:
            if self._by_time[0][1] == keep:
                return
            instant, oldest = heapq.heappop(self._by_time)
            self.mark = max(self.mark, instant)
            self._granted -= self._grants.pop(oldest)
            del self._bound[oldest]
