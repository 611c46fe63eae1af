"""What became of one intent: its keys by outcome, or what is known of each while it waits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from sexton.schemas.events import KeyProgress, OutcomeKind
from sexton.streaming_jobs.reaper.actions.delete_prefix.progress import PrefixProgress
from sexton.streaming_jobs.reaper.execute.outcomes import ItemOutcome
from sexton.streaming_jobs.reaper.vetoes.room import Stop, Wait

__all__ = ["Result"]


@dataclass(slots=True)
class Result:
    """What became of an intent: keys by outcome, those that are not of the most common outcome by name.

    With `held` it has no outcome yet: it waits, `unknown` says whether some of its keys may be gone, and
    `keys` which. `gated` is what its next phase hangs on: with Wait it is that, and not its bucket, which
    holds it; with Stop no further phase begins. `resumes_at` is when the pause before that phase ends.
    `progress` is how far a prefix has come that waits, or, with `continues`, continues in its next slice.
    `note` is what a person should know of it.
    """

    counts: Counter[OutcomeKind] = field(default_factory=Counter)
    named: list[tuple[str, ItemOutcome]] = field(default_factory=list)
    effects: Counter[str] = field(default_factory=Counter)
    request_ids: list[str] = field(default_factory=list)
    held: ItemOutcome | None = None
    unknown: bool = False
    keys: KeyProgress | None = None
    progress: PrefixProgress | None = None
    continues: bool = False
    gated: Stop | Wait | None = None
    resumes_at: datetime | None = None
    note: str = ""

    @property
    def waits(self) -> Wait | None:
        """What its next phase waits for, None where nothing of its own does."""
        return self.gated if isinstance(self.gated, Wait) else None

    def name(self, key: str, outcome: ItemOutcome) -> None:
        """Count a key, and name it with its outcome."""
        assert outcome.kind is not None
        self.counts[outcome.kind] += 1
        self.named.append((key, outcome))
