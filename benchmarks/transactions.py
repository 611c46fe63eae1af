"""Transactions beside generations: calls 500 times a second, and how fast the judge gets through deadlists.

python -m benchmarks.transactions [--tenants 10000] [--intents 5] [--seconds 8] [--runs 3]

Attaches and generations, in the same runs, are what they are compared with.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from benchmarks.harness import BUCKET, Bench, Target, machine, median, open_bench, say, write_results
from benchmarks.issuer_scale import at_rate

from sexton.issuer.client import IssuerClient
from sexton.schemas import events
from sexton.streaming_jobs.reaper.counts import Counts
from sexton.streaming_jobs.reaper.decode import Decoded, Record
from sexton.streaming_jobs.reaper.guards.asking import Questions
from sexton.streaming_jobs.reaper.judge import JudgeStage, Rules

_RATE = 500.0
_KEYS = 100
_TARGETS = {"transactions.judge_ratio": Target(">=", 0.9)}
_Guard = Callable[[str], events.Guard]


def main() -> int:
    """Run all, write the results and return the exit code."""
    parser = argparse.ArgumentParser(description="transactions")
    parser.add_argument("--tenants", type=int, default=10_000)
    parser.add_argument("--intents", type=int, default=5, help="for each tenant")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    described = machine()
    with open_bench("transactions") as bench, IssuerClient(bench.settings.issuer_url, timeout_s=60) as client:
        prepare(bench, client, args.tenants)
        runs = [one_run(bench, client, args, number) for number in range(args.runs)]
    middle = {name: median([run[name] for run in runs]) for name in runs[0]}
    figures = {f"transactions.{name}": value for name, value in middle.items()}
    figures["transactions.judge_ratio"] = middle["judge_per_s"] / middle["judge_generations_per_s"]
    figures["transactions.start_ratio"] = middle["start_p50_ms"] / middle["attach_p50_ms"]
    return write_results("transactions", runs, figures, _TARGETS, described)


def prepare(bench: Bench, client: IssuerClient, tenants: int) -> None:
    """Start a transaction, or attach, for each tenant; both kinds are committed or held when judged."""
    url = bench.settings.issuer_url
    at_rate(url, 1e9, tenants / 1e9, lambda c, n, turn: _committed(c, f"node-{n}", _transactional(turn)))
    at_rate(url, 1e9, tenants / 1e9, lambda c, n, turn: c.attach(f"node-{n}", _attached(turn)))
    say(f"{tenants} tenants of each form")


def one_run(bench: Bench, client: IssuerClient, args: argparse.Namespace, number: int) -> dict[str, float]:
    """Measure the calls, then the judge."""
    url, seconds = bench.settings.issuer_url, args.seconds
    run: dict[str, float] = {}
    calls: dict[str, Callable[[IssuerClient, int, int], Any]] = {
        "attach": lambda c, n, turn: c.attach(f"node-{n}", f"a-{number}-{turn}"),
        "start": lambda c, n, turn: c.start_transaction("node", f"t-{number}-{turn}"),
        "commit": lambda c, n, turn: c.commit_transaction("node", f"t-{number}-{turn}", 1),
    }
    for name, call in calls.items():
        rate, times = at_rate(url, _RATE, seconds, call)
        run[f"{name}_rate_per_s"] = rate
        run[f"{name}_p50_ms"], run[f"{name}_p99_ms"] = times[len(times) // 2], times[len(times) * 99 // 100]
    committed = events.TransactionState.COMMITTED
    kinds: dict[str, _Guard] = {
        "judge_generations_per_s": lambda name: events.GenerationGuard(f"g-{name}", 1),
        "judge_per_s": lambda name: events.TransactionGuard(f"t-{name}", 1, committed),
    }
    for name, guard in kinds.items():
        decoded = intents(args.tenants, args.intents, guard)
        run[name] = len(decoded) / judged_s(client, decoded)
    say(str({name: round(value, 3) for name, value in run.items()}))
    return run


def judged_s(client: IssuerClient, decoded: Sequence[Decoded]) -> float:
    """Return the seconds in which the judge's stage gets through all intents, the issuer's answers included.

    Raises RuntimeError unless every one is judged below or above its window alike: the topic is empty.
    """
    barrier = client.barrier()
    stage = JudgeStage(
        Questions(client, barrier.topic_id, barrier.log_offset), Rules(), datetime.now(UTC), Counts()
    )
    begun = time.perf_counter()
    judged = [each for part in stage.take(decoded) for each in part] + stage.finish()
    took = time.perf_counter() - begun
    if len(judged) != len(decoded) or not all(hasattr(each.judgement, "result") for each in judged):
        raise RuntimeError(f"judged {len(judged)} of {len(decoded)}")
    return took


def intents(tenants: int, each: int, guard: _Guard) -> list[Decoded]:
    """Return intents of `_KEYS` keys, `each` for a tenant, decoded."""
    now = datetime.now(UTC)
    found = []
    for number in range(tenants * each):
        name = f"{number // each:06d}"
        keys = [f"tenants/{name}/{number}/{key}" for key in range(_KEYS)]
        action = events.DeleteObjects(BUCKET, [keys])
        intent = events.DeletionIntent(f"i-{number}", f"t-{name}", now, "bench", (guard(name),), action)
        found.append(Decoded(Record(0, number, 0, None, b""), intent))
    return found


def _committed(client: IssuerClient, node: str, tenant: str) -> None:
    client.start_transaction(node, tenant)
    client.commit_transaction(node, tenant, 1)


def _transactional(number: int) -> str:
    return f"t-{number:06d}"


def _attached(number: int) -> str:
    return f"g-{number:06d}"


if __name__ == "__main__":
    sys.exit(main())
