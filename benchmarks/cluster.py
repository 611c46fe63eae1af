"""The reaper on a standalone Spark cluster, two workers of one core each, beside local mode with two cores.

    python -m benchmarks.cluster [--keys 4000000] [--runs 3] [--death-keys 2000000]

Both take turns, each on a backlog of its own; every run fails unless exactly the due keys were sent and each
intent has its one outcome. Then, in runs of their own, a worker with its executor, and the driver with its
JVM, are killed with -9 in the middle of a backlog: how long until the next micro-batch is settled, by the
same reaper, or by one that is started at once. All processes of the cluster share the machine's cores with
everything else. The exit code is 1 when a target was missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from benchmarks.accounting import outcomes, tally
from benchmarks.harness import Bench, Target, machine, median, open_bench, say, write_results
from benchmarks.pipeline_cases import reaper
from benchmarks.reaper_run import running_reaper, work_off
from benchmarks.workload import KEYS_PER_INTENT, Backlog
from tests.support.spark_cluster import cluster, submit

_PARTITIONS = 8
_BATCHES_BEFORE = 2
_TARGETS = {
    "cluster.ratio_to_local": Target(">=", 0.85),
    "cluster.worker_death_s": Target("<=", 10, "s"),
}

Run = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster, and how the reaper is started on it."""

    bench: Bench
    command: list[str]

    def daemons(self, kind: str = "") -> list[psutil.Process]:
        """Return the processes of master and workers, or those of one kind."""
        wanted = f"org.apache.spark.deploy.{kind}"
        found = []
        for child in psutil.Process().children():
            if any(word.startswith(wanted) and "SparkSubmit" not in word for word in child.cmdline()):
                found.append(child)
        return found


@contextmanager
def opened(bench: Bench) -> Iterator[Cluster]:
    """Start a master and two workers of one core each; end them afterwards."""
    folder = bench.directory / "cluster"
    folder.mkdir()
    try:
        with cluster(folder, bench.environment(), workers=2, cores=1) as master:
            yield Cluster(bench, submit(master, bench.settings))
    finally:
        shutil.rmtree(folder)


def turns(bench: Bench, args: argparse.Namespace) -> list[Run]:
    """Run both in turns, so that what else the machine does meets both alike."""
    runs: list[Run] = []
    for _ in range(args.runs):
        runs.append({**reaper(bench, Backlog(args.keys), {"SEXTON_REAPER_CORES": "2"}), "kind": "local"})
        with opened(bench) as found:
            pids = [each.pid for each in found.daemons()]
            there = partial(work_off, command=found.command, others=pids)
            env = {"PYSPARK_PYTHON": sys.executable}
            runs.append({**reaper(bench, Backlog(args.keys), env, there), "kind": "cluster"})
    return runs


def worker_death(bench: Bench, keys: int) -> Run:
    """Kill a worker and its executor in the middle; return how long the reaper had nothing settled."""
    backlog, env = _backlog(bench, keys)
    with (
        opened(bench) as found,
        running_reaper(bench, "--once", env=env, resume=True, command=found.command) as process,
    ):
        _settled(process, _BATCHES_BEFORE)
        victim = found.daemons("worker.Worker")[0]
        dead = _kill([*victim.children(recursive=True), victim])
        seconds = _settled(process, 1) - dead
        _to_the_end(process)
    return _checked(bench, backlog, {"kind": "worker death", "seconds": round(seconds, 2)})


def driver_death(bench: Bench, keys: int) -> Run:
    """Kill the driver and its JVM in the middle, start another one at once; return how long that took."""
    backlog, env = _backlog(bench, keys)
    with opened(bench) as found:
        start = partial(running_reaper, bench, "--once", env=env, resume=True, command=found.command)
        with start() as process:
            _settled(process, _BATCHES_BEFORE)
            driver = psutil.Process(process.pid)
            dead = _kill([driver, *driver.children(recursive=True)])
        with start() as process:
            seconds = _settled(process, 1) - dead
            _to_the_end(process)
    return _checked(bench, backlog, {"kind": "driver death", "seconds": round(seconds, 2)})


