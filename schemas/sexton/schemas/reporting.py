"""How every program of Sexton reports an error: the message, then the hint, on stderr."""

from __future__ import annotations

import sys

from sexton.schemas.errors import SextonError
from sexton.schemas.masking import masked
from sexton.schemas.text import printable

__all__ = ["report", "report_error"]

_KEPT = "\n\t"


def report_error(error: SextonError) -> int:
    """Report an error of ours; returns its exit code."""
    report(str(error), error.hint)
    return error.exit_code


def report(message: str, hint: str | None) -> None:
    """Report what went wrong, without secrets and without characters that move a terminal's cursor."""
    print(f"error: {printable(masked(message), allowed=_KEPT)}", file=sys.stderr)
    if hint:
        print(f"\nhint: {hint}", file=sys.stderr)
