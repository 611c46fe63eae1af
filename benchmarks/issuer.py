"""The issuer over HTTP: 100,000 subjects validated in calls of 10,000, and attaching, idle and at load.

python -m benchmarks.issuer [--tenants 100000] [--attaches 500] [--runs 3]
"""

from __future__ import annotations

import argparse
import threading
import time
from typing import Any

import httpx
from benchmarks.harness import Bench, machine, median, open_bench, say, write_results

from sexton.issuer.client import IssuerClient, Subject

_PER_CALL = 10_000


def attach_all(bench: Bench, count: int) -> float:
    """Attach tenants 10,000 in a call; return the seconds it took."""
    begun = time.perf_counter()
    with httpx.Client(base_url=bench.settings.issuer_url, timeout=60, trust_env=False) as client:
        for start in range(0, count, _PER_CALL):
            names = [_name(n) for n in range(start, min(start + _PER_CALL, count))]
            client.post("/v1/attach", json={"node": "node-a", "tenants": names}).raise_for_status()
    return time.perf_counter() - begun


def validate_all(client: IssuerClient, count: int, at_least: int) -> float:
    """Validate one subject of every tenant, 10,000 in a call; return the seconds it took."""
    subjects = [Subject(_name(n), 1, n % 8) for n in range(count)]
    begun = time.perf_counter()
    for start in range(0, count, _PER_CALL):
        chunk = subjects[start : start + _PER_CALL]
        answer = client.validate(chunk, at_least=at_least)
        if len(answer.windows) != len(chunk):
            raise RuntimeError(f"subjects without an answer: {len(chunk) - len(answer.windows)}")
    return time.perf_counter() - begun


def attach_times(client: IssuerClient, count: int, prefix: str) -> list[float]:
    """Attach one tenant after another; return the milliseconds of each call, sorted."""
    times = []
    for number in range(count):
        begun = time.perf_counter()
        client.attach("node-b", f"{prefix}-{number:05d}")
        times.append((time.perf_counter() - begun) * 1000)
    return sorted(times)


def attach_at_load(bench: Bench, count: int, tenants: int, at_least: int, prefix: str) -> list[float]:
    """Attach while another client validates without a pause."""
    done = threading.Event()

    def load() -> None:
        with IssuerClient(bench.settings.issuer_url, timeout_s=60) as client:
            while not done.is_set():
                validate_all(client, min(tenants, _PER_CALL), at_least)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        with IssuerClient(bench.settings.issuer_url, timeout_s=60) as client:
            return attach_times(client, count, prefix)
    finally:
        done.set()
        thread.join()


def main() -> None:
    """Run all and write the results."""
    parser = argparse.ArgumentParser(description="the issuer over HTTP")
    parser.add_argument("--tenants", type=int, default=100_000)
    parser.add_argument("--attaches", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    described = machine()
    runs: list[dict[str, Any]] = []
    with open_bench("issuer") as bench, IssuerClient(bench.settings.issuer_url, timeout_s=60) as client:
        attached_s = attach_all(bench, args.tenants)
        at_least = client.barrier().log_offset
        for number in range(args.runs):
            idle = attach_times(client, args.attaches, f"idle-{number}")
            loaded = attach_at_load(bench, args.attaches // 5, args.tenants, at_least, f"load-{number}")
            run = {
                "validate_all_s": round(validate_all(client, args.tenants, at_least), 3),
                "attach_p50_ms": round(idle[len(idle) // 2], 2),
                "attach_p99_ms": round(idle[len(idle) * 99 // 100], 2),
                "attach_at_load_p99_ms": round(loaded[len(loaded) * 99 // 100], 2),
            }
            say(str(run))
            runs.append(run)
    figures = {
        "issuer.http_100k_s": median([run["validate_all_s"] for run in runs]) * 100_000 / args.tenants,
        "issuer.attach_p50_ms": median([run["attach_p50_ms"] for run in runs]),
        "issuer.attach_p99_ms": median([run["attach_p99_ms"] for run in runs]),
        "issuer.attach_at_load_p99_ms": median([run["attach_at_load_p99_ms"] for run in runs]),
        "issuer.attach_100k_in_bulk_s": attached_s * 100_000 / args.tenants,
    }
    write_results("issuer", runs, figures, described=described)


def _name(number: int) -> str:
    return f"tenant-{number:06d}"


if __name__ == "__main__":
    main()
