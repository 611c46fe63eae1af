"""The plain consumer: what a good engineer would write without Sexton, as the yardstick of `pipeline`.

    python -m benchmarks.plain_consumer --brokers B --topic T --endpoint URL --keys N

confluent-kafka, fastavro and boto3's `delete_objects`: one process per core with its share of the partitions,
full batches of 1,000 keys, keep-alive, verbose replies checked for errors and counted, offsets committed
after the deletes. It judges nothing: every key that is asked for is deleted, stale or not.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import boto3
import fastavro
from botocore.config import Config
from confluent_kafka import Consumer, Message, TopicPartition

from sexton.schemas.codec import schema_of
from sexton.schemas.events import DeletionIntent

__all__ = ["WARM_UP_KEYS", "work"]

_BATCH = 1000
_HEADER = 10  # single-object encoding: C3 01 and the fingerprint
WARM_UP_KEYS = 50_000


@dataclass(frozen=True, slots=True)
class Share:
    """What one process processes: its partitions, each with its first offset, and how many keys at least."""

    brokers: str
    topic: str
    endpoint: str
    partitions: tuple[tuple[int, int], ...]
    keys: int


@dataclass(slots=True)
class Done:
    """What one process did: keys after its warm-up, and between which monotonic seconds.

    `read` has for each partition the offset below which every key of its share was deleted.
    """

    keys: int
    requests: int
    started: float
    ended: float
    read: dict[int, int]


def work(share: Share) -> Done:
    """Consume and delete until the share is done."""
    s3 = boto3.client(
        "s3", endpoint_url=share.endpoint, config=Config(tcp_keepalive=True, retries={"mode": "standard"})
    )
    consumer = Consumer(
        {
            "bootstrap.servers": share.brokers,
            "group.id": "plain-consumer",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.message.max.bytes": 8 * 1024 * 1024,
            "queued.max.messages.kbytes": 32 * 1024,
        }
    )
    consumer.assign([TopicPartition(share.topic, *partition) for partition in share.partitions])
    done = Done(0, 0, 0.0, 0.0, dict(share.partitions))
    waiting: dict[str, list[str]] = {}
    total = warm = 0
    while total < share.keys:
        messages = consumer.consume(500, timeout=5.0)
        if not messages:
            break
        for bucket, keys in _keys(messages):
            buffer = waiting.setdefault(bucket, [])
            buffer += keys
            while len(buffer) >= _BATCH:
                _delete(s3, bucket, buffer[:_BATCH])
                del buffer[:_BATCH]
                total += _BATCH
                done.requests += 1
        done.read.update((int(m.partition() or 0), int(m.offset() or 0) + 1) for m in messages)
        consumer.commit(asynchronous=True)
        if not done.started and total >= WARM_UP_KEYS:
            done.started, warm = time.monotonic(), total
    done.ended, done.keys = time.monotonic(), total - warm
    for bucket, keys in waiting.items():
        if keys:
            _delete(s3, bucket, keys)
    consumer.close()
    return done


def _keys(messages: list[Message]) -> Iterator[tuple[str, list[str]]]:
    schema = schema_of(DeletionIntent).parsed
    for message in messages:
        value = message.value()
        if message.error() or not isinstance(value, bytes):
            raise RuntimeError(f"cannot consume: {message.error()}")
        stream = io.BytesIO(value)
        stream.seek(_HEADER)
        intent: Any = fastavro.schemaless_reader(stream, schema, None)
        for phase in intent["action"]["phases"]:
            yield intent["action"]["bucket"], phase


def _delete(s3: Any, bucket: str, keys: list[str]) -> None:
    reply = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys]})
    if reply.get("Errors") or len(reply["Deleted"]) != len(keys):
        raise RuntimeError(f"not every key was deleted: {reply.get('Errors')}")


def main() -> None:
    """Run one process per core and print what they did as one JSON line."""
    parser = argparse.ArgumentParser(description="a plain consumer as a yardstick")
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--keys", type=int, required=True, help="process so many keys, then end")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--from-offsets", type=json.loads, help="JSON list by partition; default: the start")
    args = parser.parse_args()
    probe = Consumer({"bootstrap.servers": args.brokers, "group.id": "plain-consumer"})
    partitions = sorted(probe.list_topics(args.topic, timeout=10).topics[args.topic].partitions)
    probe.close()
    offsets = args.from_offsets or [0] * len(partitions)
    shares = [
        Share(
            args.brokers,
            args.topic,
            args.endpoint,
            tuple((partition, offsets[partition]) for partition in partitions[first :: args.processes]),
            args.keys // args.processes,
        )
        for first in range(args.processes)
    ]
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        print(json.dumps([asdict(done) for done in pool.map(work, shares, chunksize=1)]))


if __name__ == "__main__":
    main()
