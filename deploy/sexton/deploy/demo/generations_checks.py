"""What the story of generations is held to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sexton.deploy.demo.checks import COMMON, Check, stayed, went
from sexton.deploy.demo.evidence import Evidence

__all__ = ["Expected", "checks"]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the story asked for: intent ids, and the garbage that it wrote."""

    compaction: Sequence[str]
    before_move: Sequence[str]
    after_move: Sequence[str]
    garbage: bytes


def checks(expected: Expected) -> Mapping[str, Check]:
    """Return every check of the story, by what it promises."""

    def garbage(evidence: Evidence) -> Iterable[str]:
        letters = [letter for letter in evidence.dead_letters if letter.raw_value == expected.garbage]
        if len(letters) != 1:
            yield f"dead letters that hold the garbage byte for byte: {len(letters)}, not 1"
        if others := len(evidence.dead_letters) - len(letters):
            yield f"other dead letters: {others}"

    return {
        "what the compaction replaced is gone": lambda found: went(found, expected.compaction),
        "what node A asked for before the move is gone": lambda found: went(found, expected.before_move),
        "what stale node A asked for after the move stays": lambda found: stayed(
            found, expected.after_move, "a stale owner's delete"
        ),
        "garbage became one dead letter with its raw bytes": garbage,
        **COMMON,
    }
