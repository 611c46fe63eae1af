"""Peak resident memory of every process with 2 M and with 10 M pending keys: it must not grow.

python -m benchmarks.memory [--small 2000000] [--large 10000000] [--runs 1]
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks.harness import Target, machine, median, open_bench, say, write_results
from benchmarks.reaper_run import work_off
from benchmarks.workload import Backlog

_INTENTS_PER_TRIGGER = 5_000  # several micro-batches even for the small backlog, and as large for both
_NAMES = {"jvm": "driver", "workers": "worker", "driver": "driver_python"}
_FLAT = 1.15


def main() -> int:
    """Measure both backlogs on one topic, write the results and return the exit code."""
    parser = argparse.ArgumentParser(description="peak memory by backlog")
    parser.add_argument("--small", type=int, default=2_000_000)
    parser.add_argument("--large", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=1, help="of each size")
    args = parser.parse_args()
    described = machine()
    runs: list[dict[str, Any]] = []
    with open_bench("memory") as bench:
        written = 0
        for label, keys in (("2m", args.small), ("10m", args.large)):
            Backlog(keys - written).produce(bench.settings)
            written = keys
            for _ in range(args.runs):
                bench.hole.reset()
                env = {"SEXTON_REAPER_INTENTS_PER_TRIGGER": str(_INTENTS_PER_TRIGGER)}
                run = work_off(bench, keys // 100, env)
                say(f"{keys:,} keys pending: {run.peak_mib}")
                runs.append({"size": label, "keys": run.total("keys"), "peak_mib": run.peak_mib})
    figures: dict[str, float] = {}
    for part in runs[0]["peak_mib"]:
        name = _NAMES.get(part, part.replace(" ", "_"))
        for size in ("2m", "10m"):
            peaks = [run["peak_mib"][part] for run in runs if run["size"] == size]
            figures[f"memory.{name}_mb_{size}"] = median(peaks)
    targets = {
        name: Target("<=", round(figures[name.replace("_10m", "_2m")] * _FLAT), "MiB")
        for name in figures
        if name.endswith("_10m")
    }
    return write_results("memory", runs, figures, targets, described)


if __name__ == "__main__":
    sys.exit(main())
