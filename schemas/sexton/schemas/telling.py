"""How every program of Sexton tells an error: the message, then the hint, on stderr."""

from __future__ import annotations

import sys

from sexton.schemas.errors import SextonError
from sexton.schemas.masking import masked
from sexton.schemas.words import printable

__all__ = ["tell", "tell_error"]

_KEPT = "\n\t"


def tell_error(error: SextonError) -> int:
    """Tell an error of ours; returns its exit code."""
    tell(str(error), error.hint)
    return error.exit_code


def tell(message: str, hint: str | None) -> None:
    """Tell what went wrong, without secrets and without characters that move a terminal's cursor."""
    print(f"error: {printable(masked(message), allowed=_KEPT)}", file=sys.stderr)
    if hint:
        print(f"\nhint: {hint}", file=sys.stderr)
