"""What a run says while it lists: one line that is rewritten on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any, TextIO

__all__ = ["Progress"]

_ON_TERMINAL_S = 0.5
_ELSEWHERE_S = 10.0


@dataclass
class Progress:
    """Rate, and the time that is left if as much is there as the last run has listed (`expected`)."""

    out: TextIO = field(default_factory=lambda: sys.stderr)
    expected: int = 0
    _began: float = field(default_factory=time.monotonic)
    _told: float = field(default_factory=time.monotonic)
    _from: int | None = None
    _open: bool = False

    def begin(self, expected: int, already: int) -> None:
        """Begin a listing of which so many objects are listed already."""
        self.expected, self._from = expected, already
        self._began = self._told = time.monotonic()

    def listed(self, objects: int) -> None:
        """Say how many objects are listed, where it is time to."""
        now, terminal = time.monotonic(), self.out.isatty()
        if now - self._told < (_ON_TERMINAL_S if terminal else _ELSEWHERE_S):
            return
        self._told = now
        rate = (objects - (self._from or 0)) / max(now - self._began, 1e-9)
        left_s = (self.expected - objects) / rate if rate and self.expected > objects else None
        if not terminal:
            self.note("listing", objects=objects, objects_per_s=round(rate), left_s=left_s and round(left_s))
            return
        left = "" if left_s is None else f", about {left_s:.0f} s left"
        self.out.write(f"\r\033[Klisted {objects} objects, {rate:.0f}/s{left}")
        self.out.flush()
        self._open = True

    def note(self, event: str, **fields: Any) -> None:
        """Say what has happened, in one line."""
        self.end()
        if self.out.isatty():
            told = ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)
            print(f"collect: {event}: {told}" if told else f"collect: {event}", file=self.out, flush=True)
        else:
            print(json.dumps({"event": event, **fields}), file=self.out, flush=True)

    def end(self) -> None:
        """End the line that is rewritten."""
        if self._open:
            self.out.write("\r\033[K")
            self.out.flush()
            self._open = False
