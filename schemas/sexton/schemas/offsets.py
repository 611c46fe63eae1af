"""Positions in all partitions of one topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["PartitionOffsets", "offset_at"]


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """One offset for each partition of a topic, by partition number."""

    topic_id: str
    offsets: Sequence[int]


def offset_at(offsets: Sequence[int], partition: int) -> int:
    """Return the offset of a partition; one that the list does not reach was empty, or not there: 0."""
    return offsets[partition] if partition < len(offsets) else 0
