"""The names that intents of one attachment have used, in a bounded memory.

Two rules rest on it. A name is given to one intent: of the latest names alone, for naming a key again costs a
request and harms nothing. And a name that an intent has named is never handed out again to be written: for
as long as the handle lives. For this one the names with the attachment's own suffix, the only ones that are
handed out, go into a filter of a fixed size before they are forgotten. A filter never calls a used name
fresh. It may call a fresh one used: another name, or a new attachment, costs time and no data.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

from sexton.producers._errors import KeyReused

__all__ = ["REMEMBERED", "Names"]

REMEMBERED = 100_000
"""How many names are known exactly, not counting those of the latest call."""

# A filter of Bloom's with all bits of a name in one word, as every name is put in: 8 MiB, where after a
# million names one fresh one in a thousand is called used, and after five million one in fifty.
_WORDS = 1 << 20
_MASK = _WORDS - 1
_BITS = [1 << (n & 63) | 1 << (n >> 6) | 1 << (17 * n + 29 * (n >> 6) & 63) for n in range(1 << 12)]
_AFRESH = "give it another name, or re-attach: a new attachment has used none"


class Names:
    """A name is given once. One whose intent failed may be given to another intent, but never handed out.

    `suffix` is the attachment's own: a name that ends in it may be handed out to be written.
    """

    def __init__(self, suffix: str, remembered: int = REMEMBERED) -> None:
        self._suffix = suffix
        self._half = remembered // 2
        self._named, self._again = _Halves(), _Halves()
        self._forgotten: array[int] | None = None

    def check_fresh(self, key: str) -> None:
        """Raise KeyReused if any intent has named the key, in any bucket, or may have: for ever."""
        if self._named.holds(key):
            raise KeyReused(f"an intent has named this key, it is never written again: {key}")
        number = hash(key)
        bits = _BITS[number >> 20 & 4095]
        if self._forgotten is not None and self._forgotten[number & _MASK] & bits == bits:
            raise KeyReused(f"an intent may have named this key, it is not written: {key}", hint=_AFRESH)

    def take(self, bucket: str, runs: Sequence[Sequence[str]]) -> set[str]:
        """Note all names of a call and return those that were not known before.

        Raises KeyReused, noting none, if one was named before, as far as is remembered, or twice.
        """
        new = set(runs[0]) if len(runs) == 1 else {key for run in runs for key in run}
        if len(new) != sum(map(len, runs)):
            raise KeyReused(f"a key is named twice in one call: {_first_twice(runs)}")
        if self._named.count >= self._half:
            self._forget()
        fresh = new
        if known := self._named.among(bucket, new):
            if used := known - self._again.among(bucket, known):
                raise KeyReused(f"an intent has named this key before: {min(used)}")
            fresh = new - known
            self._again.remove(bucket, known)
        self._named.add(bucket, new)
        return fresh

    def give_back(self, bucket: str, runs: Sequence[Sequence[str]], fresh: set[str]) -> None:
        """Undo the `take` before this, whose intents were never sent."""
        self._named.remove(bucket, fresh)
        self.allow_again(bucket, [key for run in runs for key in run if key not in fresh])

    def allow_again(self, bucket: str, keys: Iterable[str]) -> None:
        """Let another intent name these keys: the first was not delivered, or nobody knows."""
        self._again.add(bucket, self._named.among(bucket, set(keys)))

    def _forget(self) -> None:
        """Forget the older half. Its names are in the filter first: `key` must never hand out one of them."""
        own = [key for named in self._named.older.values() for key in named if key.endswith(self._suffix)]
        if own:
            filled = self._forgotten or array("Q", bytes(8 * _WORDS))
            for number in map(hash, own):  # known to each text since it was in a set
                filled[number & _MASK] |= _BITS[number >> 20 & 4095]
            self._forgotten = filled
        self._named.turn()
        self._again.turn()  # after the names that it is about, so that no permission is lost with them


class _Halves:
    """Names by bucket, the newer ones and the older ones; each step is whole for other threads."""

    def __init__(self) -> None:
        self.newer: dict[str, set[str]] = {}
        self.older: dict[str, set[str]] = {}
        self.count = 0  # of the newer ones

    def turn(self) -> None:
        """Drop the older ones, and let the newer ones be those."""
        self.older = self.newer  # first: who looks meanwhile finds these in one place or in both
        self.newer, self.count = {}, 0

    def holds(self, key: str) -> bool:
        """Return whether a name is there, in any bucket."""
        return any(key in names for half in (self.newer, self.older) for names in list(half.values()))

    def among(self, bucket: str, names: set[str]) -> set[str]:
        """Return which of these names are there."""
        found = [half[bucket] & names for half in (self.newer, self.older) if bucket in half]
        return set().union(*found)

    def add(self, bucket: str, names: set[str]) -> None:
        """Note names."""
        if names:
            newer = self.newer.setdefault(bucket, set())
            newer |= names
            self.count += len(names)

    def remove(self, bucket: str, names: set[str]) -> None:
        """Take names out."""
        for half in (self.newer, self.older):
            if bucket in half:
                half[bucket] -= names


def _first_twice(runs: Sequence[Sequence[str]]) -> str:
    counts = Counter(key for run in runs for key in run)
    return next(key for key, count in counts.items() if count > 1)
