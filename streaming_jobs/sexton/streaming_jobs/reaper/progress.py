"""What the reaper reports: a line for a person, JSON lines where there is no terminal, metrics."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TextIO

from prometheus_client import Counter, Gauge, start_http_server

from sexton.schemas import records
from sexton.schemas.errors import EnvironmentFault
from sexton.storage import HINTS
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.held import Change

__all__ = ["Progress", "serve_metrics"]

INTENTS = Counter("sexton_intents_total", "Intents by state; records read = the sum over states", ["state"])
KEYS = Counter("sexton_keys_total", "Keys of intents by state of the intent", ["state"])
RECORDS = Counter("sexton_decode_records_total", "Records read, of the intents and the deferred topic")
SUBJECTS = Counter("sexton_judge_subjects_total", "Subjects that the issuer was asked about")
CALLS = Counter("sexton_judge_issuer_calls_total", "Calls to the issuer, barriers not counted")
BARRIERS = Counter("sexton_judge_barriers_total", "Barriers, one for each micro-batch that was tried")
REQUESTS = Counter(
    "sexton_execute_requests_total", "Delete requests that were answered, of one key or of many"
)
KEYS_SENT = Counter("sexton_execute_keys_total", "Keys in those requests, after duplicates were merged")
THROTTLED = Counter(
    "sexton_execute_throttled_total", "Delete requests among them by which the store asked for fewer"
)
RETRIED = Counter("sexton_execute_retried_keys_total", "Keys that were sent again after an unclean answer")
RETURNED = Counter("sexton_decode_returned_total", "Intents that came back from the delay queue")
HELD_BUCKETS = Counter("sexton_execute_held_buckets_total", "Times that a task closed a bucket", ["reason"])
STAGE = Counter("sexton_stage_seconds_total", "Wall time of tasks by stage", ["stage"])
HELD = Counter("sexton_settle_held_total", "Times that a micro-batch was held by an environment fault")
INTERNAL = Counter(
    "sexton_settle_internal_total", "Dead letters with the reason internal: a fault of Sexton, to be reported"
)
FORGOTTEN = Counter(
    "sexton_judge_forgotten_total", "Intents that were refused as the log has forgotten their transaction"
)
ADVANCES = Counter("sexton_execute_boundary_writes_total", "Conditional writes of boundaries that were tried")
SET_BACK = Counter(
    "sexton_execute_boundaries_set_back_total",
    "Times that a boundary was found gone, lower than its collector saw it, or no number",
)
BATCHES = Counter("sexton_settle_micro_batches_total", "Micro-batches settled")
BACKLOG = Gauge("sexton_decode_backlog_records", "Records of the intents topic not yet processed")
OLDEST_DEFERRED = Gauge(
    "sexton_deferred_oldest_seconds",
    "Age of the oldest intent that waits: the issuer keeps all history since then",
)
OLDEST = Gauge("sexton_decode_oldest_pending_seconds", "Age of the oldest record not yet processed")


_HINT_INTERNAL = (
    "docs/operating.md, 'A dead letter that is internal': others are not harmed; please report it"
)
_HINT_FORGOTTEN = "docs/operating.md, 'A transaction is forgotten': nothing of these intents was deleted"
_HINT_SET_BACK = "docs/operating.md, 'A boundary was set back': its writers have to stop; nothing is deleted"


def serve_metrics(address: str, port: int | None) -> int | None:
    """Serve metrics on this address unless no port is set; return the port, 0 takes a free one."""
    if port is None:
        return None
    server, _ = start_http_server(port, addr=address)
    return int(server.server_port)


@dataclass(slots=True)
class Progress:
    """Sums up micro-batches and prints each one."""

    out: TextIO = field(default_factory=lambda: sys.stderr)
    total: Counts = field(default_factory=Counts)
    batches: int = 0
    busy_s: float = 0.0
    clock: Any = time.time

    def start(self, reached: Mapping[int, int]) -> None:
        """Note the offset by partition at which work starts; below it nothing counts as backlog."""
        self.total.reached.update(reached)

    def settled(
        self,
        batch_id: int,
        topic: str,
        counts: Counts,
        ends: Sequence[int],
        seconds: float,
        held_for_s: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Take in a micro-batch whose rows Kafka has acknowledged; `ends` are the barrier's end offsets.

        `held_for_s` says for how long each of its held buckets has been held.
        """
        if topic != records.INTENTS:
            counts = replace(counts, reached={})  # offsets of another topic
        self.total = self.total + counts
        self.batches += 1
        self.busy_s += seconds
        backlog = self._backlog(ends)
        oldest = 0.0
        if backlog and counts.oldest_us is not None:
            oldest = max(0.0, self.clock() - counts.oldest_us / 1e6)
        _count(counts)
        if counts.internal:
            self.note("internal", records=counts.internal, hint=_HINT_INTERNAL)
        if counts.forgotten:
            self.note("forgotten", intents=counts.forgotten, hint=_HINT_FORGOTTEN)
        for namespace, found in sorted(counts.set_back.items()):
            self.note("boundary_set_back", namespace=namespace, found=found, hint=_HINT_SET_BACK)
        BACKLOG.set(backlog)
        OLDEST.set(oldest)
        self._print(
            {
                "event": "micro_batch",
                "topic": topic,
                "batch": batch_id,
                "records": counts.records,
                "keys": sum(counts.keys.values()),
                "intents": dict(counts.intents),
                "keys_by_state": dict(counts.keys),
                "requests": counts.requests,
                "throttled": counts.throttled,
                "retried_keys": counts.keys_retried,
                "held_buckets": counts.failing,
                "held_for_s": {bucket: round(held_s, 1) for bucket, held_s in held_for_s.items()},
                "subjects": counts.subjects,
                "issuer_calls": counts.issuer_calls,
                "stages": {stage: round(spent, 3) for stage, spent in counts.seconds.items()},
                "seconds": round(seconds, 3),
                "keys_per_s": round(sum(counts.keys.values()) / seconds) if seconds else 0,
                "backlog": backlog,
                "oldest_pending_s": round(oldest, 1),
                "eta_s": round(backlog / (counts.records / seconds), 1) if counts.records and seconds else 0,
            }
        )

    def held(self, topic: str, fault: EnvironmentFault, wait_s: float) -> None:
        """Say that a topic's micro-batch waits for the environment; offsets stay."""
        HELD.inc()
        line = {"event": "held", "topic": topic, "fault": str(fault), "hint": fault.hint}
        self._print({**line, "next_try_s": round(wait_s, 1)})

    def waiting(self, since_s: float | None) -> None:
        """Note since when the oldest intent waits; its age grows also while nothing is read."""
        OLDEST_DEFERRED.set_function(lambda: 0.0 if since_s is None else max(0.0, self.clock() - since_s))

    def bucket(self, change: Change) -> None:
        """Say that a bucket is held from now on, in its store's own words and with what to do, or free."""
        named = {"bucket": change.bucket, "reason": change.reason}
        if change.held_s is not None:
            self.note("bucket_free", **named, held_s=round(change.held_s, 1))
            return
        hint = HINTS.get(change.reason, "docs/operating.md, 'A bucket is held'")
        self.note("bucket_held", **named, message=change.message, hint=hint)

    def note(self, event: str, **values: Any) -> None:
        """Say anything else."""
        self._print({"event": event, **values})

    def _backlog(self, ends: Sequence[int]) -> int:
        reached = self.total.reached
        # A partition that was added meanwhile has not been reached at all.
        return sum(max(0, end - reached.get(p, 0)) for p, end in enumerate(ends))

    def _print(self, line: dict[str, Any]) -> None:
        line = {"at": round(self.clock(), 3), **line}
        text = _for_people(line) if self.out.isatty() else json.dumps(line)
        # One write: print makes two, and the line of another thread can come between.
        self.out.write(f"{text}\n")
        self.out.flush()


