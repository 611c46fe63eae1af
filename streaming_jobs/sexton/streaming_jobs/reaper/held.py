"""Which buckets were closed lately: their new intents wait at once, without another try in each micro-batch.

The delay queue tries them again. Without this each micro-batch would wait for the same bucket,
and everybody's receipts would wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["HeldBuckets"]

_FIRST_S = 5.0
_LONGEST_S = 60.0


@dataclass(slots=True)
class _Hold:
    reason: str
    until: float
    times: int = 1


@dataclass(slots=True)
class HeldBuckets:
    """Buckets with the time until which they are held; a bucket that does some work is free at once."""

    _holds: dict[str, _Hold] = field(default_factory=dict)

    def note(self, failing: Mapping[str, str], healthy: Iterable[str], now: float) -> None:
        """Take in what a micro-batch has met; `now` in seconds."""
        for bucket in healthy:
            if bucket not in failing:
                self._holds.pop(bucket, None)
        for bucket, reason in failing.items():
            hold = self._holds.setdefault(bucket, _Hold(reason, now, 0))
            wait_s = min(_FIRST_S * 2.0**hold.times, _LONGEST_S)
            self._holds[bucket] = _Hold(reason, now + wait_s, hold.times + 1)

    def current(self, now: float) -> dict[str, str]:
        """Return the buckets that are held now, with the reason."""
        return {bucket: hold.reason for bucket, hold in self._holds.items() if hold.until > now}
