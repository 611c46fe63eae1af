"""The breaker: when a run has found more garbage than is likely, and nothing may be emitted. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MAX_SHARE", "TEN_TIMES", "Amount", "Opened", "check"]

MAX_SHARE = "max-share"
TEN_TIMES = "ten-times"
_TIMES = 10


@dataclass(frozen=True, slots=True)
class Amount:
    """Objects, and their bytes."""

    objects: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Opened:
    """Why nothing is emitted: a stable reason and a text."""

    reason: str
    detail: str


def check(listed: Amount, garbage: Amount, last: Amount | None, max_share: float) -> Opened | None:
    """Return why the breaker opens, None where it does not.

    `last` is the garbage of the last run of the same collector and scope for which it did not open. A last
    run without garbage is no measure.
    """
    for what, found, all_of in (
        ("objects", garbage.objects, listed.objects),
        ("bytes", garbage.bytes, listed.bytes),
    ):
        if found > max_share * all_of:
            share = f"{found} of {all_of} {what} are garbage, more than {max_share:.0%}"
            return Opened(MAX_SHARE, share)
    for what, found, before in (
        ("objects", garbage.objects, last.objects if last else 0),
        ("bytes", garbage.bytes, last.bytes if last else 0),
    ):
        if before and found > _TIMES * before:
            return Opened(TEN_TIMES, f"{found} {what} are garbage, the last run found {before}")
    return None
