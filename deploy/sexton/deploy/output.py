"""Data on stdout, as a table for people or as JSON; everything else goes to stderr."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

__all__ = ["Format", "coloured", "say", "show_json", "show_table", "told_when_slow"]

_SLOW_S = 2.0

_CODES = {"green": "32", "red": "31", "yellow": "33"}


class Format(StrEnum):
    """How a reading command prints."""

    TEXT = "text"
    JSON = "json"


def say(line: str) -> None:
    """Print one line of progress on stderr."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def told_when_slow(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell`, once, if what happens inside takes longer than anybody waits without a question."""
    timer = threading.Timer(_SLOW_S, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def show_json(value: Any) -> None:
    """Print a value as JSON on stdout."""
    print(json.dumps(value, indent=2, default=str))


def show_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print rows in aligned columns with a heading on stdout."""
    cells = [[str(row[column] if row[column] is not None else "-") for column in columns] for row in rows]
    heading = [column.upper().replace("_", " ") for column in columns]
    widths = [max(len(line[i]) for line in [heading, *cells]) for i in range(len(columns))]
    for line in [heading, *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def coloured(text: str, colour: str) -> str:
    """Return text in a colour if stdout is a terminal and NO_COLOR is not set."""
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return f"\033[{_CODES[colour]}m{text}\033[0m"
