"""What each database has to hold: what the engine said is durable, and what may be there besides. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["Book", "Value"]

Value = str | None
"""What a key holds; None once it was deleted."""


@dataclass
class Book:
    """One database: `durable` by key, and the writes that were sent and not answered, in their order."""

    durable: dict[str, Value] = field(default_factory=dict)
    _open: dict[str, list[Value]] = field(default_factory=dict)

    def sent(self, pairs: Iterable[tuple[str, Value]]) -> None:
        """Note writes that are on their way: from now on either value may be read."""
        for key, value in pairs:
            self._open.setdefault(key, []).append(value)

    def answered(self, pairs: Iterable[tuple[str, Value]]) -> None:
        """Note writes that the engine called durable."""
        for key, value in pairs:
            self.durable[key] = value
            self._open.pop(key, None)

    def differences(self, found: Mapping[str, str]) -> list[str]:
        """Return what is wrong with a database that was read whole; what was open is settled by it.

        A key may hold what was durable, or what was sent after that and not answered: nothing else, and
        nothing that was never sent.
        """
        wrong = []
        for key in sorted({*self.durable, *self._open, *found}):
            allowed = [self.durable.get(key), *self._open.get(key, ())]
            if found.get(key) not in allowed:
                wrong.append(f"{key}: read {found.get(key)!r}, may be one of {allowed}")
        self.durable.update({key: found.get(key) for key in self._open})
        self._open.clear()
        return wrong

    def snapshot(self) -> Book:
        """Return a book of what is durable now, for a checkpoint or a clone; nothing may be open."""
        assert not self._open, sorted(self._open)
        return Book(dict(self.durable))

    @property
    def keys(self) -> int:
        """How many keys are compared."""
        return len(self.durable.keys() | self._open.keys())
