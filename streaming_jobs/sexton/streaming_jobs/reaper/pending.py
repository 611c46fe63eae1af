"""Where the intents in the waiting room first stood: history above the oldest of these positions is kept.

A summary for each few hundred records, so that a million waiting intents cost a few thousand small entries.
It errs to the safe side: an entry goes when all its records are done.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

__all__ = ["Pending"]

_PER_ENTRY = 256


@dataclass(slots=True)
class _Entry:
    """Records of one partition up to `last`; `oldest` maps an intents partition to its lowest offset."""

    last: int
    records: int = 0
    oldest: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Pending:
    """The waiting records, by partition of the `deferred` topic, in the order of their offsets."""

    _entries: dict[int, deque[_Entry]] = field(default_factory=dict)

    def note(self, partition: int, offset: int, first: tuple[int, int] | None) -> None:
        """Note a record and where its intent first stood (intents partition, offset); None if unreadable."""
        entries = self._entries.setdefault(partition, deque())
        if not entries or entries[-1].records >= _PER_ENTRY:
            entries.append(_Entry(offset))
        entry = entries[-1]
        entry.last, entry.records = offset, entry.records + 1
        if first is not None:
            place, at = first
            entry.oldest[place] = min(at, entry.oldest.get(place, at))

    def done(self, partition: int, end: int) -> None:
        """Note that everything of a partition below `end` is settled or was written again."""
        entries = self._entries.get(partition, deque())
        while entries and entries[0].last < end:
            entries.popleft()

    def oldest(self) -> dict[int, int]:
        """Return the lowest first offset by intents partition."""
        found: dict[int, int] = {}
        for entries in self._entries.values():
            for entry in entries:
                for place, at in entry.oldest.items():
                    found[place] = min(at, found.get(place, at))
        return found
