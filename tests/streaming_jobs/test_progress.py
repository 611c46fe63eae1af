"""What the reaper tells while it runs."""

from __future__ import annotations

import io
import json

from sexton.schemas.errors import EnvironmentFault, IssuerUnavailable
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.progress import Progress


class Terminal(io.StringIO):
    """Where a person reads along."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def test_a_held_micro_batch_is_told_with_its_topic_and_what_to_do() -> None:
    """The query and the delay queue may be held at once: each line says which, why, and what helps."""
    lines, read = io.StringIO(), Terminal()
    for out in (lines, read):
        progress = Progress(out, clock=lambda: 7.0)
        progress.held("intents", IssuerUnavailable("no answer"), 0.5)
        progress.held("deferred", EnvironmentFault("ExpiredToken: old"), 15)

    first, second = map(json.loads, lines.getvalue().splitlines())
    hint = IssuerUnavailable.usual_hint
    assert first == {
        "at": 7.0,
        "event": "held",
        "topic": "intents",
        "fault": "no answer",
        "hint": hint,
        "next_try_s": 0.5,
    }
    assert (second["topic"], second["hint"]) == ("deferred", None)
    assert read.getvalue().splitlines() == [
        f"reaper: intents held, next try in 0.5 s: no answer; {hint}",
        "reaper: deferred held, next try in 15 s: ExpiredToken: old",
    ]


def test_a_person_reads_of_which_topic_a_micro_batch_was_and_which_buckets_are_held() -> None:
    """The line for a terminal has what the JSON line has of buckets that answer nothing but trouble."""
    read = Terminal()
    counts = Counts(records=2, failing={"b": "NoSuchBucket", "a": "SlowDown"})

    Progress(read, clock=lambda: 7.0).settled(0, "deferred", counts, [], 1.0)

    assert read.getvalue().startswith("reaper: deferred: 2 records, 0 keys in 1.0 s ")
    assert read.getvalue().endswith("; held a: SlowDown; held b: NoSuchBucket\n")
