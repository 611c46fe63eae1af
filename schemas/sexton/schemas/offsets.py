"""Positions in all partitions of one topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["PartitionOffsets"]


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """One offset for each partition of a topic, by partition number."""

    topic_id: str
    offsets: Sequence[int]
