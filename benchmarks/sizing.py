"""What an installation needs room for: bytes in Kafka for each key and change of a tenant, bytes in Redis.

python -m benchmarks.sizing [--keys 2000000] [--tenants 200000]
"""

from __future__ import annotations

import argparse
import sys

import redis
from benchmarks.harness import Bench, machine, open_bench, say, write_results
from benchmarks.issuer import attach_all
from benchmarks.reaper_run import work_off
from benchmarks.workload import KEYS_PER_INTENT, Backlog

from sexton.schemas import records


def main() -> int:
    """Measure both, write the results and return the exit code."""
    parser = argparse.ArgumentParser(description="room in Kafka and Redis")
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--tenants", type=int, default=200_000)
    args = parser.parse_args()
    described = machine()
    with open_bench("sizing") as bench:
        figures = {**of_tenants(bench, args.tenants), **of_keys(bench, args.keys)}
    return write_results("sizing", [figures], figures, None, described)


def of_tenants(bench: Bench, count: int) -> dict[str, float]:
    """Return the bytes of a tenant in Redis, and of an attach in the log (10,000 tenants in each call)."""
    with redis.Redis.from_url(bench.settings.redis_url.get_secret_value()) as client:
        memory, log = int(client.info("memory")["used_memory"]), on_disk(bench, records.GENERATIONS)
        attach_all(bench, count)
        used = int(client.info("memory")["used_memory"]) - memory
    written = on_disk(bench, records.GENERATIONS) - log
    say(f"{count:,} tenants")
    return {
        "sizing.redis_bytes_per_tenant": round(used / count, 1),
        "sizing.log_bytes_per_attach_in_bulk": round(written / count, 1),
    }


def of_keys(bench: Bench, count: int) -> dict[str, float]:
    """Return the bytes of a key in intents (84 bytes, 100 in each) and of its share of an outcome."""
    backlog = Backlog(count)
    before = {name: on_disk(bench, name) for name in (records.INTENTS, records.OUTCOMES)}
    backlog.produce(bench.settings)
    work_off(bench, count // KEYS_PER_INTENT)
    written = {name: on_disk(bench, name) - before[name] for name in before}
    return {
        "sizing.intent_bytes_per_key": round(written[records.INTENTS] / count, 2),
        "sizing.outcome_bytes_per_key": round(written[records.OUTCOMES] / count, 2),
        "sizing.outcome_bytes_per_intent": round(written[records.OUTCOMES] / count * KEYS_PER_INTENT, 1),
    }


def on_disk(bench: Bench, topic: str) -> int:
    """Return the bytes that a topic's records take on its broker, indexes not counted."""
    name = bench.settings.topic(topic)
    folders = (bench.stack.directory / "kafka").rglob(f"{name}-[0-9]*")
    return sum(part.stat().st_size for folder in folders for part in folder.glob("*.log"))


if __name__ == "__main__":
    sys.exit(main())
