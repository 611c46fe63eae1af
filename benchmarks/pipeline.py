"""End to end: a backlog processed by the reaper, and beside it by a plain consumer and by s5cmd, in turns.

    python -m benchmarks.pipeline [--keys 8000000] [--runs 3] [--without-s5cmd] [--cases odd latency]

All reach the store over TLS; `pipeline.http_*` are the reaper and the plain consumer on plain HTTP. Every run
of the reaper has a backlog of its own, which is there when it starts. It fails unless the black hole was sent
exactly the keys that were due, no stale one, none missing, and every intent has its outcome. The cases are
further runs, in which something is amiss: odd keys, keys that fail once, a store that is far away. The exit
code is 1 when a target was missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import pipeline_cases
from benchmarks.harness import Bench, Target, machine, median, open_bench, say, write_results
from benchmarks.pipeline_cases import CASES, LATENCY, ODD, TRANSIENT, Case
from benchmarks.reaper_run import work_off
from benchmarks.rivals import find_s5cmd, plain_consumer, s5cmd, topic_ends
from benchmarks.workload import Backlog, attach_all, intent, write

_PARTITIONS = 8
TARGETS = {
    "pipeline.keys_per_s": Target(">=", 250_000, "keys/s"),
    "pipeline.ratio_to_plain_consumer": Target(">=", 5),
    "pipeline.ratio_to_s5cmd": Target(">=", 5),
    "pipeline.batch_fill": Target(">=", 0.99),
    # One call for each task, which has a little less than 10,000 subjects.
    "pipeline.issuer_calls_per_100k_subjects": Target("<=", 10.5),
    ODD.figure: Target(">=", 0.6),
    TRANSIENT.figure: Target(">=", 0.6),
    LATENCY.figure: Target(">=", 0.9),
}

Run = dict[str, Any]


def rounds(args: argparse.Namespace) -> list[Run]:
    """Run everything in turns, so that what else the machine does meets all alike."""
    runs: list[Run] = []
    with open_bench("pipeline", _PARTITIONS) as bench:
        for number in range(args.runs):
            backlog, starts = Backlog(args.keys), topic_ends(bench)
            runs.append({**pipeline_cases.reaper(bench, backlog), "kind": "reaper"})
            runs.append(plain_consumer(bench, min(args.plain_keys, args.keys), starts, bench.hole.url))
            if number < args.other_runs:
                runs += _others(bench, args, backlog)
    return runs


def _others(bench: Bench, args: argparse.Namespace, backlog: Backlog) -> list[Run]:
    """Run what is measured beside: s5cmd on the same keys, both on plain HTTP, the cases."""
    runs: list[Run] = []
    if not args.without_s5cmd:
        runs.append(s5cmd(bench, backlog.due(), min(args.s5cmd_keys, backlog.due_keys)))
    if not args.without_http:
        say("on plain HTTP")
        env, starts = {"SEXTON_S3_ENDPOINT_URL": bench.hole.plain_url}, topic_ends(bench)
        keys = min(args.case_keys, args.keys)
        runs.append({**pipeline_cases.reaper(bench, Backlog(keys), env), "kind": "reaper, HTTP"})
        theirs = plain_consumer(bench, min(args.plain_keys, keys), starts, bench.hole.plain_url)
        runs.append({**theirs, "kind": "plain consumer, HTTP"})
    for name in args.cases:
        if name in CASES:
            keys = min(args.case_keys, args.keys)
            runs.append(pipeline_cases.run(CASES[name], bench, keys, args.in_flight))
    return runs


def many_subjects(count: int) -> Run:
    """Let tasks judge intents that each have another subject; count the calls to the issuer."""
    with open_bench("pipeline", _PARTITIONS) as bench:
        names = [f"tenant-{number:06d}" for number in range(count)]
        attach_all(bench.settings, names)
        write(bench.settings, (intent(name, name, 1, [f"{name}/key"]) for name in names))
        one_batch = {"SEXTON_REAPER_INTENTS_PER_TRIGGER": str(2 * count)}
        run = work_off(bench, count, one_batch, least_batches=1)
    calls, subjects = run.total("issuer_calls"), run.total("subjects")
    say(f"issuer: {calls} calls for {subjects:,} subjects")
    return {"kind": "many subjects", "issuer_calls": calls, "subjects": subjects}


def figures_of(runs: Sequence[Run], judged: Run) -> dict[str, float]:
    """Return the figures: medians over the rounds, ratios being taken within each round."""
    of = {
        kind: [run for run in runs if run["kind"] == kind] for kind in dict.fromkeys(r["kind"] for r in runs)
    }
    ours = of["reaper"]
    figures = {
        "pipeline.keys_per_s": median([run["keys_per_s"] for run in ours]),
        "pipeline.cpu_us_per_key": median([_total(run) for run in ours]),
        "pipeline.batch_fill": median([run["batch_fill"] for run in ours]),
        "pipeline.issuer_calls_per_100k_subjects": judged["issuer_calls"] * 100_000 / judged["subjects"],
    }
    for kind, name in (("plain consumer", "plain_consumer"), ("s5cmd", "s5cmd")):
        if theirs := of.get(kind):
            figures |= _beside("pipeline.", ours, theirs, name)
    if http := of.get("reaper, HTTP"):
        figures["pipeline.http_keys_per_s"] = median([run["keys_per_s"] for run in http])
        figures["pipeline.http_cpu_us_per_key"] = median([_total(run) for run in http])
        figures |= _beside("pipeline.http_", http, of["plain consumer, HTTP"], "plain_consumer")
    for case in CASES.values():
        if theirs := of.get(case.kind):
            figures |= _of_case(case, ours, theirs)
    for kind, start in (
        ("reaper", "cpu_us_per_key"),
        ("plain consumer", "plain_consumer_cpu_us_per_key"),
        ("reaper, HTTP", "http_cpu_us_per_key"),
        ("plain consumer, HTTP", "http_plain_consumer_cpu_us_per_key"),
    ):
        figures |= _by_part(of.get(kind, []), f"pipeline.{start}")
    return figures


def _beside(start: str, ours: Sequence[Run], theirs: Sequence[Run], name: str) -> dict[str, float]:
    # The rivals may run in fewer rounds, the first ones.
    pairs = list(zip(ours, theirs, strict=False))
    return {
        f"{start}{name}_keys_per_s": median([run["keys_per_s"] for run in theirs]),
        f"{start}{name}_cpu_us_per_key": median([_total(run) for run in theirs]),
        f"{start}ratio_to_{name}": median([a["keys_per_s"] / b["keys_per_s"] for a, b in pairs]),
        f"{start}cpu_ratio_to_{name}": median([_total(b) / _total(a) for a, b in pairs]),
    }


def _of_case(case: Case, ours: Sequence[Run], theirs: Sequence[Run]) -> dict[str, float]:
    """Return a case's rate against its limit, or where it has none against the clean rate of its round."""
    pairs = [
        (run, run["limit_keys_per_s"] or clean["keys_per_s"])
        for clean, run in zip(ours, theirs, strict=False)
    ]
    return {
        case.figure: median([run["keys_per_s"] / limit for run, limit in pairs]),
        f"{case.figure.removesuffix('_ratio')}_keys_per_s": median([run["keys_per_s"] for run in theirs]),
    }


