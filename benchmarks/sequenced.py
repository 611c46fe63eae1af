"""Sequenced metadata: many databases collected end to end, each request counted, and what a check costs.

python -m benchmarks.sequenced [--databases 100] [--manifests 1000] [--creates 500] [--runs 1]

The store is the recorder of the tests: its conditional writes are real, and it keeps every request. The
latency of a create is measured on versitygw where that is built. Both are compared with what has no
boundary, in the same run: list and delete by boto3, and a bare PUT with If-None-Match.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import psutil
from benchmarks.harness import BUCKET, Bench, Target, machine, median, open_bench, say, write_results
from benchmarks.reaper_run import work_off
from botocore.config import Config
from tests.support.s3_recorder import Recorded, S3Recorder
from tests.support.s3_stores import STORES, binary_of
from tests.support.stores import VERSITYGW

from sexton.producers import sequenced
from sexton.schemas.sequenced import Namespace

_AGE_S = 48 * 3600.0
_SMALL = 10  # times fewer databases, to see what memory depends on
_POLL_S = 0.02
_TARGETS = {
    "sequenced.collector_lists_per_database": Target("<=", 2.0),
    "sequenced.collector_reads_per_database": Target("<=", 1.0),
    "sequenced.reaper_lists_per_database": Target("<=", 1.0),
    "sequenced.reaper_reads_per_database": Target("<=", 1.0),
    "sequenced.reaper_writes_per_database": Target("<=", 1.0),
    "sequenced.create_gets": Target("<=", 1.0),
}


def main() -> int:
    """Run all, write the results and return the exit code."""
    parser = argparse.ArgumentParser(description="sequenced metadata")
    parser.add_argument("--databases", type=int, default=100)
    parser.add_argument("--manifests", type=int, default=1000, help="of each database")
    parser.add_argument("--creates", type=int, default=500)
    parser.add_argument("--runs", type=int, default=1)
    args = parser.parse_args()
    described, runs = machine(), list[dict[str, float]]()
    for _ in range(args.runs):
        with open_bench("sequenced") as bench, S3Recorder(plain=True) as s3:
            run = collected(bench, s3, args.databases, args.manifests)
        run |= created(args.creates)
        say(str({name: round(value, 3) for name, value in run.items()}))
        runs.append(run)
    figures = {f"sequenced.{name}": median([run[name] for run in runs]) for name in runs[0]}
    return write_results("sequenced", runs, figures, _TARGETS, described)


# --- collecting --------------------------------------------------------------------------------------------


def collected(bench: Bench, s3: S3Recorder, databases: int, manifests: int) -> dict[str, float]:
    """Measure collector and reaper over so many databases, then the same deletion without a boundary.

    Raises RuntimeError unless the newest manifest of each database is all that is left of it.
    """
    garbage = databases * (manifests - 1)
    env = {**s3.environ, "SEXTON_S3_ENDPOINT_URL": s3.url, "SEXTON_REPORTS": str(bench.directory / "reports")}
    s3.create_bucket(BUCKET)
    small = max(1, databases // _SMALL)
    fill(s3, "small", small, manifests)
    small_mib, _, _ = collect(bench, env, s3, "small")
    fill(s3, "all", databases, manifests)
    run = {"databases": float(databases), "manifests": float(manifests), "collector_small_mib": small_mib}
    run["collector_mib"], run["collector_s"], made = collect(bench, env, s3, "all", "--emit")
    run |= per_database("collector", made, databases)
    with asked(s3) as made:
        reaper = work_off(bench, databases, env, least_batches=1)
    run["reaper_s"], run["reaper_probe_requests"] = reaper.wall_s, float(sum(map(_is_probe, made)))
    run |= per_database("reaper", made, databases)
    if reaper.deleted() != garbage:
        raise RuntimeError(f"the reaper reports {reaper.deleted()} of {garbage} files as deleted")
    check(s3, "all", databases, manifests)
    return run | plain(s3, databases, manifests)


def fill(s3: S3Recorder, folder: str, databases: int, manifests: int) -> None:
    """Write the manifests of databases, as if two days ago."""
    keys = itertools.chain.from_iterable(
        (space.key(id) for id in range(1, manifests + 1)) for space in spaces(folder, databases)
    )
    s3.buckets.fill(BUCKET, dict.fromkeys(keys, b"state"), age_s=_AGE_S)


def spaces(folder: str, databases: int) -> Iterator[Namespace]:
    """Yield the namespace of each database's manifests."""
    return (Namespace(f"{folder}/db-{number:05d}", "manifest") for number in range(databases))


def collect(
    bench: Bench, env: Mapping[str, str], s3: S3Recorder, folder: str, *arguments: str
) -> tuple[float, float, list[Recorded]]:
    """Run the collector as a process; return its peak memory in MiB, its seconds and its requests."""
    command = [sys.executable, "-m", "sexton.deploy.main", "collect", "sequenced", "--bucket", BUCKET]
    command += ["--prefix", f"{folder}/", "--checkpoints", "none", "--max-share", "1.0", "--format", "json"]
    begun, peak = time.perf_counter(), 0.0
    with asked(s3) as made, tempfile.TemporaryFile() as out:
        process = subprocess.Popen([*command, *arguments], env=bench.environment(**env), stdout=out)
        running = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                peak = max(peak, running.memory_info().rss / 2**20)
            except psutil.NoSuchProcess:
                break
            time.sleep(_POLL_S)
        took = time.perf_counter() - begun
        out.seek(0)
        report = json.loads(out.readline())["report"] if process.wait() == 0 else {}
    if report.get("state") != ("emitted" if arguments else "reported"):
        raise RuntimeError(f"the collector ended with {process.returncode}: {report}")
    return peak, took, made


