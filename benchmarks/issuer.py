"""The issuer: subjects validated, attaching and re-attaching, Redis against MGET, start with many tenants.

python -m benchmarks.issuer [--tenants 100000] [--attaches 500] [--runs 3] [--large 1000000] [--tail 100000]
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from typing import Any

import httpx
import psutil
from benchmarks.harness import Bench, Target, machine, median, open_bench, say, write_results
from benchmarks.issuer_scale import attach_at_rate, compare_with_mget, re_attach_all, start_from_snapshot

from sexton.issuer.client import IssuerClient, Subject
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.validate import Validate
from sexton.issuer.service import Service
from sexton.schemas.settings import Settings

_PER_CALL = 10_000
_TARGETS = {
    "issuer.http_100k_s": Target("<=", 1.0, "s"),
    "issuer.ratio_to_mget": Target("<=", 2.0),
    "issuer.reattach_10k_s": Target("<=", 1.0, "s"),
}


def attach_all(bench: Bench, count: int, node: str = "node-a", first: int = 0) -> float:
    """Attach tenants 10,000 in a call; return the seconds it took."""
    begun = time.perf_counter()
    with httpx.Client(base_url=bench.settings.issuer_url, timeout=60, trust_env=False) as client:
        for start in range(first, first + count, _PER_CALL):
            names = [tenant_name(n) for n in range(start, min(start + _PER_CALL, first + count))]
            client.post("/v1/attach", json={"node": node, "tenants": names}).raise_for_status()
    return time.perf_counter() - begun


def validate_all(client: IssuerClient, count: int, at_least: int) -> float:
    """Validate one subject of every tenant, 10,000 in a call; return the seconds it took."""
    subjects = [Subject(tenant_name(n), 1, n % 8) for n in range(count)]
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


def validate_in_process(settings: Settings, count: int, at_least: int, runs: int) -> float:
    """Validate one subject of every tenant without HTTP; return the median of the seconds it took."""
    service = Service(settings)
    try:
        service.ready.wait(120)
        subjects = [Subject(tenant_name(n), 1, n % 8) for n in range(count)]
        calls = [Validate(subjects[at : at + _PER_CALL], at_least) for at in range(0, count, _PER_CALL)]
        times = []
        for _ in range(runs):
            begun = time.perf_counter()
            for call in calls:
                service.authority().answer(call, Deadline.after(30))
            times.append(time.perf_counter() - begun)
        return median(times)
    finally:
        service.stop()


def cpu_of_chain(bench: Bench) -> float:
    """Return the CPU seconds that this program, the issuer and Redis have used: these wait for each other."""
    pids = bench.stack.pid("issuer"), bench.stack.pid("redis")
    return time.process_time() + sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)


def one_run(bench: Bench, client: IssuerClient, args: argparse.Namespace, number: int) -> dict[str, float]:
    """Measure the calls once."""
    at_least = client.barrier().log_offset
    idle = attach_times(client, args.attaches, f"idle-{number}")
    loaded = attach_at_load(bench, args.attaches // 5, args.tenants, at_least, f"load-{number}")
    used = cpu_of_chain(bench)
    validated_s = validate_all(client, args.tenants, at_least)
    run = {
        "validate_all_s": validated_s,
        "validate_all_cpu_s": cpu_of_chain(bench) - used,
        "attach_idle_p50_ms": idle[len(idle) // 2],
        "attach_idle_p99_ms": idle[len(idle) * 99 // 100],
        "attach_at_load_p99_ms": loaded[len(loaded) * 99 // 100],
        "reattach_10k_s": re_attach_all(client, "node-10k", _PER_CALL),
        **attach_at_rate(bench.settings.issuer_url, 500, 8, f"rate-{number}"),
    }
    say(str({name: round(value, 3) for name, value in run.items()}))
    return run


def main() -> int:
    """Run all, write the results and return the exit code."""
    parser = argparse.ArgumentParser(description="the issuer")
    parser.add_argument("--tenants", type=int, default=100_000)
    parser.add_argument("--attaches", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--large", type=int, default=1_000_000, help="tenants of the start; 0 leaves it out")
    parser.add_argument("--tail", type=int, default=100_000, help="events after the snapshot")
    args = parser.parse_args()
    described = machine()
    runs: list[dict[str, Any]] = []
    with open_bench("issuer") as bench, IssuerClient(bench.settings.issuer_url, timeout_s=60) as client:
        attached_s = attach_all(bench, args.tenants)
        attach_all(bench, _PER_CALL, "node-10k", args.tenants)
        runs = [one_run(bench, client, args, number) for number in range(args.runs)]
        at_least = client.barrier().log_offset
        in_process = validate_in_process(bench.settings, args.tenants, at_least, args.runs)
        boundary = compare_with_mget(bench.settings)
        started = start_from_snapshot(bench, args.large, args.tail) if args.large else {}
    middle = {name: median([run[name] for run in runs]) for name in runs[0]}
    figures = {
        "issuer.validate_100k_s": in_process * 100_000 / args.tenants,
        "issuer.http_100k_s": middle["validate_all_s"] * 100_000 / args.tenants,
        "issuer.http_100k_cpu_s": middle["validate_all_cpu_s"] * 100_000 / args.tenants,
        "issuer.ratio_to_mget": boundary["lua_100k_s"] / boundary["mget_100k_s"],
        "issuer.attach_p99_ms": middle["attach_500_p99_ms"],
        "issuer.attach_p50_ms": middle["attach_500_p50_ms"],
        "issuer.attach_rate_per_s": middle["attach_rate_per_s"],
        "issuer.attach_idle_p50_ms": middle["attach_idle_p50_ms"],
        "issuer.attach_idle_p99_ms": middle["attach_idle_p99_ms"],
        "issuer.attach_at_load_p99_ms": middle["attach_at_load_p99_ms"],
        "issuer.attach_100k_in_bulk_s": attached_s * 100_000 / args.tenants,
        "issuer.reattach_10k_s": middle["reattach_10k_s"],
        **{f"issuer.{name}": value for name, value in boundary.items()},
        **{f"issuer.{_STARTED.get(name, name)}": value for name, value in started.items()},
    }
    return write_results("issuer", runs, figures, _TARGETS, described)


_STARTED = {"start_s": "start_1m_tenants_s", "start_redis_empty_s": "start_1m_tenants_redis_empty_s"}


def tenant_name(number: int) -> str:
    """Return the name of a tenant."""
    return f"tenant-{number:06d}"


if __name__ == "__main__":
    sys.exit(main())