def _by_part(runs: Sequence[Run], start: str) -> dict[str, float]:
    parts = runs[0]["cpu_us_per_key_by_part"] if runs else ()
    return {
        f"{start}.{part.replace(' ', '_')}": median([run["cpu_us_per_key_by_part"][part] for run in runs])
        for part in parts
    }


def _total(run: Run) -> float:
    return round(float(sum(run["cpu_us_per_key_by_part"].values())), 3)


def main() -> int:
    """Run all in turns, write the results and return the exit code."""
    parser = argparse.ArgumentParser(description="end to end, beside a plain consumer and s5cmd")
    parser.add_argument("--keys", type=int, default=8_000_000, help="of each run of the reaper over TLS")
    parser.add_argument(
        "--plain-keys", type=int, default=2_000_000, help="of the consumer: steady, it need not see all"
    )
    parser.add_argument("--runs", type=int, default=3, help="rounds: reaper and plain consumer over TLS")
    parser.add_argument("--other-runs", type=int, default=1, help="rounds that have all the rest, too")
    parser.add_argument("--subjects", type=int, default=78_000, help="of the run that counts issuer calls")
    parser.add_argument("--s5cmd-keys", type=int, default=600_000, help="the first so many of those due")
    parser.add_argument("--without-s5cmd", action="store_true")
    parser.add_argument("--without-http", action="store_true", help="nothing on plain HTTP")
    parser.add_argument(
        "--cases", nargs="*", choices=[*CASES, "none"], default=list(CASES), help="default: all"
    )
    parser.add_argument("--case-keys", type=int, default=6_000_000, help="of a case, and on plain HTTP")
    parser.add_argument(
        "--in-flight", type=int, default=4, help="requests per task where the store is far away"
    )
    args = parser.parse_args()
    if not args.without_s5cmd:
        find_s5cmd()
    described = machine()
    runs = rounds(args)
    judged = many_subjects(args.subjects)
    return write_results("pipeline", [*runs, judged], figures_of(runs, judged), TARGETS, described)


if __name__ == "__main__":
    sys.exit(main())