def _backlog(bench: Bench, keys: int) -> tuple[Backlog, dict[str, str]]:
    backlog = Backlog(keys)
    backlog.produce(bench.settings)
    bench.hole.reset()
    return backlog, {
        "PYSPARK_PYTHON": sys.executable,
        "SEXTON_REAPER_INTENTS_PER_TRIGGER": str(backlog.intents // 10),
    }


def _settled(process: subprocess.Popen[str], count: int) -> float:
    """Read until so many micro-batches are settled; return the time of the last, seconds since 1970."""
    assert process.stderr is not None
    other: list[str] = []
    for line in process.stderr:
        if '"event": "micro_batch"' not in line:
            other.append(line)
            continue
        count -= 1
        if not count:
            return float(json.loads(line)["at"])
    raise RuntimeError(f"the reaper ended: {''.join(other[-40:])}")


def _kill(victims: list[psutil.Process]) -> float:
    for victim in victims:
        victim.send_signal(signal.SIGKILL)
    say(f"killed {len(victims)} processes")
    return time.time()


def _to_the_end(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    lines = list(process.stderr)
    if process.wait() != 0:
        Path("/dev/stderr").write_text("".join(lines[-40:]))
        raise RuntimeError(f"the reaper failed: exit code {process.returncode}")


def _checked(bench: Bench, backlog: Backlog, run: Run) -> Run:
    reported = tally(backlog.due_by_intent(), outcomes(bench.settings, backlog.run_id), KEYS_PER_INTENT)
    if reported.missing or reported.wrong:  # what was sent and not settled is receipted once more
        raise RuntimeError(f"{run['kind']}: outcomes: {reported}")
    say(f"{run['kind']}: {run['seconds']} s until the next micro-batch was settled")
    return {**run, "load_average": machine()["load_average"]}


def figures_of(runs: list[Run]) -> dict[str, float]:
    """Return the medians; ratios are taken within each turn."""
    local = [run for run in runs if run["kind"] == "local"]
    there = [run for run in runs if run["kind"] == "cluster"]
    figures = {}
    for name, of in (("cluster.", there), ("cluster.local_", local)):
        figures[f"{name}keys_per_s"] = median([run["keys_per_s"] for run in of])
        figures[f"{name}cpu_us_per_key"] = median([_cpu(run) for run in of])
    pairs = list(zip(there, local, strict=True))
    figures["cluster.ratio_to_local"] = median([a["keys_per_s"] / b["keys_per_s"] for a, b in pairs])
    figures["cluster.cpu_ratio_to_local"] = median([_cpu(b) / _cpu(a) for a, b in pairs])
    for kind in ("worker death", "driver death"):
        found = [run["seconds"] for run in runs if run["kind"] == kind]
        if found:
            figures[f"cluster.{kind.replace(' ', '_')}_s"] = median(found)
    return figures


def _cpu(run: Run) -> float:
    return round(float(sum(run["cpu_us_per_key_by_part"].values())), 3)


def main() -> int:
    """Run all, write the results and return the exit code."""
    parser = argparse.ArgumentParser(description="two workers of one core each, beside local mode")
    parser.add_argument("--keys", type=int, default=4_000_000, help="of each run")
    parser.add_argument("--runs", type=int, default=3, help="turns of both")
    parser.add_argument("--deaths", type=int, default=1, help="how often a worker, and a driver, is killed")
    parser.add_argument("--death-keys", type=int, default=2_000_000, help="of a run in which one is killed")
    args = parser.parse_args()
    described = machine()
    with open_bench("cluster", _PARTITIONS) as bench:
        runs = turns(bench, args)
        for _ in range(args.deaths):
            runs += [worker_death(bench, args.death_keys), driver_death(bench, args.death_keys)]
    return write_results("cluster", runs, figures_of(runs), _TARGETS, described)


if __name__ == "__main__":
    sys.exit(main())
