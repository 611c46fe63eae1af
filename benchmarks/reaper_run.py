"""Run the reaper as users run it, as a process, and read what it tells."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from benchmarks.harness import Bench, Parts, Sampler, cpu_per_key

__all__ = ["ReaperRun", "running_reaper", "work_off"]

_WAIT_S = 1200
_READ_TRIES = 20


@dataclass(slots=True)
class ReaperRun:
    """What one run of the reaper over a backlog told: its micro-batches, CPU readings after each, memory."""

    batches: list[dict[str, Any]] = field(default_factory=list)
    cpu: list[dict[str, float]] = field(default_factory=list)
    peak_mib: dict[str, float] = field(default_factory=dict)
    wall_s: float = 0.0

    def total(self, name: str, batches: list[dict[str, Any]] | None = None) -> int:
        """Return the sum of a counter over micro-batches, all unless some are given."""
        return sum(int(batch[name]) for batch in (self.batches if batches is None else batches))

    def deleted(self, batches: list[dict[str, Any]] | None = None) -> int:
        """Return how many keys the micro-batches, all unless some are given, report as deleted."""
        chosen = self.batches if batches is None else batches
        return sum(batch["keys_by_state"].get("deleted", 0) for batch in chosen)

    def steady(self) -> dict[str, Any]:
        """Return the figures between the end of the first micro-batch and the end of the last.

        The first one pays for the start of workers, connections and compiled code. Keys are those that were
        deleted, not all that were judged.
        """
        later = self.batches[1:]
        seconds = self.batches[-1]["at"] - self.batches[0]["at"]
        keys = self.deleted(later)
        stages: dict[str, float] = {}
        for batch in later:
            for stage, spent in batch["stages"].items():
                stages[stage] = stages.get(stage, 0.0) + spent
        return {
            "keys": keys,
            "keys_per_s": round(keys / seconds),
            "cpu_us_per_key_by_part": cpu_per_key(self.cpu[0], self.cpu[-1], keys),
            "task_us_per_key_by_stage": {s: round(spent * 1e6 / keys, 3) for s, spent in stages.items()},
        }


_HERE = (sys.executable, "-m", "sexton.deploy.main", "reaper", "run")


@contextmanager
def running_reaper(
    bench: Bench,
    *arguments: str,
    env: dict[str, str] | None = None,
    resume: bool = False,
    command: Sequence[str] = _HERE,
) -> Iterator[subprocess.Popen[str]]:
    """Start `sexton reaper run`, or another command of its kind, on a fresh checkpoint, or where the last one
    ended with `resume`.

    Ends it by SIGTERM afterwards if it still runs.
    """
    checkpoint = bench.directory / "checkpoint"
    if not resume:
        shutil.rmtree(checkpoint, ignore_errors=True)
    settings = {"SEXTON_CHECKPOINT": str(checkpoint), **(env or {})}
    process = subprocess.Popen(
        [*command, *arguments],
        env=bench.environment(**settings),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)
        assert process.stderr is not None
        process.stderr.close()


def work_off(
    bench: Bench,
    intents: int,
    env: dict[str, str] | None = None,
    *,
    least_batches: int = 2,
    resume: bool = False,
    command: Sequence[str] = _HERE,
    others: Sequence[int] = (),
) -> ReaperRun:
    """Run the reaper with `--once` over `intents` that are there; raises RuntimeError if it fails.

    `others` are the pids of processes that work for it and are not below it.
    """
    run = ReaperRun()
    # The default but for backlogs so small that there would be no steady state between first and last.
    env = {"SEXTON_REAPER_INTENTS_PER_TRIGGER": str(min(20_000, intents // 5)), **(env or {})}
    started = time.monotonic()
    other: list[str] = []
    with running_reaper(bench, "--once", env=env, resume=resume, command=command) as process:
        parts = Parts(bench, process.pid, "driver", tuple(others))
        with Sampler(parts) as sampler:
            assert process.stderr is not None
            for line in process.stderr:
                if '"event": "micro_batch"' in line:
                    run.batches.append(json.loads(line))
                    run.cpu.append(_cpu_seconds(parts))
                else:
                    other.append(line)
        code = process.wait(_WAIT_S)
    run.wall_s = round(time.monotonic() - started, 1)
    run.peak_mib = {part: round(size) for part, size in sampler.peak_mib.items()}
    if code != 0 or len(run.batches) < least_batches:
        Path("/dev/stderr").write_text("".join(other[-40:]))
        raise RuntimeError(f"the reaper failed: exit code {code}, micro-batches {len(run.batches)}")
    return run


def _cpu_seconds(parts: Parts) -> dict[str, float]:
    """Return a reading, taken again while short-lived children (chmod of the checkpoint) come and go."""
    for _ in range(_READ_TRIES):
        try:
            return parts.cpu_seconds()
        except psutil.NoSuchProcess:
            continue
    return parts.cpu_seconds()
