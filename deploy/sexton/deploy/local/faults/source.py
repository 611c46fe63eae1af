"""The file of faults, read again whenever it has changed: an editor ends a fault, not a restart."""

from __future__ import annotations

import sys
from pathlib import Path

from sexton.deploy.local.faults.decisions import Presence, carried_over
from sexton.deploy.local.faults.fields import read
from sexton.deploy.local.faults.rules import InvalidFaults, Rule
from sexton.schemas.text import counted

__all__ = ["RuleSource"]


class RuleSource:
    """The rules in force, with what they remember."""

    def __init__(self, path: Path) -> None:
        """Read the file; raises InvalidFaults."""
        self.path = path
        self._mark = self._stat()
        self._rules: list[tuple[Rule, Presence]] = carried_over([], read(path))

    def current(self) -> list[tuple[Rule, Presence]]:
        """Return the rules, from the file as it is now.

        Rules that stand there unchanged continue counting. A file that cannot be played is reported on stderr
        once, and the rules before it stay.
        """
        mark = self._stat()
        if mark != self._mark:
            self._mark = mark
            try:
                self._rules = carried_over(self._rules, read(self.path))
                print(
                    f"faults: {counted(len(self._rules), 'rule')} from {self.path}",
                    file=sys.stderr,
                    flush=True,
                )
            except InvalidFaults as error:
                print(f"error: {error}; the rules before it stay", file=sys.stderr, flush=True)
        return self._rules

    def _stat(self) -> tuple[int, ...]:
        try:
            found = self.path.stat()
        except OSError:
            return ()
        return found.st_mtime_ns, found.st_size, found.st_ino
