"""The rules of the Lua scripts in Python, over plain dictionaries. A property test holds the two equal.

Read these first; the scripts are the same rules where they must be atomic.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Hashes", "compare", "project", "propose", "repair", "withdraw"]

_ENTRY = re.compile(r"\d+@(\d+)\Z", re.ASCII)
_GENERATION = re.compile(r"(\d+)@", re.ASCII)
_PROPOSED = re.compile(r"\d{1,10}\Z", re.ASCII)


@dataclass
class Hashes:
    """What Redis holds for one log."""

    meta: dict[str, str] = field(default_factory=dict)
    newest: dict[str, str] = field(default_factory=dict)
    proposed: dict[str, str] = field(default_factory=dict)


def propose(redis: Hashes, log_id: str, ahead: int, expected: Sequence[tuple[str, str]]) -> list[str]:
    """Propose for each (tenant, entry of the caller's fold) the number after the largest that is sane."""
    if redis.meta.get("log") != log_id:
        return ["missing"]
    for number, (tenant, entry) in enumerate(expected, 1):
        if redis.newest.get(tenant, "") != entry:
            return ["differs", str(number)]
    reply = ["ok"]
    for tenant, entry in expected:
        match = _GENERATION.match(entry)
        base = int(match[1]) if match else 0
        text = redis.proposed.get(tenant, "")
        if _PROPOSED.match(text) and base < int(text) <= base + ahead:
            base = int(text)
        redis.proposed[tenant] = str(base + 1)
        reply += [str(base), str(base + 1)]
    return reply


def compare(redis: Hashes, log_id: str, chunks: Sequence[Sequence[tuple[str, str]]]) -> list[str | list[str]]:
    """Answer each chunk of (tenant, entry of the caller's fold): all equal, or what is there instead."""
    if redis.meta.get("log") != log_id:
        return ["missing"]
    found = [[redis.newest.get(tenant, "") for tenant, _ in chunk] for chunk in chunks]
    return [
        "=" if there == [entry for _, entry in chunk] else there
        for there, chunk in zip(found, chunks, strict=True)
    ]


def project(redis: Hashes, entries: Sequence[tuple[str, str, str]]) -> str:
    """Write each (tenant, generation, log offset) unless Redis has that place of the log or a later one."""
    written = 0
    for tenant, generation, offset in entries:
        raw = redis.newest.get(tenant, "")
        match = _ENTRY.match(raw)
        if not raw or (match and _text_order(match[1]) < _text_order(offset)):
            redis.newest[tenant] = f"{generation}@{offset}"
            written += 1
            proposed = redis.proposed.get(tenant)
            if proposed is not None and _text_order(proposed) <= _text_order(generation):
                del redis.proposed[tenant]
    return str(written)


def repair(redis: Hashes, changes: Sequence[tuple[str, str, str]]) -> str:
    """Make each (tenant, value seen, value due) so, where Redis still holds the value seen."""
    done = 0
    for tenant, seen, due in changes:
        if redis.newest.get(tenant, "") == seen:
            redis.newest.pop(tenant, None)
            if due:
                redis.newest[tenant] = due
            redis.proposed.pop(tenant, None)
            done += 1
    return str(done)


def withdraw(redis: Hashes, tenants: Sequence[str]) -> str:
    """Forget what was proposed for these tenants."""
    return str(sum(redis.proposed.pop(tenant, None) is not None for tenant in tenants))


def _text_order(number: str) -> tuple[int, str]:
    return len(number), number
