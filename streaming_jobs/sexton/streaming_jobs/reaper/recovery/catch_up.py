"""Up to where a new checkpoint meets what may have been processed under another one.

An intent is executed once: after that its keys may be written again, or an operator may have brought back
what it hid. A new checkpoint reads `intents` and `deferred` from their beginnings, so it has to look for what
has its final outcome already. The place up to which it must stands in the checkpoint, written before anything
is read, and is never changed: a reaper that is killed in the middle looks again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from sexton.streaming_jobs.reaper.recovery.binding import CheckpointRefused, damaged

__all__ = ["CATCH_UP", "CatchUp"]

_FORMAT = 1
CATCH_UP = "sexton-catch-up.json"
"""The file's name in the checkpoint's folder."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """The ends of both topics when the checkpoint was new, by partition; none where no reaper had worked."""

    intents: Mapping[int, int] = field(default_factory=dict)
    deferred: Mapping[int, int] = field(default_factory=dict)

    def is_done(self, committed: Mapping[int, int], done: Mapping[int, int]) -> bool:
        """Return whether both topics are processed so far."""
        return all(
            reached.get(partition, 0) >= end
            for ends, reached in ((self.intents, committed), (self.deferred, done))
            for partition, end in ends.items()
        )

    def to_text(self) -> str:
        """Return the text that is stored."""
        ends = {"intents": self.intents, "deferred": self.deferred}
        return json.dumps(
            {
                "format": _FORMAT,
                **{topic: {str(p): e for p, e in sorted(x.items())} for topic, x in ends.items()},
            }
        )

    @classmethod
    def parse(cls, text: str | None) -> CatchUp:
        """Return what a text says, nothing where there is none; raises CheckpointRefused."""
        if text is None:
            return cls()
        try:
            raw = json.loads(text)
            if raw["format"] != _FORMAT:
                raise damaged(CATCH_UP, f"this version does not know its format: {raw['format']}")
            intents, deferred = (
                {int(p): int(end) for p, end in raw[topic].items()} for topic in ("intents", "deferred")
            )
        except CheckpointRefused:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise damaged(CATCH_UP, repr(error)) from error
        return cls(intents, deferred)
