"""A child of the test's own process, by Python's fork."""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["exit_code", "forked"]


def forked(work: Callable[[], object]) -> int:
    """Start a child that does the work and ends, with 1 if it raises; return its process id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def exit_code(child: int) -> int:
    """Wait for the end of a child and return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
