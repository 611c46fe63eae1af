"""How fast the SDK emits, against bare fastavro and confluent-kafka with the same records, in turns.

python -m benchmarks.sdk [--intents 10000] [--runs 5]

Both encode the same keys with the same producer properties and end when Kafka has acknowledged everything.
The SDK also checks every key, remembers every name and keeps a future for each intent.
"""

from __future__ import annotations

import argparse
import io
import sys
import time
import uuid
from datetime import UTC, datetime
from typing import Any

import fastavro
from benchmarks.harness import BUCKET, Bench, Target, machine, median, open_bench, say, write_results
from benchmarks.workload import KEYS_PER_INTENT, key_batch
from confluent_kafka import Producer

from sexton.producers import Sexton
from sexton.schemas import events, records
from sexton.schemas.codec import schema_of

_TENANT = "sdk-bench-tenant-0001"


def through_sdk(bench: Bench, batches: list[list[str]]) -> tuple[float, float]:
    """Emit through the SDK; return (wall seconds, CPU seconds)."""
    with Sexton.connect("node-sdk", bench.settings) as sexton:
        tenant = sexton.attach(_TENANT)
        receipt = None
        begun, cpu = time.perf_counter(), time.process_time()
        for keys in batches:
            receipt = tenant.delete(BUCKET, keys)
        assert receipt is not None
        sexton.flush(120)
        receipt.wait(timeout=60)
        return time.perf_counter() - begun, time.process_time() - cpu


def raw(bench: Bench, batches: list[list[str]]) -> tuple[float, float]:
    """Emit with fastavro and a producer alone; return (wall seconds, CPU seconds)."""
    schema, topic = schema_of(events.DeletionIntent), bench.settings.topic(records.INTENTS)
    producer = Producer(
        bench.settings.kafka(
            **{
                "acks": "all",
                "enable.idempotence": True,
                "partitioner": "murmur2",
                "linger.ms": 5,
                "compression.type": "lz4",
            }
        )
    )
    failed: list[Any] = []

    def landed(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    guards = [("sexton.GenerationGuard", _guard())]
    begun, cpu = time.perf_counter(), time.process_time()
    for keys in batches:
        intent_id = str(uuid.uuid4())
        out = io.BytesIO()
        out.write(schema.header)
        action = {"bucket": BUCKET, "phases": [keys], "mode": "hide", "bypass_governance": False}
        intent = {
            "intent_id": intent_id,
            "tenant": _TENANT,
            "emitted_at": datetime.now(UTC),
            "emitter": "node-sdk",
            "guards": guards,
            "action": ("sexton.DeleteObjects", action),
        }
        fastavro.schemaless_writer(out, schema.parsed, intent)
        headers: list[tuple[str, str | bytes | None]] = [
            ("sexton-type", b"DeletionIntent"),
            ("intent-id", intent_id.encode()),
            ("tenant", _TENANT.encode()),
        ]
        producer.produce(topic, out.getvalue(), _TENANT.encode(), headers=headers, on_delivery=landed)
        producer.poll(0)
    producer.flush(120)
    if failed:
        raise RuntimeError(f"not delivered: {failed[0]}")
    return time.perf_counter() - begun, time.process_time() - cpu


def _guard() -> dict[str, Any]:
    return {"tenant": _TENANT, "generation": 1, "node": None, "node_generation": None}


def main() -> int:
    """Run both in turns, write the results and return the exit code."""
    parser = argparse.ArgumentParser(description="the SDK against a raw producer")
    parser.add_argument("--intents", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    described = machine()
    runs: list[dict[str, Any]] = []
    keys = args.intents * KEYS_PER_INTENT
    with open_bench("sdk") as bench:
        batches = [key_batch(_TENANT, n * KEYS_PER_INTENT, 1) for n in range(args.intents)]
        for emit in (raw, through_sdk):  # warm-up: connections, the broker's compiled code
            emit(bench, batches[: args.intents // 10])
        for _ in range(args.runs):
            (raw_s, raw_cpu), (sdk_s, sdk_cpu) = raw(bench, batches), through_sdk(bench, batches)
            run = {
                "raw_keys_per_s": round(keys / raw_s),
                "sdk_keys_per_s": round(keys / sdk_s),
                "raw_cpu_us_per_key": round(raw_cpu * 1e6 / keys, 3),
                "sdk_cpu_us_per_key": round(sdk_cpu * 1e6 / keys, 3),
            }
            say(str(run))
            runs.append(run)
    figures = {
        "sdk.keys_per_s": median([run["sdk_keys_per_s"] for run in runs]),
        "sdk.raw_producer_keys_per_s": median([run["raw_keys_per_s"] for run in runs]),
        "sdk.ratio_to_raw_producer": median([run["sdk_keys_per_s"] / run["raw_keys_per_s"] for run in runs]),
        "sdk.cpu_ratio_to_raw_producer": median(
            [run["raw_cpu_us_per_key"] / run["sdk_cpu_us_per_key"] for run in runs]
        ),
    }
    return write_results("sdk", runs, figures, {"sdk.ratio_to_raw_producer": Target(">=", 0.8)}, described)


if __name__ == "__main__":
    sys.exit(main())
