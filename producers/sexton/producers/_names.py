"""The names that intents of one attachment have used, exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from sexton.producers._errors import KeyReused

__all__ = ["Names"]


class Names:
    """A name is given once. One whose intent failed may be given to another intent, but never handed out."""

    def __init__(self) -> None:
        self._named: dict[str, set[str]] = {}
        self._again: dict[str, set[str]] = {}

    def holds(self, key: str) -> bool:
        """Return whether any intent has named the key, in any bucket."""
        return any(key in named for named in self._named.values())

    def take(self, bucket: str, runs: Sequence[Sequence[str]]) -> set[str]:
        """Note all names of a call and return those that were not known before.

        Raises KeyReused, noting none, if one was named before or twice.
        """
        named = self._named.setdefault(bucket, set())
        new = set(runs[0]) if len(runs) == 1 else {key for run in runs for key in run}
        if len(new) != sum(map(len, runs)):
            raise KeyReused(f"a key is named twice in one call: {_first_twice(runs)}")
        fresh = new
        if not named.isdisjoint(new):
            again = self._again.get(bucket, set())
            if used := (named & new) - again:
                raise KeyReused(f"an intent has named this key before: {min(used)}")
            fresh = new - named
            again -= new
        named |= new
        return fresh

    def give_back(self, bucket: str, runs: Sequence[Sequence[str]], fresh: set[str]) -> None:
        """Undo a `take` whose intents were never sent."""
        self._named[bucket] -= fresh
        self.allow_again(bucket, [key for run in runs for key in run if key not in fresh])

    def allow_again(self, bucket: str, keys: Iterable[str]) -> None:
        """Let another intent name these keys: the first was not delivered, or nobody knows."""
        self._again.setdefault(bucket, set()).update(keys)


def _first_twice(runs: Sequence[Sequence[str]]) -> str:
    counts = Counter(key for run in runs for key in run)
    return next(key for key, count in counts.items() if count > 1)
