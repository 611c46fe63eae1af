"""The window of a generation: the part of an intents partition in which its intents are accepted."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Window"]


@dataclass(frozen=True, slots=True)
class Window:
    """Offsets `[start, until)` of one intents partition; `until` is None while the generation is newest.

    `start` is the largest end offset in any event of the log, valid or void, up to and including the one that
    issued the generation; `until` the same up to and including the one that superseded it.
    """

    start: int
    until: int | None = None

    def covers(self, offset: int) -> bool:
        """Return whether an intent at `offset`, which lies below the barrier's end offset, is accepted."""
        return self.start <= offset and (self.until is None or offset < self.until)

    def intersect(self, other: Window) -> Window:
        """Return the offsets that lie in both; with `until` not above `start` there are none."""
        ends = [until for until in (self.until, other.until) if until is not None]
        return Window(max(self.start, other.start), min(ends, default=None))
