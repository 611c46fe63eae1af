"""Runs of the reaper over a backlog: clean, or with something amiss in keys, store or distance."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.accounting import outcomes, tally
from benchmarks.harness import Bench, check_sent, machine, say
from benchmarks.reaper_run import ReaperRun, work_off
from benchmarks.workload import KEYS_PER_INTENT, Backlog, Piece

__all__ = ["CASES", "LATENCY", "ODD", "TRANSIENT", "Case", "OddBacklog", "reaper", "run"]


@dataclass(frozen=True, slots=True)
class Case:
    """A way in which things are amiss: what the black hole plays, and the figure that comes of it."""

    kind: str
    figure: str
    transient_share: float = 0.0
    latency_ms: float = 0.0


ODD = Case("odd 1 %", "pipeline.odd_1pct_ratio")
TRANSIENT = Case("transient 1 %", "pipeline.transient_1pct_ratio", transient_share=0.01)
LATENCY = Case("latency 50 ms", "pipeline.latency_50ms_ratio", latency_ms=50)
CASES = {"odd": ODD, "transient": TRANSIENT, "latency": LATENCY}


class OddBacklog(Backlog):
    """A backlog in which one key of each intent, so one in a hundred, goes by a call of its own."""

    __slots__ = ()

    def _keys(self, piece: Piece) -> list[str]:
        keys = super()._keys(piece)
        at = piece.number % len(keys)
        keys[at] = keys[at].replace("/layer-", "/layer\x01", 1)  # XML cannot carry it
        return keys


def reaper(
    bench: Bench,
    backlog: Backlog,
    env: dict[str, str] | None = None,
    work_off: Callable[..., ReaperRun] = work_off,
    **played: float,
) -> dict[str, Any]:
    """Write the backlog and run the reaper over it, and check what it did and what it wrote.

    RuntimeError unless exactly the due keys were sent and every intent has its one outcome. The reaper goes
    on where the one before it ended. What was settled once cannot be measured again: the issuer keeps no
    windows below it, so that it would be judged stale.
    """
    backlog.produce(bench.settings)
    bench.hole.play(**played)
    bench.hole.reset()
    try:
        run = work_off(bench, backlog.intents, env, resume=True)
    finally:
        bench.hole.play()
    steady = run.steady()
    say(f"reaper: {steady['keys_per_s']:,} keys/s; comparing the sets of keys and the outcomes")
    stats = bench.hole.stats()
    sent = check_sent(bench.hole, backlog.due(), "reaper")
    reported = tally(backlog.due_by_intent(), outcomes(bench.settings, backlog.run_id), KEYS_PER_INTENT)
    deleted = sent.keys - sent.duplicated
    if not reported.exact or reported.keys.get("deleted", 0) != deleted or run.deleted() != deleted:
        raise RuntimeError(f"keys deleted: {deleted:,}, by progress: {run.deleted():,}; outcomes: {reported}")
    return {
        **steady,
        "batches": len(run.batches),
        "intents": dict(reported.intents),
        "keys_deleted": deleted,
        "keys_deleted_twice": sent.duplicated - stats["failed_once"],
        "keys_failed_once": stats["failed_once"],
        "single_calls": stats["singles"],
        "keys_hash": sent.hash,
        "batch_fill": round(stats["keys"] / (1000 * stats["requests"]), 5),
        "issuer_calls": run.total("issuer_calls"),
        "subjects": run.total("subjects"),
        "peak_mib": run.peak_mib,
        "wall_s": run.wall_s,
        "load_average": machine()["load_average"],
    }


def run(case: Case, bench: Bench, keys: int, in_flight: int) -> dict[str, Any]:
    """Run the reaper once over a backlog of its own, with what the case plays.

    `limit_keys_per_s` is what the requests in flight allow at that latency, None without one.
    """
    say(f"case: {case.kind}")
    backlog = OddBacklog(keys) if case is ODD else Backlog(keys)
    if not case.latency_ms:
        done = reaper(bench, backlog, transient_share=case.transient_share)
        return {**done, "kind": case.kind, "limit_keys_per_s": None}
    tasks = os.cpu_count() or 1
    env = {"SEXTON_REAPER_REQUESTS_IN_FLIGHT": str(in_flight), "SEXTON_REAPER_CORES": str(tasks)}
    done = reaper(bench, backlog, env, latency_ms=case.latency_ms)
    limit = tasks * in_flight * 1000 / (case.latency_ms / 1000)
    say(f"{done['keys_per_s']:,} keys/s, of {limit:,.0f} that {tasks} tasks with {in_flight} requests allow")
    return {**done, "kind": case.kind, "limit_keys_per_s": limit}
