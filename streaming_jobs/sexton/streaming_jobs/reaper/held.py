"""Which buckets were closed lately: their new intents wait at once, without another try in each micro-batch.

The delay queue tries them again. Without this each micro-batch would wait for the same bucket,
and everybody's receipts would wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = ["Change", "HeldBuckets"]

_FIRST_S = 5.0
_LONGEST_S = 60.0


@dataclass(slots=True)
class _Hold:
    reason: str
    since: float
    until: float
    message: str = ""
    times: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """A bucket that is held from now on, or for another reason than before; `message` is its store's.

    `held_s` is there for one that is free again: for how many seconds it was held.
    """

    bucket: str
    reason: str
    message: str = ""
    held_s: float | None = None


@dataclass(slots=True)
class HeldBuckets:
    """Buckets with the time until which they are held; a bucket that does some work is free at once."""

    _holds: dict[str, _Hold] = field(default_factory=dict)

    def note(
        self,
        failing: Mapping[str, str],
        healthy: Iterable[str],
        now: float,
        said: Mapping[str, str] = MappingProxyType({}),
    ) -> list[Change]:
        """Take in what a micro-batch has met, with what the stores said; return what has changed.

        `now` in seconds.
        """
        changes: list[Change] = []
        for bucket in healthy:
            if bucket not in failing and (free := self._holds.pop(bucket, None)) is not None:
                changes.append(Change(bucket, free.reason, free.message, now - free.since))
        for bucket, reason in failing.items():
            hold = self._holds.get(bucket) or _Hold("", now, now)
            hold.message = said.get(bucket) or hold.message
            if hold.reason != reason:
                changes.append(Change(bucket, reason, hold.message))
            hold.reason = reason
            hold.until = now + min(_FIRST_S * 2.0**hold.times, _LONGEST_S)
            hold.times += 1
            self._holds[bucket] = hold
        return changes

    def current(self, now: float) -> dict[str, str]:
        """Return the buckets that are held now, with the reason."""
        return {bucket: hold.reason for bucket, hold in self._holds.items() if hold.until > now}

    def held_for_s(self, buckets: Iterable[str], now: float) -> dict[str, float]:
        """Return for how many seconds each of these buckets has been held."""
        return {bucket: now - self._holds[bucket].since for bucket in buckets if bucket in self._holds}
