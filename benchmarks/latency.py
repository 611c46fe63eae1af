"""From intent to outcome at a tenth of the measured load, with a reaper that runs continuously.

    python -m benchmarks.latency [--keys-per-s N] [--seconds 30] [--windows 3]

An intent's time is from the call of the SDK to its outcome in a consumer's hand. The load is a tenth of
`pipeline.keys_per_s` in the results, else 25,000 keys/s. The windows follow one another on one reaper.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness import BUCKET, RESULTS, Bench, Target, machine, median, open_bench, say, write_results
from benchmarks.reaper_run import running_reaper
from benchmarks.workload import KEYS_PER_INTENT, key_batch
from confluent_kafka import Consumer, TopicPartition

from sexton.producers import Sexton
from sexton.schemas import records

_WARM_UP_S = 25.0
_DRAIN_S = 30.0
_TENANTS = 50
_TRIGGER_S = 0.0


@dataclass(slots=True)
class Outcomes:
    """Reads the outcomes topic from its end and notes when each intent's outcome came."""

    bench: Bench
    seen: dict[str, float] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def read(self) -> None:
        """Read until stopped."""
        settings = self.bench.settings
        consumer = Consumer(
            settings.kafka(**{"group.id": "latency", "enable.auto.commit": False, "fetch.wait.max.ms": 20})
        )
        topic = settings.topic(records.OUTCOMES)
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        while not self._stop.is_set():
            for message in consumer.consume(1000, timeout=0.02):
                key = message.key()
                if isinstance(key, bytes):
                    self.seen.setdefault(key.decode(), time.monotonic())
        consumer.close()

    def stop(self) -> None:
        """Stop reading."""
        self._stop.set()


def emit(bench: Bench, rate: float, seconds: float) -> dict[str, float]:
    """Emit intents at a steady rate through the SDK and return when each was asked for, by intent id."""
    asked: dict[str, float] = {}
    with Sexton.connect("node-latency", bench.settings) as sexton:
        tenants = [sexton.attach(f"latency-{number:04d}") for number in range(_TENANTS)]
        begun = time.monotonic()
        for number in range(int(rate * seconds)):
            wait = begun + number / rate - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            tenant = tenants[number % _TENANTS]
            keys = key_batch(f"{tenant.name}-padded", number * KEYS_PER_INTENT, tenant.generation)
            now = time.monotonic()
            for intent_id in tenant.delete(BUCKET, keys).intent_ids:
                asked[intent_id] = now
    return asked


def main() -> int:
    """Run all windows, write the results and return the exit code."""
    parser = argparse.ArgumentParser(description="intent to outcome")
    parser.add_argument("--keys-per-s", type=float, default=_tenth_of_measured())
    parser.add_argument("--seconds", type=float, default=30.0, help="of one window")
    parser.add_argument("--windows", type=int, default=3)
    args = parser.parse_args()
    described = machine()
    rate = args.keys_per_s / KEYS_PER_INTENT
    with open_bench("latency") as bench:
        outcomes = Outcomes(bench)
        reader = threading.Thread(target=outcomes.read)
        reader.start()
        try:
            with running_reaper(bench, env={"SEXTON_REAPER_TRIGGER_S": str(_TRIGGER_S)}) as process:
                drain = threading.Thread(target=_discard, args=(process.stderr,), daemon=True)
                drain.start()
                say(f"latency: {args.keys_per_s:,.0f} keys/s")
                asked = emit(bench, rate, _WARM_UP_S + args.windows * args.seconds)
                deadline = time.monotonic() + _DRAIN_S
                while len(outcomes.seen) < len(asked) and time.monotonic() < deadline:
                    time.sleep(0.1)
        finally:
            outcomes.stop()
            reader.join()
    missing = len(asked.keys() - outcomes.seen.keys())
    if missing:
        raise RuntimeError(f"intents without an outcome: {missing}")
    runs = _windows(asked, outcomes.seen, args.windows, args.seconds)
    figures = {
        "latency.p50_s": median([run["p50_s"] for run in runs]),
        "latency.p99_s": median([run["p99_s"] for run in runs]),
        "latency.max_s": max(run["max_s"] for run in runs),
        "latency.load_keys_per_s": args.keys_per_s,
    }
    targets = {"latency.p99_s": Target("<=", _TRIGGER_S + 2, "s")}
    return write_results("latency", runs, figures, targets, described)


def _windows(
    asked: dict[str, float], seen: dict[str, float], count: int, seconds: float
) -> list[dict[str, Any]]:
    begun = min(asked.values()) + _WARM_UP_S
    runs = []
    for window in range(count):
        first = begun + window * seconds
        times = sorted(seen[i] - at for i, at in asked.items() if first <= at < first + seconds)
        runs.append(
            {
                "intents": len(times),
                "p50_s": round(times[len(times) // 2], 3),
                "p99_s": round(times[len(times) * 99 // 100], 3),
                "max_s": round(times[-1], 3),
            }
        )
    return runs


def _discard(lines: Any) -> None:
    for _ in lines:
        pass


def _tenth_of_measured() -> float:
    result = RESULTS / "pipeline.json"
    if not result.is_file():
        return 25_000.0
    return float(json.loads(result.read_text())["figures"]["pipeline.keys_per_s"]) / 10


if __name__ == "__main__":
    sys.exit(main())
