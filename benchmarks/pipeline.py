"""End to end: a backlog worked off by the reaper, and beside it by a plain consumer and by s5cmd, in turns.

    python -m benchmarks.pipeline [--keys 10000000] [--runs 3] [--without-s5cmd] [--cases odd latency]

Every run of the reaper has a backlog of its own, which is there when it starts. It fails unless the black
hole was sent exactly the keys that were due: no stale one, none missing. The cases are further runs, in the
same turns, in which something is amiss: odd keys, keys that fail once, a store that is far away.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from benchmarks import pipeline_cases
from benchmarks.harness import Target, machine, median, open_bench, say, write_results
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
    rival_keys = min(args.plain_keys, args.keys)
    with open_bench("pipeline", _PARTITIONS) as bench:
        for _ in range(args.runs):
            backlog, starts = Backlog(args.keys), topic_ends(bench)
            runs.append({**pipeline_cases.reaper(bench, backlog), "kind": "reaper"})
            runs.append(plain_consumer(bench, rival_keys, starts))
            if not args.without_s5cmd:
                runs.append(s5cmd(bench, backlog.due(), min(args.s5cmd_keys, backlog.due_keys)))
            for name in args.cases:
                if name in CASES:
                    case_keys = min(args.case_keys, args.keys)
                    runs.append(pipeline_cases.run(CASES[name], bench, case_keys, args.in_flight))
    return runs


def many_subjects(count: int) -> Run:
    """Let tasks judge nearly 10,000 subjects each, every intent another; count the calls to the issuer."""
    with open_bench("pipeline", _PARTITIONS) as bench:
        names = [f"tenant-{number:06d}" for number in range(count)]
        attach_all(bench.settings, names)
        write(bench.settings, (intent(name, name, 1, [f"{name}/key"]) for name in names))
        one_batch = {"SEXTON_REAPER_INTENTS_PER_TRIGGER": str(2 * count)}
        run = work_off(bench, count, one_batch, least_batches=1)
    calls, subjects = run.total("issuer_calls"), run.total("subjects")
    say(f"issuer: {calls} calls for {subjects:,} subjects in {_PARTITIONS} tasks")
    return {"kind": "many subjects", "issuer_calls": calls, "subjects": subjects, "tasks": _PARTITIONS}


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
            figures |= _beside(ours, theirs, name)
    for case in CASES.values():
        if theirs := of.get(case.kind):
            figures |= _of_case(case, ours, theirs)
    for part in ours[0]["cpu_us_per_key_by_part"]:
        spent = [run["cpu_us_per_key_by_part"][part] for run in ours]
        figures[f"pipeline.cpu_us_per_key.{part.replace(' ', '_')}"] = median(spent)
    return figures


def _beside(ours: Sequence[Run], theirs: Sequence[Run], name: str) -> dict[str, float]:
    pairs = list(zip(ours, theirs, strict=True))
    return {
        f"pipeline.{name}_keys_per_s": median([run["keys_per_s"] for run in theirs]),
        f"pipeline.{name}_cpu_us_per_key": median([_total(run) for run in theirs]),
        f"pipeline.ratio_to_{name}": median([a["keys_per_s"] / b["keys_per_s"] for a, b in pairs]),
        f"pipeline.cpu_ratio_to_{name}": median([_total(b) / _total(a) for a, b in pairs]),
    }


def _of_case(case: Case, ours: Sequence[Run], theirs: Sequence[Run]) -> dict[str, float]:
    bounds = [run["limit_keys_per_s"] or clean["keys_per_s"] for clean, run in zip(ours, theirs, strict=True)]
    return {
        case.figure: median([run["bounded_keys_per_s"] / b for run, b in zip(theirs, bounds, strict=True)]),
        f"{case.figure.removesuffix('_ratio')}_keys_per_s": median([run["keys_per_s"] for run in theirs]),
    }


def _total(run: Run) -> float:
    return round(float(sum(run["cpu_us_per_key_by_part"].values())), 3)


def main() -> None:
    """Run all in turns and write the results."""
    parser = argparse.ArgumentParser(description="end to end, beside a plain consumer and s5cmd")
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument(
        "--plain-keys", type=int, default=2_000_000, help="of the consumer: steady, it need not see all"
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--subjects", type=int, default=78_000, help="of the run that counts issuer calls")
    parser.add_argument("--s5cmd-keys", type=int, default=1_000_000, help="the first so many of those due")
    parser.add_argument("--without-s5cmd", action="store_true")
    parser.add_argument(
        "--cases", nargs="*", choices=[*CASES, "none"], default=list(CASES), help="default: all"
    )
    parser.add_argument("--case-keys", type=int, default=4_000_000, help="of each run of a case")
    parser.add_argument(
        "--in-flight", type=int, default=4, help="requests per task where the store is far away"
    )
    args = parser.parse_args()
    if not args.without_s5cmd:
        find_s5cmd()
    described = machine()
    runs = rounds(args)
    judged = many_subjects(args.subjects)
    write_results("pipeline", [*runs, judged], figures_of(runs, judged), TARGETS, described)


if __name__ == "__main__":
    main()
