"""How much of what a throttling store allows the shared budget gets, and how often it is told to slow
down.

    python -m benchmarks.throttling                all scenarios, then two real processes over HTTP
    python -m benchmarks.throttling --docs         also write docs/throttling.json and the table of its page

The scenarios are simulated (`throttling_sim.py`), so their figures are the same on every machine. The curve
is drawn from docs/throttling.json by `make draw`.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import throttling_real
from benchmarks.harness import Target, machine, say, write_results
from benchmarks.throttling_sim import Outcome, Scenario, simulate

from sexton.streaming_jobs.budget import aimd
from sexton.streaming_jobs.budget.board import MemoryBoard
from sexton.streaming_jobs.budget.pacing import SharedBudget

__all__ = ["CURVES", "SCENARIOS", "TARGETS", "main", "table"]

DOCS = Path(__file__).parents[1] / "docs"
_FOUR = (0.0,) * 4
_EVEN4, _EVEN8 = (1.0,) * 4, (1.0,) * 8
TARGETS = {"achieved": Target(">=", 0.90), "throttled": Target("<=", 0.01)}
SCENARIOS = (
    Scenario("one prefix, one task"),
    Scenario("one prefix, 4 tasks", starts=_FOUR),
    Scenario("one prefix, 32 tasks", starts=(0.0,) * 32),
    Scenario("one prefix, keys throttled one by one", starts=_FOUR, per_key=True),
    Scenario("one prefix, burst of 1.25 requests", starts=_FOUR, burst_s=0.3),
    Scenario("one prefix, burst of 2 s", starts=_FOUR, burst_s=2.0),
    Scenario("one prefix, Retry-After of 1 s", starts=_FOUR, retry_after_s=1.0),
    Scenario("4 prefixes, keys throttled one by one", weights=_EVEN4, starts=_FOUR, per_key=True),
    Scenario("8 prefixes", weights=_EVEN8, starts=_FOUR),
    Scenario("8 prefixes, the hottest gets 28 %", weights=(5, 4, 3, 2, 1, 1, 1, 1), starts=_FOUR),
    Scenario(
        "100 prefixes, 16 tasks", weights=(1.0,) * 100, starts=(0.0,) * 16, in_flight=16, duration_s=600
    ),
    Scenario("4 prefixes, one task starts late", weights=_EVEN4, starts=(0.0, 0.0, 0.0, 300.0)),
    Scenario("4 prefixes, limit halved", weights=_EVEN4, starts=_FOUR, changes=((600.0, 0.5),)),
    Scenario("one prefix, limit halved", starts=_FOUR, changes=((600.0, 0.5),)),
    Scenario(
        "4 prefixes that split",
        weights=_EVEN4,
        starts=_FOUR,
        splits_after=300,
        settle_s=150,
        duration_s=1_800,
    ),
    Scenario("one prefix that splits", starts=_FOUR, splits_after=300, settle_s=300, duration_s=2_400),
    Scenario("one key a request", starts=_FOUR, keys=1, in_flight=64, duration_s=180),
)
# Not in the steady state that the targets are about: what happens without Redis is strict on purpose.
ALONE = (
    Scenario("8 prefixes, Redis away for 10 minutes", _EVEN8, _FOUR, board_away_from=300, board_back_at=900),
    Scenario("one prefix, Redis away for 10 minutes", (1.0,), _FOUR, board_away_from=300, board_back_at=900),
)
CURVES = (
    Scenario(
        "4 prefixes: a fourth task joins at 120 s, the limit is halved at 300 s, the prefixes split",
        weights=_EVEN4,
        starts=(0.0, 0.0, 0.0, 120.0),
        changes=((300.0, 0.5),),
        splits_after=600,
        duration_s=1_200,
    ),
    Scenario("one prefix, 4 tasks", starts=_FOUR, duration_s=600),
)


def main() -> int:
    """Run all, write the results and return the exit code."""
    logging.getLogger("sexton").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description="the shared budget against a throttling store")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--no-real", action="store_true", help="leave the real processes out")
    parser.add_argument("--docs", action="store_true", help="write docs/throttling.json and the page's table")
    args = parser.parse_args()
    described = machine()
    rows = [_row(scenario, args.seeds) for scenario in (*SCENARIOS, *ALONE)]
    held = rows[: len(SCENARIOS)]
    figures = {
        "throttling.achieved_of_allowed": min(row["achieved"] for row in held),
        "throttling.throttled_share": max(row["throttled"] for row in held),
        "throttling.free_us_per_request": round(_cost(limited=False), 2),
        "throttling.limited_us_per_request": round(_cost(limited=True), 2),
    }
    targets = {
        "throttling.achieved_of_allowed": TARGETS["achieved"],
        "throttling.throttled_share": TARGETS["throttled"],
        "throttling.real_achieved_of_allowed": TARGETS["achieved"],
        "throttling.real_throttled_share": TARGETS["throttled"],
        "throttling.free_us_per_request": Target("<=", 20, "us"),
    }
    runs: list[dict[str, Any]] = list(rows)
    if not args.no_real:
        say("two processes over HTTP, one Redis")
        real = throttling_real.measure()
        runs.append({"name": "real", **real})
        figures |= {
            "throttling.real_achieved_of_allowed": round(real["achieved"], 3),
            "throttling.real_throttled_share": round(real["throttled"], 4),
            "throttling.real_budget_us_per_request": round(real["budget_us_per_request"], 1),
        }
    code = write_results("throttling", runs, figures, targets, described)
    if args.docs:
        _write_docs(rows)
    return code


def table(rows: list[dict[str, Any]]) -> str:
    """Return the page's table: the worst of all seeds in each row."""
    lines = [
        "| scenario | allowed, keys/s | achieved | throttled | whole run: achieved | throttled |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['name']} | {row['allowed']:,.0f} | {row['achieved']:.1%} | {row['throttled']:.2%} "
            f"| {row['whole_achieved']:.1%} | {row['whole_throttled']:.2%} |"
        )
    return "\n".join(lines)


