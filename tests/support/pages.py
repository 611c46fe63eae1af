"""The documentation as data: pages, fenced blocks, commands, and the conversation on the HTTP page."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["PAGES", "ROOT", "Exchange", "Intents", "blocks", "commands", "conversation", "examples"]

ROOT = Path(__file__).parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"`(sexton [^`]+)`")
_STEP = re.compile(
    r"^<!-- intents: partition (?P<partition>\d+), count (?P<count>\d+) -->$"
    r"|^```http\n(?P<method>[A-Z]+) (?P<path>\S+)\n(?P<body>.*?)\n?(?P<status>\d{3})\n(?P<answer>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request on the HTTP page, and the answer that the page shows."""

    method: str
    path: str
    body: str
    status: int
    answer: Any


@dataclass(frozen=True, slots=True)
class Intents:
    """Intents that are written between two requests."""

    partition: int
    count: int


def blocks(page: Path, language: str) -> list[str]:
    """Return the text of every fenced block in a language."""
    return [text for found, text in _BLOCK.findall(page.read_text(encoding="utf-8")) if found == language]


def examples(page: Path) -> Iterator[Any]:
    """Yield every object of the page's `jsonl` blocks."""
    for text in blocks(page, "jsonl"):
        yield from (json.loads(line) for line in text.splitlines())


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of every `sexton ...` command that a page names in running text or in a shell block."""
    text = page.read_text(encoding="utf-8")
    found = _COMMAND.findall(_BLOCK.sub("", text))
    for block in blocks(page, "sh"):
        found += [line for line in block.splitlines() if line.startswith("sexton ")]
    for line in found:
        yield shlex.split(line.replace("…", ""), comments=True)


def conversation(page: Path) -> Iterator[Exchange | Intents]:
    """Yield what happens on the HTTP page, in its order."""
    for step in _STEP.finditer(page.read_text(encoding="utf-8")):
        if step["partition"] is not None:
            yield Intents(int(step["partition"]), int(step["count"]))
        else:
            answer = json.loads(step["answer"])
            yield Exchange(step["method"], step["path"], step["body"].strip(), int(step["status"]), answer)