@contextmanager
def asked(s3: S3Recorder) -> Iterator[list[Recorded]]:
    """Gather the requests that are made meanwhile."""
    before, made = len(s3.requests), list[Recorded]()
    yield made
    made += s3.requests[before:]


def per_database(who: str, made: Iterable[Recorded], databases: int) -> dict[str, float]:
    """Return how many requests of each kind a database has cost, those of probes left out."""
    counts = Counter(_kind(each) for each in made if not _is_probe(each))
    kinds = ("lists", "reads", "writes", "deletes", "others")
    return {f"{who}_{kind}_per_database": counts[kind] / databases for kind in kinds}


def _is_probe(request: Recorded) -> bool:
    return request.is_probe or not (request.key or request.query)


def _kind(request: Recorded) -> str:
    if request.is_delete_objects:
        return "deletes"
    if "list-type" in request.query:
        return "lists"
    return {"GET": "reads", "PUT": "writes"}.get(request.method, "others")


def check(s3: S3Recorder, folder: str, databases: int, manifests: int) -> None:
    """Raise RuntimeError unless exactly the newest manifests and their boundaries are left."""
    due = {space.key(manifests) for space in spaces(folder, databases)}
    due |= {space.boundary_key for space in spaces(folder, databases)}
    left = {key for key in s3.objects(BUCKET) if key.startswith(f"{folder}/")}
    if left != due:
        raise RuntimeError(f"left by mistake {len(left - due)}, deleted by mistake {len(due - left)}")


def plain(s3: S3Recorder, databases: int, manifests: int) -> dict[str, float]:
    """Measure the deletion that no stalled writer survives: list each database, delete all but the newest."""
    fill(s3, "plain", databases, manifests)
    client = client_of(s3.url, s3.environ)
    begun = time.perf_counter()
    with asked(s3) as made:
        for space in spaces("plain", databases):
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=space.folder)
            keys = [each["Key"] for page in pages for each in page["Contents"]][:-1]
            for start in range(0, len(keys), 1000):
                batch = [{"Key": key} for key in keys[start : start + 1000]]
                client.delete_objects(Bucket=BUCKET, Delete={"Objects": batch, "Quiet": True})
    return {"plain_s": time.perf_counter() - begun, **per_database("plain", made, databases)}


# --- creating ----------------------------------------------------------------------------------------------


def created(creates: int) -> dict[str, float]:
    """Measure creates with the check of the boundary, and bare ones in turn with them."""
    with S3Recorder(plain=True) as s3:
        s3.create_bucket(BUCKET, {Namespace("db", "manifest").boundary_key: b"0"})
        with asked(s3) as made:
            in_turns(client_of(s3.url, s3.environ), creates)
        gets = sum(each.method == "GET" and each.key != "" for each in made)
    run = {"create_gets": gets / creates}
    with tempfile.TemporaryDirectory(prefix="sexton-bench-sequenced-") as folder:
        store = "recorder" if binary_of(VERSITYGW) is None else "versitygw"
        with STORES[store][0](Path(folder)) as started:
            client = client_of(started.settings.endpoint_url, started.environ)
            client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key=Namespace("db", "manifest").boundary_key, Body=b"0")
            checked, bare = in_turns(client, creates)
    for name, seconds in (("create", checked), ("bare_put", bare)):
        seconds.sort()
        run[f"{name}_p50_ms"] = seconds[len(seconds) // 2] * 1000
        run[f"{name}_p99_ms"] = seconds[len(seconds) * 99 // 100] * 1000
    run["create_ratio_to_bare_put"] = run["create_p50_ms"] / run["bare_put_p50_ms"]
    return run


def in_turns(client: Any, creates: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each checked create, and of each bare one."""
    writer, bare = sequenced(client, BUCKET, "db", "manifest"), Namespace("bare", "manifest")
    calls: Sequence[Callable[[int], object]] = (
        lambda id: writer.create(id, b"state"),
        lambda id: client.put_object(Bucket=BUCKET, Key=bare.key(id), Body=b"state", IfNoneMatch="*"),
    )
    took: tuple[list[float], list[float]] = [], []
    for id in range(1, creates + 1):
        for call, seconds in zip(calls, took, strict=True):
            begun = time.perf_counter()
            call(id)
            seconds.append(time.perf_counter() - begun)
    return took


def client_of(url: str | None, environ: Mapping[str, str]) -> Any:
    """Return a boto3 client that sends each request once."""
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=environ["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environ["AWS_SECRET_ACCESS_KEY"],
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
    )


if __name__ == "__main__":
    sys.exit(main())
