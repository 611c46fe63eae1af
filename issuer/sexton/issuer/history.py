"""What the fold may forget, and when: each rule looks at nothing but the log, so all readers forget the same.

Windows: the window of a superseded generation goes once it ends, in every partition, at or below the oldest
unsettled position that a valid Barrier carried. Every intent below that position has had its final outcome;
an intent at or above it stands outside the window, so its verdict is `never` with the window and without.
A generation without a window is answered as one that was never issued.

Request ids: of the ids that carry a time the newest `KEPT_REQUESTS` are kept. Once that many are, an unknown
id not newer than the oldest of them may be the retry of a call that was answered long ago, so it is refused,
never carried out again. Ids are compared with ids alone: no clock but the clients' own counts, and one that
runs ahead takes one place of many and shuts nobody out.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from sexton.issuer.request_ids import instant_of

__all__ = ["KEPT_REQUESTS", "Cuts", "HasHistory", "RequestIds"]

KEPT_REQUESTS = 200_000  # part of the log's format: readers that differ in it would judge differently
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

    def close(self, until: Sequence[int], owner: HasHistory) -> None:
        """Note that the newest window of `owner` was just superseded and ends at `until`."""
        if self._closed and self._closed[-1][0] is until:
            self._closed[-1][1].append(owner)
        else:
            self._closed.append((until, [owner]))

    def settle(self, unsettled: Sequence[int]) -> None:
        """Raise the floor, never lower it, and drop every window that has come to lie below it."""
        pairs = range(max(len(self.floor), len(unsettled)))
        self.floor = [max(_at(self.floor, i), _at(unsettled, i)) for i in pairs]
        while self._closed and self.below_floor(self._closed[0][0]):
            for owner in self._closed.popleft()[1]:
                owner.forget_oldest()

    def below_floor(self, until: Sequence[int]) -> bool:
        """Tell whether a window that ends there lies below the floor in every partition."""
        return all(end <= _at(self.floor, i) for i, end in enumerate(until))


class RequestIds(Generic[_Bound]):
    """The request ids that have a valid event, each with what it is bound to; the oldest are forgotten."""

    def __init__(self, kept: int = KEPT_REQUESTS) -> None:
        self._kept = kept
        self._bound: dict[str, _Bound] = {}
        self._by_time: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._bound)

    def __iter__(self) -> Iterator[tuple[str, _Bound]]:
        return iter(self._bound.items())

    def get(self, request_id: str) -> _Bound | None:
        """Return what an id is bound to, None when it is not known."""
        return self._bound.get(request_id)

    def expired(self, request_id: str) -> bool:
        """Tell whether an id is unknown and may be one that was forgotten."""
        if len(self._by_time) < self._kept or request_id in self._bound:
            return False
        instant = instant_of(request_id)
        return instant is not None and instant <= self._by_time[0][0]

    def bind(self, request_id: str, bound: _Bound) -> _Bound:
        """Return what the id, which has not expired, is bound to: `bound` if that was nothing so far."""
        known = self._bound.setdefault(request_id, bound)
        if known is bound and (instant := instant_of(request_id)) is not None:
            heapq.heappush(self._by_time, (instant, request_id))
            if len(self._by_time) > self._kept:
                del self._bound[heapq.heappop(self._by_time)[1]]
        return known


def _at(offsets: Sequence[int], partition: int) -> int:
    return offsets[partition] if partition < len(offsets) else 0