def _row(scenario: Scenario, seeds: int) -> dict[str, Any]:
    outcomes = [simulate(scenario, seed) for seed in range(1, seeds + 1)]
    row = {
        "name": scenario.name,
        "allowed": outcomes[0].samples[-1].allowed,
        "achieved": round(min(o.achieved for o in outcomes), 4),
        "throttled": round(max(o.throttled for o in outcomes), 5),
        "whole_achieved": round(min(o.whole_achieved for o in outcomes), 4),
        "whole_throttled": round(max(o.whole_throttled for o in outcomes), 5),
        "seeds": seeds,
    }
    say(f"{scenario.name}: achieved {row['achieved']:.3f}, throttled {row['throttled']:.2%}")
    return row


def _cost(*, limited: bool, requests: int = 50_000) -> float:
    """Return the microseconds that `take` and `report` cost for a request, without Redis."""
    budget = SharedBudget(MemoryBoard(time.monotonic), 1, 8)
    if limited:
        budget.report("b", 1_000, throttled=True, retry_after_s=None, seconds=0.05)
        budget.rule = aimd.Rule(rest=0.0)
    begun = time.perf_counter()
    for _ in range(requests):
        budget.take("b", 1_000)
        budget.report("b", 1_000, throttled=False, retry_after_s=None, seconds=0.05)
    return (time.perf_counter() - begun) * 1e6 / requests


def _write_docs(rows: list[dict[str, Any]]) -> None:
    curves = [_curve(scenario, simulate(scenario, 1)) for scenario in CURVES]
    content = {"rule": {name: getattr(aimd.RULE, name) for name in aimd.Rule.__slots__}}
    text = json.dumps({**content, "scenarios": rows, "curves": curves}, separators=(",", ":"))
    (DOCS / "throttling.json").write_text(text.replace('{"name"', '\n{"name"') + "\n", encoding="utf-8")
    page = DOCS / "throttling.md"
    begin, end = "<!-- table -->\n", "\n<!-- end -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    before = page.read_text(encoding="utf-8")
    page.write_text(pattern.sub(lambda _: begin + table(rows) + end, before), encoding="utf-8")


def _curve(scenario: Scenario, outcome: Outcome) -> dict[str, Any]:
    """Return a run second by second, in columns."""
    return {
        "name": scenario.name,
        "at": [round(s.at) for s in outcome.samples],
        "allowed": [round(s.allowed) for s in outcome.samples],
        "budget": [round(s.budget) for s in outcome.samples],
        "achieved": [round(s.achieved) for s in outcome.samples],
        "throttled": [s.throttled for s in outcome.samples],
    }


if __name__ == "__main__":
    sys.exit(main())