def _for_people(line: dict[str, Any]) -> str:
    if line["event"] == "micro_batch":
        words = " ".join(f"{kind}={n}" for kind, n in sorted(line["intents"].items()))
        since = {name: f" for {held_s:.0f} s" for name, held_s in line["held_for_s"].items()}
        held = "".join(
            f"; held {name}: {why}{since.get(name, '')}" for name, why in sorted(line["held_buckets"].items())
        )
        return (
            f"reaper: {line['topic']}: {line['records']:,} records, {line['keys']:,} keys in "
            f"{line['seconds']:.1f} s ({line['keys_per_s']:,} keys/s) {words}; "
            f"backlog {line['backlog']:,}, oldest {line['oldest_pending_s']:.0f} s, "
            f"done in {line['eta_s']:.0f} s{held}"
        )
    if line["event"] == "held":
        hint = f"; {line['hint']}" if line["hint"] else ""
        return f"reaper: {line['topic']} held, next try in {line['next_try_s']:g} s: {line['fault']}{hint}"
    rest = " ".join(f"{name}={value}" for name, value in line.items() if name not in ("event", "at"))
    return f"reaper: {line['event'].replace('_', ' ')} {rest}".rstrip()


def _count(counts: Counts) -> None:
    for state, number in counts.intents.items():
        INTENTS.labels(state).inc(number)
    for state, number in counts.keys.items():
        KEYS.labels(state).inc(number)
    for stage, seconds in counts.seconds.items():
        STAGE.labels(stage).inc(seconds)
    RECORDS.inc(counts.records)
    SUBJECTS.inc(counts.subjects)
    CALLS.inc(counts.issuer_calls)
    REQUESTS.inc(counts.requests)
    KEYS_SENT.inc(counts.keys_sent)
    THROTTLED.inc(counts.throttled)
    RETRIED.inc(counts.keys_retried)
    RETURNED.inc(counts.returned)
    INTERNAL.inc(counts.internal)
    FORGOTTEN.inc(counts.forgotten)
    ADVANCES.inc(counts.advances)
    SET_BACK.inc(len(counts.set_back))
    for reason in counts.failing.values():
        HELD_BUCKETS.labels(reason).inc()
    BATCHES.inc()
