"""End to end: a backlog worked off by the reaper, and by a plain consumer, in turns on the same topic.

    python -m benchmarks.pipeline [--keys 10000000] [--plain-keys 2000000] [--runs 3]

Every run of the reaper starts from the first record with a fresh checkpoint. It fails unless the black hole
was sent exactly the keys that were due: no stale one, none missing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

import psutil
from benchmarks.blackhole import verify
from benchmarks.harness import (
    Bench,
    Parts,
    Target,
    cpu_per_key,
    machine,
    median,
    open_bench,
    say,
    write_results,
)
from benchmarks.plain_consumer import WARM_UP_KEYS
from benchmarks.reaper_run import work_off
from benchmarks.workload import Backlog, attach_all, intent, write

from sexton.schemas import records

_PARTITIONS = 8
_READ_EVERY_S = 0.25
TARGETS = {
    "pipeline.keys_per_s": Target(">=", 250_000, "keys/s"),
    "pipeline.ratio_to_plain_consumer": Target(">=", 5),
    "pipeline.batch_fill": Target(">=", 0.99),
    # One call for each task, which has a little less than 10,000 subjects.
    "pipeline.issuer_calls_per_100k_subjects": Target("<=", 10.5),
}


def reaper(bench: Bench, backlog: Backlog) -> dict[str, Any]:
    """Run the reaper once over the backlog; raises RuntimeError unless exactly the due keys were sent."""
    bench.hole.reset()
    run = work_off(bench, backlog.intents)
    steady = run.steady()
    say(f"reaper: {steady['keys_per_s']:,} keys/s; comparing the sets of keys")
    requests = bench.hole.stats()["requests"]
    sent = verify(bench.hole.kept, backlog.due())
    if not sent.exact:
        raise RuntimeError(f"not the keys due: missing {sent.missing}, unexpected {sent.unexpected}")
    subjects = run.total("subjects")
    return {
        "kind": "reaper",
        **steady,
        "batches": len(run.batches),
        "keys_deleted": sent.keys - sent.duplicated,
        "keys_deleted_twice": sent.duplicated,
        "keys_hash": sent.hash,
        "batch_fill": round(sent.keys / (1000 * requests), 5),
        "issuer_calls": run.total("issuer_calls"),
        "subjects": subjects,
        "peak_mib": run.peak_mib,
        "wall_s": run.wall_s,
        "load_average": machine()["load_average"],
    }


def plain_consumer(bench: Bench, keys: int) -> dict[str, Any]:
    """Run the plain consumer over the first part of the same topic."""
    bench.hole.reset()
    command = [sys.executable, "-m", "benchmarks.plain_consumer", "--keys", str(keys)]
    command += ["--brokers", bench.settings.kafka_bootstrap_servers]
    command += ["--topic", bench.settings.topic(records.INTENTS), "--endpoint", bench.hole.url]
    readings: list[tuple[int, dict[str, float]]] = []
    with subprocess.Popen(command, env=bench.environment(), stdout=subprocess.PIPE, text=True) as process:
        parts = Parts(bench, process.pid, "consumers")
        while process.poll() is None:
            time.sleep(_READ_EVERY_S)
            try:
                # Keys and CPU together, and only while all of its processes live.
                reading = (int(bench.hole.stats()["keys"]), parts.cpu_seconds())
            except psutil.NoSuchProcess:
                continue
            if reading[0] >= WARM_UP_KEYS and process.poll() is None:
                readings.append(reading)
        output = process.stdout.read() if process.stdout else ""
    if process.returncode != 0:
        raise RuntimeError("the plain consumer failed")
    done = json.loads(output)
    seconds = max(each["ended"] for each in done) - min(each["started"] for each in done)
    rate = round(sum(each["keys"] for each in done) / seconds)
    say(f"plain consumer: {rate:,} keys/s")
    first, last = readings[0], _last_working(readings, keys)
    stats = bench.hole.stats()
    return {
        "kind": "plain consumer",
        "keys": last[0] - first[0],
        "keys_per_s": rate,
        "cpu_us_per_key_by_part": cpu_per_key(first[1], last[1], last[0] - first[0]),
        "batch_fill": round(stats["keys"] / (1000 * stats["requests"]), 5),
        "load_average": machine()["load_average"],
    }


def _last_working(readings: list[tuple[int, dict[str, float]]], keys: int) -> tuple[int, dict[str, float]]:
    """Return the last reading before the end: afterwards processes go, and their CPU seconds with them."""
    return [reading for reading in readings if reading[0] < keys * 0.97][-1]


def many_subjects(count: int) -> dict[str, Any]:
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


def main() -> None:
    """Run both in turns and write the results."""
    parser = argparse.ArgumentParser(description="end to end, against a plain consumer")
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--plain-keys", type=int, default=2_000_000, help="steady: it need not see all")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--subjects", type=int, default=78_000, help="of the run that counts issuer calls")
    args = parser.parse_args()
    described = machine()
    runs: list[dict[str, Any]] = []
    with open_bench("pipeline", _PARTITIONS) as bench:
        backlog = Backlog(args.keys)
        backlog.produce(bench.settings)
        for _ in range(args.runs):
            runs.append(reaper(bench, backlog))
            runs.append(plain_consumer(bench, min(args.plain_keys, args.keys)))
    ours, plain = runs[0::2], runs[1::2]
    judged = many_subjects(args.subjects)
    figures = {
        "pipeline.keys_per_s": median([run["keys_per_s"] for run in ours]),
        "pipeline.cpu_us_per_key": median([_total(run) for run in ours]),
        "pipeline.plain_consumer_keys_per_s": median([run["keys_per_s"] for run in plain]),
        "pipeline.plain_consumer_cpu_us_per_key": median([_total(run) for run in plain]),
        "pipeline.ratio_to_plain_consumer": median(
            [a["keys_per_s"] / b["keys_per_s"] for a, b in zip(ours, plain, strict=True)]
        ),
        "pipeline.cpu_ratio_to_plain_consumer": median(
            [_total(b) / _total(a) for a, b in zip(ours, plain, strict=True)]
        ),
        "pipeline.batch_fill": median([run["batch_fill"] for run in ours]),
        "pipeline.issuer_calls_per_100k_subjects": judged["issuer_calls"] * 100_000 / judged["subjects"],
    }
    for part in ours[0]["cpu_us_per_key_by_part"]:
        spent = [run["cpu_us_per_key_by_part"][part] for run in ours]
        figures[f"pipeline.cpu_us_per_key.{part.replace(' ', '_')}"] = median(spent)
    write_results("pipeline", [*runs, judged], figures, TARGETS, described)


def _total(run: dict[str, Any]) -> float:
    return round(float(sum(run["cpu_us_per_key_by_part"].values())), 3)


if __name__ == "__main__":
    main()
