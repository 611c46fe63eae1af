"""A set of offsets of one topic: a bit for each, so that a hundred million of them cost twelve megabytes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping

__all__ = ["Offsets"]

_Ranges = dict[int, tuple[int, int]]


class Offsets:
    """Offsets of some ranges, (first, end) by partition; what lies outside of them is never in the set.

    Pickled it is small where most of a range is alike: it goes to every task.
    """

    def __init__(self, ranges: Mapping[int, tuple[int, int]] | None = None) -> None:
        self._ranges: _Ranges = {p: (first, end) for p, (first, end) in (ranges or {}).items() if first < end}
        self._bits = {p: bytearray((end - first + 7) // 8) for p, (first, end) in self._ranges.items()}

    def add(self, partition: int, offset: int) -> None:
        """Take an offset in, unless it lies outside."""
        first, end = self._ranges.get(partition, (0, 0))
        if first <= offset < end:
            place = offset - first
            self._bits[partition][place >> 3] |= 1 << (place & 7)

    def has(self, partition: int, offset: int) -> bool:
        """Return whether an offset is in the set."""
        first, end = self._ranges.get(partition, (0, 0))
        place = offset - first
        return first <= offset < end and bool(self._bits[partition][place >> 3] & 1 << (place & 7))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield (partition, offset), in order."""
        for partition, (first, end) in sorted(self._ranges.items()):
            yield from ((partition, at) for at in range(first, end) if self.has(partition, at))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Offsets) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __reduce__(self) -> tuple[Callable[..., Offsets], tuple[_Ranges, dict[int, bytes]]]:
        return _unpacked, (self._ranges, {p: zlib.compress(bits, 1) for p, bits in self._bits.items()})


def _unpacked(ranges: _Ranges, packed: Mapping[int, bytes]) -> Offsets:
    found = Offsets(ranges)
    found._bits = {p: bytearray(zlib.decompress(bits)) for p, bits in packed.items()}
    return found
