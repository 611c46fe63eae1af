"""What one task did, as numbers that add up; the driver sums them into metrics and progress lines."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Counts"]


@dataclass(slots=True)
class Counts:
    """Counters of one task or of many.

    `intents` and `keys` are by outcome, plus `deferred`, `skipped` and `duplicate`; `seconds` is wall
    time by stage. `internal` are the dead letters that are a fault of this program, `forgotten` the intents
    whose transaction is forgotten. `failing` are the buckets that are held, with the reason, and `said` what
    their stores said of it. `advances` are the writes of boundaries that were tried, `set_back` the
    namespaces whose boundary somebody else has set back, with what was found.
    For each micro-batch: records = the sum over `intents`.
    """

    records: int = 0
    intents: Counter[str] = field(default_factory=Counter)
    keys: Counter[str] = field(default_factory=Counter)
    keys_sent: int = 0
    requests: int = 0
    issuer_calls: int = 0
    subjects: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    keys_retried: int = 0
    throttled: int = 0
    returned: int = 0
    failing: dict[str, str] = field(default_factory=dict)
    healthy: set[str] = field(default_factory=set)
    reached: dict[int, int] = field(default_factory=dict)
    oldest_us: int | None = None
    internal: int = 0
    forgotten: int = 0
    said: dict[str, str] = field(default_factory=dict)
    advances: int = 0
    set_back: dict[str, str] = field(default_factory=dict)

    def saw(self, partition: int, offset: int, written_at_us: int) -> None:
        """Note a record: the next offset to be read of its partition, and the oldest append time."""
        self.records += 1
        self.reached[partition] = max(self.reached.get(partition, 0), offset + 1)
        if self.oldest_us is None or written_at_us < self.oldest_us:
            self.oldest_us = written_at_us

    def add(self, state: str, keys: int = 0) -> None:
        """Note one intent that ended in a state."""
        self.intents[state] += 1
        self.keys[state] += keys

    def settled(self, kind: str, keys: Mapping[str, int]) -> None:
        """Note one intent with its final outcome, and its keys by outcome."""
        self.intents[kind] += 1
        for each, number in keys.items():
            self.keys[each] += number

    def came_due(self) -> None:
        """Note an intent that returned from the delay queue; it was counted as deferred before."""
        self.returned += 1

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def __add__(self, other: Counts) -> Counts:
        reached = dict(self.reached)
        for partition, offset in other.reached.items():
            reached[partition] = max(reached.get(partition, 0), offset)
        oldest = [us for us in (self.oldest_us, other.oldest_us) if us is not None]
        return Counts(
            self.records + other.records,
            self.intents + other.intents,
            self.keys + other.keys,
            self.keys_sent + other.keys_sent,
            self.requests + other.requests,
            self.issuer_calls + other.issuer_calls,
            self.subjects + other.subjects,
            {
                name: self.seconds.get(name, 0.0) + other.seconds.get(name, 0.0)
                for name in {**self.seconds, **other.seconds}
            },
            self.keys_retried + other.keys_retried,
            self.throttled + other.throttled,
            self.returned + other.returned,
            {**self.failing, **other.failing},
            self.healthy | other.healthy,
            reached,
            min(oldest) if oldest else None,
            self.internal + other.internal,
            self.forgotten + other.forgotten,
            {**self.said, **other.said},
            self.advances + other.advances,
            {**self.set_back, **other.set_back},
        )
