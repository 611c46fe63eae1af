"""What the reaper tells while it runs."""

from __future__ import annotations

import io
import json

from prometheus_client import REGISTRY

from sexton.schemas.errors import EnvironmentFault, IssuerUnavailable
from sexton.storage import HINTS
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.held import Change
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


def test_a_held_bucket_is_told_with_its_stores_words_since_when_and_what_to_do() -> None:
    """For people on call: each fact in the JSON line, and the time in the line for a terminal, too."""
    out, read = io.StringIO(), Terminal()
    for given in (out, read):
        progress = Progress(given, clock=lambda: 7.0)
        progress.bucket(Change("b", "NoSuchBucket", "no bucket of this name"))
        progress.settled(0, "intents", Counts(failing={"b": "NoSuchBucket"}), [], 1.0, {"b": 34.96})
        progress.bucket(Change("b", "NoSuchBucket", "no bucket of this name", 61.23))

    held, batch, free = map(json.loads, out.getvalue().splitlines())
    assert (held["event"], held["bucket"], held["reason"]) == ("bucket_held", "b", "NoSuchBucket")
    assert (held["message"], held["hint"]) == ("no bucket of this name", HINTS["NoSuchBucket"])
    assert batch["held_for_s"] == {"b": 35.0}
    assert (free["event"], free["bucket"], free["held_s"]) == ("bucket_free", "b", 61.2)
    assert "; held b: NoSuchBucket for 35 s\n" in read.getvalue()


def test_the_age_of_what_waits_grows_between_micro_batches() -> None:
    """A reaper with nothing to read still says how long the oldest intent has been waiting."""
    now = 100.0

    def age() -> float | None:
        return REGISTRY.get_sample_value("sexton_deferred_oldest_seconds")

    progress = Progress(io.StringIO(), clock=lambda: now)
    progress.waiting(40.0)
    assert age() == 60.0
    now = 4_000.0
    assert age() == 3_960.0
    progress.waiting(None)
    assert age() == 0.0


def test_forgotten_transactions_are_told_with_what_to_do() -> None:
    """An alarm: one line and a counter, for what no intent without an outcome should come to."""
    lines = io.StringIO()
    before = REGISTRY.get_sample_value("sexton_judge_forgotten_total") or 0.0

    Progress(lines).settled(1, "intents", Counts(forgotten=2), [0], 1.0)

    first = json.loads(lines.getvalue().splitlines()[0])
    assert (first["event"], first["intents"]) == ("forgotten", 2)
    assert "'A transaction is forgotten'" in first["hint"]
    assert REGISTRY.get_sample_value("sexton_judge_forgotten_total") == before + 2
